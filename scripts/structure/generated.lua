-- Files that a script wrote, in folders named generated: the first line names the script, which exists.
local generated = {}

--- Report generated files whose first line names no script of the repository.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
function generated.check(list, report)
  local known = {}
  for _, file in ipairs(list) do known[file.path] = true end
  for _, file in ipairs(list) do
    if file.path:find "/generated/" then
      local first = io.lines(file.path)() or ""
      if not known[first:match "scripts/[%w_/-]+%.%w+" or ""] then
        report(file.path, 1, "the first line of a generated file names its script")
      end
    end
  end
end

return generated
