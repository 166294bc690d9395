--- Normalisation layers.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local fail = arguments.fail
local norm = {}

--- Batch normalisation over all dims but 1. In training it uses the batch's statistics (the biased variance) and moves
-- the running ones (the unbiased variance) by `momentum`; in evaluation it uses the running ones.
---@class BatchNorm: Module
---@field weight table? [num_features]
---@field bias table? [num_features]
---@field running_mean table? [num_features]
---@field running_var table? [num_features]
---@field num_batches_tracked table? 0-dim int64
local BatchNorm = Module:extend "BatchNorm"

local batch_parameters = {
  "num_features: size", {"eps: number", 1e-5}, {"momentum: number|false", 0.1}, {"affine: flag", true},
  {"track_running_stats: flag", true}, {"device: device"}, {"dtype: dtype"},
}

-- momentum = false stands for PyTorch's None: a cumulative average.
function BatchNorm:setup(num_features, eps, momentum, affine, track_running_stats, device, dtype)
  local options = {dtype = dtype, device = device}
  self.num_features, self.eps, self.momentum = num_features, eps, momentum
  self.affine, self.track_running_stats = affine, track_running_stats
  if affine then
    self.weight = new(C.empty({num_features}, options))
    self.bias = new(C.empty({num_features}, options))
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

function BatchNorm:reset_parameters()
  self:reset_running_stats()
  if self.affine then
    init.ones_(self.weight)
    init.zeros_(self.bias)
  end
end

function BatchNorm:forward(input)
  local dims = input:dim()
  if dims ~= self._dims[1] and dims ~= self._dims[2] then
    fail("%s: expected an input of %s dims, got %d", self._name,
      self._dims[2] and self._dims[1] .. " or " .. self._dims[2] or self._dims[1], dims)
  end
  local momentum = self.momentum
  local count = self.training and self.num_batches_tracked
  if count then
    count:add_(1)
    if not momentum then momentum = 1 / count:item() end
  end
  local mean, var = self.running_mean, self.running_var
  return C.batch_norm(input, mean, var, self.weight, self.bias, self.training or mean == nil, momentum or 0, self.eps)
end

function BatchNorm:extra_repr()
  return ("%d, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s"):format(self.num_features,
    repr.float(self.eps), self.momentum and repr.float(self.momentum) or "None", repr.value(self.affine),
    repr.value(self.bias ~= nil), repr.value(self.track_running_stats))
end

--- Over [N, C] or [N, C, L].
---@class BatchNorm1d: BatchNorm
norm.BatchNorm1d = BatchNorm:extend "BatchNorm1d"
norm.BatchNorm1d._dims = {2, 3}
local read1 = arguments.signature("BatchNorm1d", batch_parameters)
function norm.BatchNorm1d:init(...)
  self:setup(read1(...))
end

--- Over [N, C, H, W].
---@class BatchNorm2d: BatchNorm
norm.BatchNorm2d = BatchNorm:extend "BatchNorm2d"
norm.BatchNorm2d._dims = {4}
local read2 = arguments.signature("BatchNorm2d", batch_parameters)
function norm.BatchNorm2d:init(...)
  self:setup(read2(...))
end

--- Normalise over the last dims, `normalized_shape`.
--
--   nn.LayerNorm(768)        nn.LayerNorm({16, 16}, {eps = 1e-6})
---@class LayerNorm: Module
---@field weight table? [normalized_shape]
---@field bias table? [normalized_shape]
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

function LayerNorm:reset_parameters()
  if self.weight then init.ones_(self.weight) end
  if self.bias then init.zeros_(self.bias) end
end

---@param input table [..., normalized_shape]
function LayerNorm:forward(input)
  return C.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
end

function LayerNorm:extra_repr()
  return ("%s, eps=%s, elementwise_affine=%s, bias=%s"):format(repr.value(self.normalized_shape),
    repr.float(self.eps), repr.value(self.elementwise_affine), repr.value(self.bias ~= nil))
end

--- Normalise the channels of each of `num_groups` groups together.
---@class GroupNorm: Module
---@field weight table? [num_channels]
---@field bias table? [num_channels]
local GroupNorm = Module:extend "GroupNorm"
norm.GroupNorm = GroupNorm

local read_group = arguments.signature("GroupNorm", {
  "num_groups: count", "num_channels: size", {"eps: number", 1e-5}, {"affine: flag", true}, {"device: device"},
  {"dtype: dtype"},
})

function GroupNorm:init(...)
  local groups, channels, eps, affine, device, dtype = read_group(...)
  if channels % groups ~= 0 then
    fail("GroupNorm: num_channels %d must be divisible by num_groups %d", channels, groups)
  end
  local options = {dtype = dtype, device = device}
  self.num_groups, self.num_channels, self.eps, self.affine = groups, channels, eps, affine
  if affine then
    self.weight = new(C.empty({channels}, options))
    self.bias = new(C.empty({channels}, options))
    init.ones_(self.weight)
    init.zeros_(self.bias)
  end
end

---@param input table [N, num_channels, ...]
function GroupNorm:forward(input)
  return C.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
end

function GroupNorm:extra_repr()
  return ("%d, %d, eps=%s, affine=%s, bias=%s"):format(self.num_groups, self.num_channels,
    repr.float(self.eps), repr.value(self.affine), repr.value(self.bias ~= nil))
end

return norm
