--- Options that are one number for all dims or a table with one for each.
local fail = require("accelhost.util.arguments").fail

local sizes = {}

--- As a table of `count` numbers.
---@param name string the option
---@param value number|number[]
---@return number[]
function sizes.tuple(what, name, value, count)
  local one = type(value) == "number" and value or #value == 1 and value[1]
  if one then
    value = {}
    for d = 1, count do value[d] = one end
  end
  if #value ~= count then
    fail("%s: %s: expected a number or a table of %d, got a table of %d", what, name, count, #value)
  end
  return value
end

return sizes
