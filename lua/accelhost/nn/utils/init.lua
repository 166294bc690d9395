--- accelhost.nn.utils: clipping gradients, parameters as one vector.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local module = require "accelhost.nn.module"
local namespace = require "accelhost.util.namespace"

local fail = arguments.fail
local utils = {state_pairs = module.state_pairs}

local read_norm = arguments.signature("clip_grad_norm_", {
  "parameters: tensors", "max_norm: nonnegative", {"norm_type: positive|'inf'", 2},
  {"error_if_nonfinite: flag", false},
})

--- Scale all gradients so that their common norm is at most max_norm. "inf" is the largest absolute value.
--
--   nn.utils.clip_grad_norm_(net:parameters(), 1.0)
---@return table norm the norm before, a 0-dim tensor
function utils.clip_grad_norm_(...)
  local parameters, max_norm, norm_type, strict = read_norm(...)
  if norm_type == "inf" then norm_type = math.huge end
  return C.optim.clip_grad_norm(parameters, max_norm, norm_type, strict)
end

local read_value = arguments.signature("clip_grad_value_", {"parameters: tensors", "clip_value: nonnegative"})

--- Clamp every gradient to [-clip_value, clip_value].
function utils.clip_grad_value_(...)
  local parameters, clip_value = read_value(...)
  C.optim.clip_grad_value(parameters, clip_value)
end

local read_vector = arguments.signature("parameters_to_vector", {"parameters: tensors"})

local function list_of(parameters)
  return C.is_tensor(parameters) and {parameters} or parameters
end

--- All parameters as one vector, in order (a copy, differentiable).
---@param parameters table[]
---@return table [total]
function utils.parameters_to_vector(...)
  local parts = {}
  for i, parameter in ipairs(list_of((read_vector(...)))) do parts[i] = parameter:reshape(-1) end
  return C.cat(parts, 0)
end

local read_back = arguments.signature("vector_to_parameters", {"vector: tensor", "parameters: tensors"})

--- Write a vector back into the parameters.
---@param vector table [total]
---@param parameters table[]
function utils.vector_to_parameters(...)
  local vector, parameters = read_back(...)
  parameters = list_of(parameters)
  local total = 0
  for _, parameter in ipairs(parameters) do total = total + parameter:numel() end
  if vector:dim() ~= 1 or vector:size(0) ~= total then
    fail("vector_to_parameters: expected a vector of %d elements, got shape %s", total, arguments.shape_text(vector))
  end
  C.autograd.no_grad(function()
    local at = 0
    for _, parameter in ipairs(parameters) do
      parameter:copy_(vector:narrow(0, at, parameter:numel()):reshape(parameter:shape()))
      at = at + parameter:numel()
    end
  end)
end

--- Run fn(...) without keeping its intermediate results, and again during backward; see accelhost.autograd.
function utils.checkpoint(fn, ...)
  return require("accelhost.autograd").checkpoint(fn, ...)
end

return namespace.new("nn.utils", utils, {rnn = {"accelhost.nn.utils.rnn"}})
