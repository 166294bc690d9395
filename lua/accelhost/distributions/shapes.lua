--- Shapes (Lua arrays of sizes) and parameters of distributions.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local join = require "accelhost.functions.join"

local shapes = {}

--- A part of a shape: sizes `first` to `last`, counted from 1.
function shapes.part(shape, first, last)
  local sizes = {}
  for i = first, last do sizes[#sizes + 1] = shape[i] end
  return sizes
end

--- A parameter as a distribution's text shows it: its number, or its shape.
---@param value Tensor
function shapes.parameter_text(value)
  return value:numel() == 1 and ("%.7g"):format(value:item()) or arguments.shape_text(value)
end

--- The tensor summed over its last `count` dims.
---@param tensor Tensor
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
  local options = {dtype = like and like.dtype or C.dtype.get_default_dtype(), device = like and like.device}
  for i, value in ipairs(values) do
    if not C.is_tensor(value) then values[i] = C.tensor(value, options) end
  end
  if #values == 1 then return values[1] end
  return join.broadcast_tensors(unpack(values))
end

return shapes
