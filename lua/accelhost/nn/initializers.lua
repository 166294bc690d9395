--- accelhost.nn.init: fill tensors in place, with PyTorch's formulas and the same draws from the generator.
--
--   local conv = nn.Conv2d(3, 8, 3)
--   nn.init.kaiming_normal_(conv.weight, {mode = "fan_out", nonlinearity = "relu"})
--
-- Each function works without recording gradients and returns the tensor. Random initializers accept
-- {generator = ...}, a Generator to draw from instead of the global one.
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"
local no_grad = require("accelhost.nn.skip").no_grad

local fail = arguments.fail
local init, lazy = {}, {}
namespace.add(lazy, "accelhost.nn.special_initializers", {"eye_", "dirac_", "sparse_", "trunc_normal_", "orthogonal_"})

local function uniform(tensor, low, high, generator) return tensor:uniform_(low, high, {generator = generator}) end
local function normal(tensor, mean, std, generator) return tensor:normal_(mean, std, {generator = generator}) end
local function fill(tensor, value) return tensor:fill_(value) end

local function fans(what, tensor)
  local dims = tensor:dim()
  if dims < 2 then
    fail("%s: expected a tensor of at least 2 dims, got shape %s", what, arguments.shape_text(tensor))
  end
  local field = 1
  for d = 2, dims - 1 do field = field * tensor:size(d) end
  return tensor:size(1) * field, tensor:size(0) * field
end

local read_fans = arguments.signature("calculate_fan_in_and_fan_out", {"tensor: tensor"})

--- Fan in and fan out of a weight [out, in, ...].
--
--   nn.init.calculate_fan_in_and_fan_out(accelhost.empty(3, 4))  --> 4, 3
---@param tensor Tensor [out, in, ...]
---@return number fan_in, number fan_out
function init.calculate_fan_in_and_fan_out(...)
  return fans("calculate_fan_in_and_fan_out", read_fans(...))
end

-- Without a slope of leaky_relu it is 0.01.
local gains = {
  linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1,
  sigmoid = 1, tanh = 5.0 / 3, relu = math.sqrt(2.0), selu = 3.0 / 4,
}
local nonlinearities = "'linear'|'conv1d'|'conv2d'|'conv3d'|'conv_transpose1d'|'conv_transpose2d'|'conv_transpose3d'|"
  .. "'sigmoid'|'tanh'|'relu'|'leaky_relu'|'selu'"
--- The recommended gain for a nonlinearity: linear, conv*, sigmoid, tanh, relu, leaky_relu, selu.
--
--   nn.init.calculate_gain "relu"  --> 1.4142135623731
---@param param number? the negative slope of leaky_relu (default 0.01)
---@return number
init.calculate_gain = arguments.checked("calculate_gain", {
  "nonlinearity: " .. nonlinearities, {"param: number", 0.01},
}, function(nonlinearity, slope)
  return gains[nonlinearity] or math.sqrt(2.0 / (1 + slope ^ 2))
end)

local read_uniform = arguments.signature("uniform_",
  {"tensor: tensor", {"a: number", 0}, {"b: number", 1}, {"generator: generator"}})
--- U(a, b).
--
--   nn.init.uniform_(accelhost.empty(2), 3, 4):ge(3):all()  --> tensor(true)
function init.uniform_(...)
  return no_grad(uniform, read_uniform(...))
end

local read_normal = arguments.signature("normal_",
  {"tensor: tensor", {"mean: number", 0}, {"std: nonnegative", 1}, {"generator: generator"}})
--- N(mean, std^2).
--
--   nn.init.normal_(accelhost.empty(2), 5, 0)  --> tensor([5., 5.])
function init.normal_(...)
  return no_grad(normal, read_normal(...))
end

local read_constant = arguments.signature("constant_", {"tensor: tensor", "val: number"})
--- Fill with a value.
--
--   nn.init.constant_(accelhost.empty(2), 3)  --> tensor([3., 3.])
function init.constant_(...)
  return no_grad(fill, read_constant(...))
end

local read_zeros = arguments.signature("zeros_", {"tensor: tensor"})
--- Fill with 0.
--
--   nn.init.zeros_(accelhost.empty(2))  --> tensor([0., 0.])
function init.zeros_(...) return no_grad(fill, read_zeros(...), 0) end

local read_ones = arguments.signature("ones_", {"tensor: tensor"})
--- Fill with 1.
--
--   nn.init.ones_(accelhost.empty(2))  --> tensor([1., 1.])
function init.ones_(...) return no_grad(fill, read_ones(...), 1) end

local xavier = {"tensor: tensor", {"gain: number", 1}, {"generator: generator"}}
--- U(-a, a) with a = gain * sqrt(6 / (fan_in + fan_out)).
--
--   nn.init.xavier_uniform_(accelhost.empty(3, 4)):size(1)  --> 4
init.xavier_uniform_ = arguments.named("xavier_uniform_", xavier, function(what, tensor, gain, generator)
  local fan_in, fan_out = fans(what, tensor)
  local std = gain * math.sqrt(2.0 / (fan_in + fan_out))
  local bound = math.sqrt(3.0) * std
  return no_grad(uniform, tensor, -bound, bound, generator)
end)

--- N(0, gain^2 * 2 / (fan_in + fan_out)).
--
--   nn.init.xavier_normal_(accelhost.empty(3, 4)):size(1)  --> 4
init.xavier_normal_ = arguments.named("xavier_normal_", xavier, function(what, tensor, gain, generator)
  local fan_in, fan_out = fans(what, tensor)
  return no_grad(normal, tensor, 0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)
end)

local function kaiming_std(what, tensor, a, mode, nonlinearity)
  local fan_in, fan_out = fans(what, tensor)
  local fan = mode == "fan_in" and fan_in or fan_out
  return init.calculate_gain(nonlinearity, a) / math.sqrt(fan)
end

local kaiming = {"tensor: tensor", {"a: number", 0}, {"mode: 'fan_in'|'fan_out'", "fan_in"},
  {"nonlinearity: " .. nonlinearities, "leaky_relu"}, {"generator: generator"}}
local read_kaiming_uniform = arguments.signature("kaiming_uniform_", kaiming)
--- U(-bound, bound) with bound = gain * sqrt(3 / fan).
--
--   nn.init.kaiming_uniform_(accelhost.empty(3, 4)):size(1)  --> 4
function init.kaiming_uniform_(...)
  local tensor, a, mode, nonlinearity, generator = read_kaiming_uniform(...)
  if tensor:numel() == 0 then return tensor end
  local bound = math.sqrt(3.0) * kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
  return no_grad(uniform, tensor, -bound, bound, generator)
end

local read_kaiming_normal = arguments.signature("kaiming_normal_", kaiming)
--- N(0, gain^2 / fan).
--
--   nn.init.kaiming_normal_(accelhost.empty(3, 4), {nonlinearity = "relu"}):size(1)  --> 4
function init.kaiming_normal_(...)
  local tensor, a, mode, nonlinearity, generator = read_kaiming_normal(...)
  if tensor:numel() == 0 then return tensor end
  return no_grad(normal, tensor, 0, kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), generator)
end

return namespace.new("nn.init", init, lazy)
