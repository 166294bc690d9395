--- Batch normalisation fused into a layer: in evaluation mode it can be part of the one before it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local parameter = require "accelhost.nn.parameter"

local fail = arguments.fail
local fusion = {}

local statistics = {"bn_rm: tensor", "bn_rv: tensor", "bn_eps: nonnegative", {"bn_w: tensor"}, {"bn_b: tensor"}}

local function fused(w, b, mean, variance, eps, scale, shift, shape)
  return C.autograd.no_grad(function()
    local root = (variance + eps):rsqrt()
    local factor = scale and scale * root or root
    local new_w = (w * factor:reshape(shape)):to(w.dtype)
    local new_b = ((b and b - mean or -mean) * factor):to(w.dtype)
    if shift then new_b = (new_b + shift):to(w.dtype) end
    return parameter.new(new_w, w.requires_grad), parameter.new(new_b, b ~= nil and b.requires_grad)
  end)
end

local function shape_of(w, transpose)
  local shape = {transpose and 1 or -1, transpose and -1 or 1}
  for d = 3, w:dim() do shape[d] = 1 end
  return shape
end

local conv_parameters = {"conv_w: tensor", {"conv_b: tensor"}, unpack(statistics)}
conv_parameters[#conv_parameters + 1] = {"transpose: flag", false}
local read_conv_weights = arguments.signature("fuse_conv_bn_weights", conv_parameters)

--- Weight and bias of a convolution followed by a batch normalisation with these statistics.
--
--   local conv, bn = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
--   local weight, bias = nn.utils.fuse_conv_bn_weights(conv.weight, conv.bias, bn.running_mean, bn.running_var,
--     bn.eps, bn.weight, bn.bias)
--   print(weight:dim(), bias:size(0))  --> 4  2
---@param conv_w Tensor [out, in, ...]
---@param conv_b Tensor? [out]
---@param bn_rm Tensor running mean
---@param bn_rv Tensor running variance
---@param bn_w Tensor? its weight
---@param bn_b Tensor? its bias
---@param transpose boolean? the weight is [in, out, ...]
---@return Tensor weight a parameter
---@return Tensor bias a parameter
function fusion.fuse_conv_bn_weights(...)
  local w, b, mean, variance, eps, scale, shift, transpose = read_conv_weights(...)
  return fused(w, b, mean, variance, eps, scale, shift, shape_of(w, transpose))
end

local linear_parameters = {"linear_w: tensor", {"linear_b: tensor"}, unpack(statistics)}
local read_linear_weights = arguments.signature("fuse_linear_bn_weights", linear_parameters)

--- Weight and bias of a linear layer followed by a batch normalisation with these statistics.
--
--   local fc, bn = nn.Linear(4, 2), nn.BatchNorm1d(2)
--   local weight, bias = nn.utils.fuse_linear_bn_weights(fc.weight, fc.bias, bn.running_mean, bn.running_var, bn.eps,
--     bn.weight, bn.bias)
--   print(weight:dim(), bias:size(0))  --> 2  2
---@param linear_w Tensor [out, in]
---@param linear_b Tensor? [out]
---@return Tensor weight a parameter
---@return Tensor bias a parameter
function fusion.fuse_linear_bn_weights(...)
  local w, b, mean, variance, eps, scale, shift = read_linear_weights(...)
  return fused(w, b, mean, variance, eps, scale, shift, shape_of(w, false))
end

local function fuse(what, layer, bn, transpose)
  if layer.training or bn.training then
    fail("%s: expected both modules in evaluation mode; call :eval() on them", what)
  end
  if not C.is_tensor(bn.running_mean) or not C.is_tensor(bn.running_var) then
    fail("%s: bn: expected a batch normalisation with running statistics, got %s", what, arguments.describe(bn))
  end
  if not C.is_tensor(layer.weight) then
    fail("%s: expected a module with a weight, got %s", what, arguments.describe(layer))
  end
  local made = layer:deepcopy()
  made.weight, made.bias = fused(made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
    shape_of(made.weight, transpose))
  return made
end

--- Return one convolution that computes `conv` and then `bn` in evaluation mode.
--
--   nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 2, 3):eval(), nn.BatchNorm2d(2):eval())(images):size(1)  --> 2
---@param bn Module BatchNorm1d or BatchNorm2d
---@param transpose boolean? default false; true for a transposed convolution
---@return Module conv a new one
fusion.fuse_conv_bn_eval = arguments.named("fuse_conv_bn_eval", {
  "conv: module", "bn: module", {"transpose: flag", false},
}, function(what, conv, bn, transpose)
  return fuse(what, conv, bn, transpose)
end)

--- Return one linear layer that computes `linear` and then `bn` in evaluation mode.
--
--   nn.utils.fuse_linear_bn_eval(nn.Linear(4, 2):eval(), nn.BatchNorm1d(2):eval())(x):size(1)  --> 2
---@param bn Module BatchNorm1d
---@return Module linear a new one
fusion.fuse_linear_bn_eval = arguments.named("fuse_linear_bn_eval", {
  "linear: module", "bn: module",
}, function(what, linear, bn)
  if bn.num_features ~= 1 and linear.out_features ~= bn.num_features then
    fail("fuse_linear_bn_eval: expected as many features of bn as outputs of linear, or 1, got %s and %s",
      tostring(bn.num_features), tostring(linear.out_features))
  end
  return fuse(what, linear, bn, false)
end)

return fusion
