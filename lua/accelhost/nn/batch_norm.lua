--- Batch and instance normalisation.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local fail = arguments.fail
local norm = {}

--- Batch normalisation over all dims but 1. In training it uses the batch's statistics (the biased variance) and moves
-- the running ones (the unbiased variance) by `momentum`; in evaluation it uses the running ones.
---@field weight Tensor? [num_features]
---@field bias Tensor? [num_features]
---@field running_mean Tensor? [num_features]
---@field running_var Tensor? [num_features]
---@field num_batches_tracked Tensor? 0-dim int64
local BatchNorm = Module:extend "BatchNorm"
norm.BatchNorm = BatchNorm

local batch_parameters = {
  "num_features: size", {"eps: number", 1e-5}, {"momentum: number|false", 0.1}, {"affine: flag", true},
  {"track_running_stats: flag", true}, {"device: device"}, {"dtype: dtype"}, {"bias: flag", true},
}

-- momentum = false is PyTorch's None: a cumulative average.
function BatchNorm:setup(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)
  local options = {dtype = dtype, device = device}
  self.num_features, self.eps, self.momentum = num_features, eps, momentum
  self.affine, self.track_running_stats = affine, track_running_stats
  if affine then
    self.weight = new(C.empty({num_features}, options))
    if bias then self.bias = new(C.empty({num_features}, options)) end
  end
  if track_running_stats then
    self:register_buffer("running_mean", C.zeros({num_features}, options))
    self:register_buffer("running_var", C.ones({num_features}, options))
    self:register_buffer("num_batches_tracked", C.tensor(0, {dtype = "int64", device = device}))
  end
  self:reset_parameters()
end

--- Set the running mean to 0, the variance to 1 and the count of batches to 0, if they are tracked.
function BatchNorm:reset_running_stats()
  if self.track_running_stats then
    self.running_mean:zero_()
    self.running_var:fill_(1)
    self.num_batches_tracked:zero_()
  end
end

--- Set the weight to 1, the bias to 0, and the running statistics to their beginning.
function BatchNorm:reset_parameters()
  self:reset_running_stats()
  if self.affine then
    init.ones_(self.weight)
    if self.bias then init.zeros_(self.bias) end
  end
end

local function check_dims(self, input)
  local dims, first, second = input:dim(), self._dims[1], self._dims[2]
  if dims ~= first and dims ~= second then
    fail("%s: expected an input of %s dims, got %d", self._name, second and first .. " or " .. second or first, dims)
  end
end

--- Count a batch of training; return the share by which the running statistics move towards it.
---@return number
function BatchNorm:next_momentum()
  local momentum, count = self.momentum, self.training and self.num_batches_tracked
  if count then
    count:add_(1)
    if not momentum then momentum = 1 / count:item() end
  end
  return momentum or 0
end

--- The input with the batch's statistics in training, with the running ones in evaluation.
---@param input Tensor [N, num_features, ...]
---@return Tensor like input
function BatchNorm:normalise(input)
  local mean, var = self.running_mean, self.running_var
  return C.batch_norm(input, mean, var, self.weight, self.bias, self.training or mean == nil, self:next_momentum(),
    self.eps)
end

function BatchNorm:forward(input)
  check_dims(self, input)
  return self:normalise(input)
end

--- The forward's result, plus `other` where it is given, and then relu.
---@param input Tensor [N, num_features, ...]
---@param other? Tensor
---@return Tensor like input
function BatchNorm:normalise_relu(input, other)
  check_dims(self, input)
  local mean, var = self.running_mean, self.running_var
  return C.batch_norm_relu(input, mean, var, self.weight, self.bias, self.training or mean == nil,
    self:next_momentum(), self.eps, other)
end

function BatchNorm:extra_repr()
  return ("%d, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s"):format(self.num_features,
    repr.float(self.eps), self.momentum and repr.float(self.momentum) or "None", repr.value(self.affine),
    repr.value(self.bias ~= nil), repr.value(self.track_running_stats))
end

--- A class over inputs of these numbers of dims.
local function class(name, parent, dims, parameters)
  local Class = parent:extend(name)
  local read = arguments.signature(name, parameters)
  Class._dims = dims
  function Class:init(...)
    self:setup(read(...))
  end
  return Class
end

--- Batch normalisation over [N, C] or [N, C, L].
--
--   nn.BatchNorm1d(4)(x):size(1)  --> 4
norm.BatchNorm1d = class("BatchNorm1d", BatchNorm, {2, 3}, batch_parameters)

--- Batch normalisation over [N, C, H, W].
--
--   nn.BatchNorm2d(1)(images):size(1)  --> 1
norm.BatchNorm2d = class("BatchNorm2d", BatchNorm, {4}, batch_parameters)

--- Batch normalisation over [N, C, D, H, W].
--
--   nn.BatchNorm3d(1)(images:unsqueeze(2)):dim()  --> 5
norm.BatchNorm3d = class("BatchNorm3d", BatchNorm, {5}, batch_parameters)

--- Instance normalisation: every channel of every sample on its own, with the sample's statistics unless running ones
-- are tracked and the module is in evaluation mode.
local InstanceNorm = BatchNorm:extend "InstanceNorm"

local instance_parameters = {
  "num_features: size", {"eps: number", 1e-5}, {"momentum: number|false", 0.1}, {"affine: flag", false},
  {"track_running_stats: flag", false}, {"device: device"}, {"dtype: dtype"}, {"bias: flag", true},
}

function InstanceNorm:forward(input)
  check_dims(self, input)
  local batched = input:dim() == self._dims[2]
  local channels = input:size(batched and 1 or 0)
  if channels ~= self.num_features and (self.affine or self.track_running_stats) then
    fail("%s: expected an input of %d channels, got %d", self._name, self.num_features, channels)
  end
  local result = F.instance_norm(batched and input or input:unsqueeze(0), self.running_mean, self.running_var,
    self.weight, self.bias, self.training or not self.track_running_stats, self.momentum or 0, self.eps)
  return batched and result or result:squeeze(0)
end

--- Instance normalisation over [N, C, L] or [C, L].
--
--   nn.InstanceNorm1d(1)(images[{ {}, {}, 0 }]):dim()  --> 3
norm.InstanceNorm1d = class("InstanceNorm1d", InstanceNorm, {2, 3}, instance_parameters)

--- Instance normalisation over [N, C, H, W] or [C, H, W].
--
--   nn.InstanceNorm2d(1)(images):size(1)  --> 1
norm.InstanceNorm2d = class("InstanceNorm2d", InstanceNorm, {3, 4}, instance_parameters)

--- Instance normalisation over [N, C, D, H, W] or [C, D, H, W].
--
--   nn.InstanceNorm3d(1)(images:unsqueeze(2)):dim()  --> 5
norm.InstanceNorm3d = class("InstanceNorm3d", InstanceNorm, {4, 5}, instance_parameters)

return norm
