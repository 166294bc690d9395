--- Normalisation within each sample: layer, root mean square, group, neighbouring channels.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local fused = require "accelhost.nn.fused"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local fail = arguments.fail
local norm = {}

--- Normalise over the last dims, `normalized_shape`.
--
--   nn.LayerNorm(768)        nn.LayerNorm({16, 16}, {eps = 1e-6})
---@field weight Tensor? [normalized_shape]
---@field bias Tensor? [normalized_shape]
local LayerNorm = Module:extend "LayerNorm"
norm.LayerNorm = LayerNorm

local read_layer = arguments.signature("LayerNorm", {
  "normalized_shape: sizes", {"eps: number", 1e-5}, {"elementwise_affine: flag", true}, {"bias: flag", true},
  {"device: device"}, {"dtype: dtype"},
})

function LayerNorm:init(...)
  local shape, eps, affine, bias, device, dtype = read_layer(...)
  local options = {dtype = dtype, device = device}
  self.normalized_shape = type(shape) == "number" and {shape} or shape
  self.eps, self.elementwise_affine = eps, affine
  if affine then
    self.weight = new(C.empty(self.normalized_shape, options))
    if bias then self.bias = new(C.empty(self.normalized_shape, options)) end
  end
  self:reset_parameters()
end

--- Weight to ones, bias to zeros.
function LayerNorm:reset_parameters()
  if self.weight then init.ones_(self.weight) end
  if self.bias then init.zeros_(self.bias) end
end

---@param input Tensor [..., normalized_shape]
function LayerNorm:forward(input)
  return C.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
end

function LayerNorm:extra_repr()
  return ("%s, eps=%s, elementwise_affine=%s, bias=%s"):format(repr.value(self.normalized_shape),
    repr.float(self.eps), repr.value(self.elementwise_affine), repr.value(self.bias ~= nil))
end

--- Return a module's result that only linear maps read: of a LayerNorm without hooks, under autocast, in the dtype to
--- which these would cast it.
---@param input Tensor
---@return Tensor
function norm.for_linear(module, input)
  local dtype = C.autocast.lower_dtype(input)
  if not dtype or not fused.is_plain(module, LayerNorm) then return module(input) end
  return C.layer_norm_to(input, module.normalized_shape, module.weight, module.bias, module.eps, dtype)
end

--- Return a module's result for the sum of two tensors, and that sum: in one pass by a LayerNorm without hooks.
---@param input Tensor
---@param other Tensor
---@param for_linear? boolean only linear maps read the result: in their dtype, as `for_linear` has it
---@return Tensor normalised
---@return Tensor sum
function norm.of_sum(module, input, other, for_linear)
  if fused.is_plain(module, LayerNorm) then
    local dtype = for_linear and C.autocast.lower_dtype(input) or nil
    return C.add_layer_norm(input, other, module.normalized_shape, module.weight, module.bias, module.eps, dtype)
  end
  local sum = input + other
  return module(sum), sum
end

--- Normalise the channels of each of `num_groups` groups together.
--
--   nn.GroupNorm(2, 4)(x):size(1)  --> 4
---@field weight Tensor? [num_channels]
---@field bias Tensor? [num_channels]
local GroupNorm = Module:extend "GroupNorm"
norm.GroupNorm = GroupNorm

local read_group = arguments.signature("GroupNorm", {
  "num_groups: count", "num_channels: size", {"eps: number", 1e-5}, {"affine: flag", true}, {"device: device"},
  {"dtype: dtype"}, {"bias: flag", true},
})

function GroupNorm:init(...)
  local groups, channels, eps, affine, device, dtype, bias = read_group(...)
  if channels % groups ~= 0 then
    fail("GroupNorm: num_channels %d must be divisible by num_groups %d", channels, groups)
  end
  local options = {dtype = dtype, device = device}
  self.num_groups, self.num_channels, self.eps, self.affine = groups, channels, eps, affine
  if affine then
    self.weight = new(C.empty({channels}, options))
    init.ones_(self.weight)
    if bias then self.bias = new(init.zeros_(C.empty({channels}, options))) end
  end
end

---@param input Tensor [N, num_channels, ...]
function GroupNorm:forward(input)
  return C.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
end

function GroupNorm:extra_repr()
  return ("%d, %d, eps=%s, affine=%s, bias=%s"):format(self.num_groups, self.num_channels,
    repr.float(self.eps), repr.value(self.affine), repr.value(self.bias ~= nil))
end

--- Divide by the root mean square over the last dims, `normalized_shape` (Zhang and Sennrich, 2019).
--
--   nn.RMSNorm(768)        nn.RMSNorm({16, 16}, {eps = 1e-6})
---@field weight Tensor? [normalized_shape]
local RMSNorm = Module:extend "RMSNorm"
norm.RMSNorm = RMSNorm

local read_rms = arguments.signature("RMSNorm", {
  "normalized_shape: sizes", {"eps: number"}, {"elementwise_affine: flag", true}, {"device: device"}, {"dtype: dtype"},
})

---@param eps number? default: the smallest step of 1 in the dtype that is computed in
function RMSNorm:init(...)
  local shape, eps, affine, device, dtype = read_rms(...)
  self.normalized_shape = type(shape) == "number" and {shape} or shape
  self.eps, self.elementwise_affine = eps, affine
  if affine then self.weight = new(C.empty(self.normalized_shape, {dtype = dtype, device = device})) end
  self:reset_parameters()
end

--- Set the weight to 1.
function RMSNorm:reset_parameters()
  if self.weight then init.ones_(self.weight) end
end

---@param input Tensor [..., normalized_shape]
function RMSNorm:forward(input)
  return C.rms_norm(input, self.normalized_shape, self.weight, self.eps)
end

function RMSNorm:extra_repr()
  return ("%s, eps=%s, elementwise_affine=%s"):format(repr.value(self.normalized_shape),
    self.eps and repr.float(self.eps) or "None", repr.value(self.elementwise_affine))
end

--- Normalise by the squares of neighbouring channels of [N, C, ...]; F.local_response_norm has the formula.
--
--   nn.LocalResponseNorm(2)(images):size(1)  --> 1
local LocalResponseNorm = Module:extend "LocalResponseNorm"
norm.LocalResponseNorm = LocalResponseNorm
LocalResponseNorm.init = arguments.setter("LocalResponseNorm",
  {"size: count", {"alpha: number", 1e-4}, {"beta: number", 0.75}, {"k: number", 1}})

function LocalResponseNorm:forward(input)
  return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)
end

function LocalResponseNorm:extra_repr()
  return ("%d, alpha=%s, beta=%s, k=%s"):format(self.size, repr.float(self.alpha), repr.float(self.beta),
    repr.float(self.k))
end

return norm
