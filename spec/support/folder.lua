--- A folder of a spec's own, gone when the sentence ends.
local lfs = require "lfs"

local folder = {}

--- Run fn(path) in it.
---@param fn fun(path: string)
function folder.with(fn)
  local path = os.tmpname()
  os.remove(path)
  assert(lfs.mkdir(path))
  local fine, message = xpcall(fn, debug.traceback, path)
  os.execute("rm -rf '" .. path .. "'")
  if not fine then error(message, 0) end
end

--- The names in a folder, hidden ones too, sorted.
---@param path string
---@return string[]
function folder.names(path)
  local names = {}
  for name in lfs.dir(path) do
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

return folder
