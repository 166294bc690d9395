--- Dims as arguments of functions written in Lua: counted from 0, or from the end by negative numbers.
local arguments = require "accelhost.util.arguments"

local dims = {}

--- The dim counted from 0. A 0-dim tensor has, as in PyTorch, the dims 0 and -1.
---@param dim integer
---@param count integer number of dims
---@return integer
function dims.wrap(what, dim, count)
  count = math.max(count, 1)
  if dim < -count or dim >= count then
    arguments.fail("%s: dim %d is out of range (expected %d..%d)", what, dim, -count, count - 1)
  end
  return dim < 0 and dim + count or dim
end

--- The dims counted from 0, each of them once.
---@param list integer|integer[]
function dims.wrap_all(what, list, count)
  local wrapped, seen = {}, {}
  for i, dim in ipairs(type(list) == "number" and {list} or list) do
    dim = dims.wrap(what, dim, count)
    if seen[dim] then arguments.fail("%s: dim %d is named twice", what, dim) end
    wrapped[i], seen[dim] = dim, true
  end
  return wrapped
end

--- The product of sizes, 1 of none.
---@param first? integer
---@param last? integer
---@return integer
function dims.product(sizes, first, last)
  local product = 1
  for i = first or 1, last or #sizes do product = product * sizes[i] end
  return product
end

--- One array after another.
---@param ... any[]
function dims.concat(...)
  local list = {}
  for i = 1, select("#", ...) do
    for _, value in ipairs((select(i, ...))) do list[#list + 1] = value end
  end
  return list
end

return dims
