--- Layers that infer the size of their input from the first batch.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local batch_norm = require "accelhost.nn.batch_norm"
local conv = require "accelhost.nn.conv"
local hooks = require "accelhost.nn.hooks"
local linear = require "accelhost.nn.linear"
local skip = require "accelhost.nn.skip"

local fail = arguments.fail
local lazy = {}

-- Give a lazy layer its size: parameters and buffers get their shapes, as the same tensors, so that an optimizer that
-- has them keeps them, and the module becomes an instance of the plain class.
local function materialise(self, Plain, size_field, size)
  local given = rawget(self, "_given")
  local sized = skip.make(Plain, size, unpack(given, 1, given.n))
  for _, names in ipairs {sized._parameters, sized._buffers} do
    for _, name in ipairs(names) do
      local tensor = self[name]
      local options = {dtype = tensor.dtype, device = tensor.device}
      C.set_data(tensor, C.zeros(sized[name]:shape(), options))
    end
  end
  hooks.remove(self, "_load_state_dict_pre_hooks", getmetatable(self)._on_load)
  rawset(self, "_given", nil)
  setmetatable(self, Plain)
  self[size_field] = size
end

-- The signature of the plain class without its first parameter, the size of the input.
---@param defaults table<string, any> those that differ
local function parameters_of(Plain, defaults)
  local parameters = {}
  for i, row in ipairs(arguments.signatures[Plain._name]) do
    local text = ("%s: %s"):format(row.name, row.kind.name)
    local default = defaults[row.name]
    if default == nil then default = row.default end
    if i > 1 then parameters[#parameters + 1] = row.required and text or {text, default} end
  end
  return parameters
end

--- Make the lazy class of a plain one.
---@param size_field string the field of the size that is inferred
---@param size_of fun(input: Tensor, name: string): integer the size, of the first input
---@param size_in fun(self: Module, tensor: Tensor): integer the size, of the weight or running mean of a state that is
--- loaded before the first batch
---@param defaults table<string, any>? arguments with other defaults than the plain class's
local function define(Plain, size_field, size_of, size_in, defaults)
  local name = "Lazy" .. Plain._name
  local Class = Plain:extend(name)
  local parameters = parameters_of(Plain, defaults or {})
  local read = arguments.signature(name, parameters)

  function Class._on_load(self, state, prefix)
    local tensor = state[prefix .. "weight"] or state[prefix .. "running_mean"]
    if C.is_tensor(tensor) and tensor:numel() > 0 then materialise(self, Plain, size_field, size_in(self, tensor)) end
  end

  function Class:init(...)
    local given = {n = #parameters, read(...)}
    skip.make(function() Plain.init(self, 0, unpack(given, 1, given.n)) end)
    for _, tensor in ipairs(self:parameters()) do C.autograd.no_grad(tensor.zero_, tensor) end
    rawset(self, "_given", given)
    self:register_load_state_dict_pre_hook(Class._on_load)
  end

  --- Are the parameters still without sizes?
  function Class.has_uninitialized_params() return true end

  --- Set the sizes by the first input, draw the parameters and compute as the plain layer.
  ---@param input Tensor
  function Class:forward(input, ...)
    if not C.is_tensor(input) then fail("%s: expected a tensor, got %s", name, arguments.describe(input)) end
    materialise(self, Plain, size_field, size_of(input, name))
    self:reset_parameters()
    return Plain.forward(self, input, ...)
  end

  lazy[name] = Class
end

-- The channels of an input [N, C, sizes...] or [C, sizes...] with `dims` sizes.
local function channels(dims)
  return function(input, name)
    local given = input:dim()
    if given ~= dims + 1 and given ~= dims + 2 then
      fail("%s: expected an input of %d or %d dims, got shape %s", name, dims + 1, dims + 2,
        arguments.shape_text(input))
    end
    return input:size(given - dims - 1)
  end
end

local function second(input, name)
  if input:dim() < 2 then
    fail("%s: expected an input of at least 2 dims, got shape %s", name, arguments.shape_text(input))
  end
  return input:size(1)
end

local function last(input, name)
  if input:dim() == 0 then fail("%s: expected an input of at least 1 dim, got a 0-dim one", name) end
  return input:size(-1)
end

local function first_size(_, tensor) return tensor:size(0) end

--- A Linear that infers in_features from the first input, and becomes the plain layer.
--
--   local layer = nn.LazyLinear(2)
--   layer(x):size(1)    --> 2
--   layer:class_name()  --> Linear
---@names LazyLinear
define(linear.Linear, "in_features", last, function(_, weight) return weight:size(1) end)

--- A convolution that infers in_channels from the first input, and becomes the plain layer.
--
--   nn.LazyConv2d(4, 3)(images):size(1)  --> 4
---@names LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
for dims = 1, 3 do
  define(conv["Conv" .. dims .. "d"], "in_channels", channels(dims), function(self, weight)
    return weight:size(1) * self.groups
  end)
  define(conv["ConvTranspose" .. dims .. "d"], "in_channels", channels(dims), first_size)
end

--- A normalisation that infers num_features from the first input, and becomes the plain layer. The instance norms have
--- affine = true and track_running_stats = true by default, as in PyTorch.
--
--   nn.LazyBatchNorm1d()(x):size(1) == x:size(1)  --> true
---@names LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
for dims = 1, 3 do
  define(batch_norm["BatchNorm" .. dims .. "d"], "num_features", second, first_size)
  define(batch_norm["InstanceNorm" .. dims .. "d"], "num_features", channels(dims), first_size,
    {affine = true, track_running_stats = true})
end

return lazy
