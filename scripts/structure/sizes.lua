-- Files over 800 lines, scripts of fixtures too, and functions over 60: each needs a reason in
-- scripts/structure/reasons.txt.
local files = require "files"

local sizes = {file_lines = 800, function_lines = 60}

local function measured(file, report, reasons)
  if #file.lines > sizes.file_lines and not reasons:take(file.path) then
    report(file.path, 1, ("%d lines (over %d need a reason)"):format(#file.lines, sizes.file_lines))
  end
  local functions = file.path:find("%.lua$") and files.lua_functions(file.lines)
    or files.c_functions(files.c_code(file.text))
  for _, f in ipairs(functions) do
    local count = f.to and f.to - f.from + 1 or 0
    if count > sizes.function_lines and not reasons:take(file.path .. ":" .. f.name) then
      report(file.path, f.from, ("%s has %d lines (over %d need a reason)"):format(f.name, count, sizes.function_lines))
    end
  end
end

--- Report functions and files that are too long.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
---@param reasons table from reasons.lua
function sizes.check(list, report, reasons)
  for _, file in ipairs(list) do
    local path = file.path
    if path:find("%.c$") or path:find("^lua/.*%.lua$") or path:find("^scripts/.*%.lua$")
      or path:find("^scripts/fixtures/.*%.py$") then
      measured(file, report, reasons)
    end
  end
end

return sizes
