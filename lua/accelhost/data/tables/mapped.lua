--- The results of map's fn: columns by name.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe

local mapped = {}

--- Raise unless a result is columns by name.
function mapped.check(result)
  if type(result) ~= "table" and type(result) ~= "userdata" or C.is_tensor(result) then
    fail("map: fn: expected a table of columns by name, got %s", describe(result))
  end
end

-- The values of a batch's column, as a table.
local function values_of(name, values)
  if C.is_tensor(values) and values:dim() > 0 then
    return values:dim() == 1 and values:tolist() or values:unbind(0)
  end
  if type(values) ~= "table" or getmetatable(values) ~= nil then
    fail("map: fn: column '%s': expected a tensor or a table of values, got %s", tostring(name), describe(values))
  end
  return values
end

--- Call `fn(name, values)` for each column of a batch's result; columns have equally many rows.
---@param result table<string, any> tensors [n, ...] or tables
---@param fn fun(name: string, values: any[])
---@return integer # rows
function mapped.each(result, fn)
  mapped.check(result)
  local count, first
  for name, values in pairs(result) do
    values = values_of(name, values)
    if count and #values ~= count then
      fail("map: fn: column '%s' has %d rows, column '%s' %d", tostring(name), #values, tostring(first), count)
    end
    count, first = #values, name
    fn(name, values)
  end
  return count or 0
end

return mapped
