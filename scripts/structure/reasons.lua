-- The exceptions to the structure rules, one a line: WHAT, blanks, the reason. An exception that nothing needs any
-- more is a breach itself.
local reasons = {}
reasons.__index = reasons

--- Read the list.
---@param path string
---@return table
function reasons.read(path)
  local self = setmetatable({path = path, why = {}, used = {}, line = {}}, reasons)
  local number = 0
  for line in io.lines(path) do
    number = number + 1
    local what, why = line:match("^([^#%s]%S*)%s+(%S.*)$")
    if what then self.why[what], self.line[what] = why, number end
  end
  return self
end

--- Is there a reason for this? Marks it as needed.
---@param what string a path, path:function or path~path
---@return boolean
function reasons:take(what)
  self.used[what] = true
  return self.why[what] ~= nil
end

--- Report the exceptions that nothing asked for.
---@param report fun(path: string, line: integer, text: string)
function reasons:check(report)
  for what in pairs(self.why) do
    if not self.used[what] then report(self.path, self.line[what], what .. " needs no exception any more") end
  end
end

return reasons
