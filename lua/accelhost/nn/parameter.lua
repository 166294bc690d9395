--- nn.Parameter: a tensor that a module registers when it is assigned.
local arguments = require "accelhost.util.arguments"

local parameter = {}

local known = setmetatable({}, {__mode = "k"})
local read = arguments.signature("nn.Parameter", {"data: tensor", {"requires_grad: flag", true}})

--- Make a parameter from a tensor; it shares the tensor's memory and has no history.
--
--   nn.Parameter(a).requires_grad  --> true
---@names Parameter
---@return Tensor
function parameter.new(...)
  local data, requires_grad = read(...)
  local tensor = data.data
  tensor.requires_grad = requires_grad
  known[tensor] = true
  return tensor
end

--- Is this a tensor made by nn.Parameter?
--
--   nn.is_parameter(net.fc1.weight)  --> true
---@return boolean
function parameter.is_parameter(value)
  return known[value] == true
end

--- Return the parameters that can have gradients: all but quantised weights, which are constants.
---@param list Tensor[]
---@return Tensor[]
function parameter.floating(list)
  local found = {}
  for _, tensor in ipairs(list) do
    if tensor.dtype ~= "int8" and tensor.dtype ~= "uint8" then found[#found + 1] = tensor end
  end
  return found
end

return parameter
