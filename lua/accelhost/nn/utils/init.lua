--- accelhost.nn.utils: clipping gradients, parameters as one vector, normed weights.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local module = require "accelhost.nn.module"
local skip = require "accelhost.nn.skip"
local namespace = require "accelhost.util.namespace"

local fail = arguments.fail
local utils = {state_pairs = module.state_pairs}

local read_vector = arguments.signature("parameters_to_vector", {"parameters: tensors"})

local function list_of(parameters)
  return C.is_tensor(parameters) and {parameters} or parameters
end

--- All parameters as one vector, in order (a copy, differentiable).
--
--   nn.utils.parameters_to_vector(net:parameters()):numel()  --> 23
---@return Tensor [total]
function utils.parameters_to_vector(...)
  local parts = {}
  for i, parameter in ipairs(list_of((read_vector(...)))) do parts[i] = parameter:reshape(-1) end
  return C.cat(parts, 0)
end

--- Write a vector back into the parameters.
--
--   nn.utils.vector_to_parameters(accelhost.zeros(23), net:parameters())
--   net(x):detach():abs():sum()  --> tensor(0.)
---@param vector Tensor [total]
utils.vector_to_parameters = arguments.checked("vector_to_parameters", {
  "vector: tensor", "parameters: tensors",
}, function(vector, parameters)
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
end)

--- A module whose parameters are not initialised (and draw no random numbers), for one that is filled at once.
--
--   local layer = nn.utils.skip_init(nn.Linear, 784, 10)
---@param module_cls table a class of modules
---@param ... any arguments of its constructor
---@return Module
function utils.skip_init(module_cls, ...)
  if not (class.is_class(module_cls) and module_cls._is_module) then
    fail("skip_init: module_cls: expected a class of modules such as nn.Linear, got %s", arguments.describe(module_cls))
  end
  return skip.make(module_cls, ...)
end

local lazy = {
  rnn = {"accelhost.nn.utils.rnn"},
  parametrize = {"accelhost.nn.utils.parametrize"},
  prune = {"accelhost.nn.utils.prune"},
  parametrizations = {"accelhost.nn.utils.parametrizations"},
}
namespace.add(lazy, "accelhost.nn.utils.clip", {
  "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_",
})
namespace.add(lazy, "accelhost.nn.utils.hooked", {
  "weight_norm", "remove_weight_norm", "spectral_norm", "remove_spectral_norm",
})
namespace.add(lazy, "accelhost.nn.utils.fusion", {
  "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
})

return namespace.new("nn.utils", utils, lazy)
