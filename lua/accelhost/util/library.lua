--- The texts of the library's files, which the program contains: sources, style sheets, scripts of pages.
local library = {}

--- The text of a file: from the checkout that ACCELHOST_LUA names, or from the program; nil if there is none.
---@param path string such as "accelhost/nn/linear.lua"
---@return string?
function library.text(path)
  local folder = os.getenv "ACCELHOST_LUA"
  local file = folder and folder ~= "" and io.open(folder .. "/" .. path)
  if file then
    local text = file:read "*a"
    file:close()
    return text
  end
  local all = require "accelhost._sources"
  local _, at = all:find("\n@@ " .. path .. "\n", 1, true)
  return at and all:sub(at + 1, (all:find("\n@@ ", at, true) or #all + 1) - 1)
end

return library
