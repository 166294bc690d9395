--- Shapes (Lua arrays of sizes) and parameters of distributions.
local C = require "accelhost._C"
local join = require "accelhost.functions.join"

local shapes = {}

--- The sizes of several shapes, one after the other.
---@param ... integer[]
---@return integer[]
function shapes.join(...)
  local sizes = {}
  for i = 1, select("#", ...) do
    for _, size in ipairs((select(i, ...))) do sizes[#sizes + 1] = size end
  end
  return sizes
end

--- A part of a shape: sizes `first` to `last`, counted from 1.
function shapes.part(shape, first, last)
  local sizes = {}
  for i = first, last do sizes[#sizes + 1] = shape[i] end
  return sizes
end

function shapes.text(shape)
  return "(" .. table.concat(shape, ", ") .. (#shape == 1 and ",)" or ")")
end

--- The product of the sizes.
function shapes.count(shape)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return count
end

--- The tensor summed over its last `count` dims.
---@param tensor Tensor
---@param count integer
---@return Tensor
function shapes.sum_last(tensor, count)
  for _ = 1, count do tensor = tensor:sum(-1) end
  return tensor
end

--- Numbers and tensors as tensors of one shape; a number has the dtype and the device of the tensors.
---@param ... number|Tensor
---@return Tensor ...
function shapes.broadcast(...)
  local like, values = nil, {...}
  for _, value in ipairs(values) do
    if C.is_tensor(value) and not like then like = value end
  end
  local options = {dtype = like and like.dtype or "float32", device = like and like.device}
  for i, value in ipairs(values) do
    if not C.is_tensor(value) then values[i] = C.tensor(value, options) end
  end
  if #values == 1 then return values[1] end
  return join.broadcast_tensors(unpack(values))
end

return shapes
