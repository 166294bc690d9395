--- The base of probability distributions.
--
-- A class calls self:_setup in init and defines rsample or sample, log_prob, and `_get_NAME` for each computed field
-- (mean, variance, ...). `_parameters` lists its parameters with their constraints; `_get_support` returns that of a
-- sample, `_support_values` all values of a discrete one [n, event_shape]. `_expand_from(other, shape)` sets the
-- parameters to those of another object, expanded to a batch shape.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local constraints = require "accelhost.distributions.constraints"
local dims = require "accelhost.util.dims"
local shapes = require "accelhost.distributions.shapes"

local fail, describe = arguments.fail, arguments.describe

--- The base of distributions. A distribution of your own extends it, calls self:_setup(batch_shape, event_shape,
--- validate_args) in init, and defines rsample(sample_shape), log_prob(value) and _get_mean(), ... for its fields.
--
--   local d = accelhost.distributions.Normal(accelhost.zeros(2), 1)
--   d:log_prob(accelhost.zeros(2))  --> tensor([-0.9189, -0.9189])
---@field batch_shape integer[]
---@field event_shape integer[]
---@field mean Tensor
---@field mode Tensor
---@field variance Tensor
---@field stddev Tensor
---@field has_rsample boolean
local Distribution = class.new "Distribution"
Distribution.has_rsample = false
Distribution._validate_args = true
Distribution._parameters = {}

local function known_names(self, made)
  local names = {}
  for name in next, self do names[#names + 1] = name end
  while made do
    for name in pairs(made) do names[#names + 1] = name:match "^_get_(.*)" or name:match "^%a.*" end
    made = rawget(made, "_parent")
  end
  return names
end

function Distribution._make_index(made)
  return function(self, key)
    local value = made[key]
    if value ~= nil or type(key) ~= "string" then return value end
    local get = made["_get_" .. key]
    if get then return get(self) end
    if key:find "^_" then return nil end
    fail("%s has no field or method '%s'%s", made._name, key, arguments.did_you_mean(key, known_names(self, made)))
  end
end
Distribution.__index = Distribution._make_index(Distribution)

--- Turn the check of arguments and values on or off, for distributions without validate_args.
---@param value boolean
function Distribution.set_default_validate_args(value)
  Distribution._validate_args = arguments.check("set_default_validate_args", "value", "flag", value)
end

-- Store the shapes, and check the parameters that were assigned to fields.
function Distribution:_setup(batch_shape, event_shape, validate_args)
  self._batch_shape, self._event_shape = dims.concat(batch_shape), dims.concat(event_shape or {})
  if validate_args ~= nil then self._validate_args = validate_args end
  if not self._validate_args then return end
  for _, row in ipairs(self._parameters) do
    local name, constraint = row[1], row[2]
    local value = rawget(self, name)
    if value ~= nil and not constraints.holds(constraint, value) then
      fail("%s: %s: expected %s, got %s", self._name, name, constraint.text,
        value:numel() == 1 and tostring(value) or ("a tensor of shape %s with others in it"):format(
          arguments.shape_text(value)))
    end
  end
end

function Distribution:_get_batch_shape() return dims.concat(self._batch_shape) end
function Distribution:_get_event_shape() return dims.concat(self._event_shape) end
function Distribution:_get_stddev() return self.variance:sqrt() end

for _, name in ipairs {"mean", "mode", "variance", "support"} do
  Distribution["_get_" .. name] = function(self) fail("%s has no %s", self._name, name) end
end

-- Return the shape of the result of sample(...), and the sample shape.
Distribution._extended_shape = arguments.method("sample", {{"sample_shape: sizes", {}}}, function(self, shape)
  if type(shape) == "number" then shape = {shape} end
  return dims.concat(shape, self._batch_shape, self._event_shape), shape
end)

--- Samples, without gradients: [sample_shape, batch_shape, event_shape].
--
--   accelhost.distributions.Uniform(0, 1):sample {2, 3}:size(1)  --> 3
---@param sample_shape? integer[] default {}: one
---@return Tensor
function Distribution:sample(...)
  return C.autograd.no_grad(self.rsample, self, ...)
end

--- Samples through which gradients reach the parameters, where the distribution has such (has_rsample).
---@param sample_shape? integer[]
---@return Tensor
function Distribution:rsample(...) -- luacheck: ignore
  fail("%s has no rsample: its samples have no gradient with respect to its parameters; use sample and log_prob",
    self._name)
end

local function absent(self, text)
  fail("%s has no %s", self._name, text)
end

--- The logarithm of the density, or of the probability, of values.
---@param value Tensor [..., batch_shape, event_shape]
---@return Tensor [..., batch_shape]
function Distribution:log_prob(value) -- luacheck: ignore
  absent(self, "log_prob(value)")
end

--- The probability of values up to these, where the distribution has a formula for it.
---@param value Tensor
---@return Tensor
function Distribution:cdf(value) -- luacheck: ignore
  absent(self, "cdf(value)")
end

--- The inverse of cdf, where the distribution has a formula for it.
---@param value Tensor probabilities
---@return Tensor
function Distribution:icdf(value) -- luacheck: ignore
  absent(self, "icdf(value)")
end

--- The entropy, in nats.
---@return Tensor # of the batch's shape
function Distribution:entropy()
  absent(self, "entropy()")
end

--- All values of a discrete distribution, along a new dim 0.
---@param expand? boolean default true: to the batch shape
---@return Tensor
function Distribution:enumerate_support(expand)
  if not self._support_values then absent(self, "enumerate_support()") end
  local values = self:_support_values()
  local sizes = {values:size(0)}
  for i = 1, #self._batch_shape do sizes[i + 1] = 1 end
  values = values:view(dims.concat(sizes, self._event_shape))
  return expand == false and values or values:expand(dims.concat({sizes[1]}, self._batch_shape, self._event_shape))
end

local read_expand = arguments.signature("expand", {"batch_shape: sizes"})

--- The same distribution with another batch shape, to which its own is expanded.
---@return Distribution
function Distribution:expand(...)
  if not self._expand_from then absent(self, "expand(batch_shape)") end
  local shape = read_expand(...)
  if type(shape) == "number" then shape = {shape} end
  local made = self._class:_blank()
  made._batch_shape, made._event_shape = dims.concat(shape), self._event_shape
  made._validate_args = self._validate_args
  made:_expand_from(self, shape)
  return made
end

--- exp(entropy()).
---@return Tensor
function Distribution:perplexity()
  return self:entropy():exp()
end

-- Raise, where arguments are checked, unless a value can be a sample.
function Distribution:_check_value(what, value)
  arguments.check(self._name .. ":" .. what, "value", "tensor", value)
  if not self._validate_args then return value end
  local shape, wanted = value:shape(), dims.concat(self._batch_shape, self._event_shape)
  for i = 0, math.max(#wanted, #self._event_shape) - 1 do
    local size, other = shape[#shape - i], wanted[#wanted - i]
    local fits = size == other or (i >= #self._event_shape and (size == nil or size == 1 or other == 1))
    if not fits then
      fail("%s:%s: value: expected a shape that fits %s (batch and event), got %s", self._name, what,
        arguments.sizes_text(wanted), arguments.sizes_text(shape))
    end
  end
  local support = self.support
  if not constraints.holds(support, value) then
    fail("%s:%s: value: expected %s, got %s", self._name, what, support.text,
      value:numel() == 1 and tostring(value) or describe(value) .. " with others in it")
  end
  return value
end

function Distribution:extra_repr()
  local parts = {}
  for _, row in ipairs(self._parameters) do
    local value = rawget(self, row[1])
    if value then
      local text = shapes.parameter_text(value)
      parts[#parts + 1] = row[1] .. ": " .. text
    end
  end
  return table.concat(parts, ", ")
end

--- Make a class whose parameters are broadcast to one shape, that of a batch: those of `names` are numbers or tensors.
--
--   local Laplace = distributions.Distribution:define("Laplace", {{"loc", constraints.real}, ...})
---@param parameters table[] {name, constraint}
---@return table class
function Distribution.define(parent, name, parameters)
  local made, rows = parent:extend(name), {}
  for i, row in ipairs(parameters) do rows[i] = row[1] .. ": number|tensor" end
  rows[#rows + 1] = {"validate_args: flag"}
  local read = arguments.signature(name, rows)
  made._parameters = parameters

  function made:init(...)
    local values = {read(...)}
    local tensors = {shapes.broadcast(unpack(values, 1, #parameters))}
    for i, row in ipairs(parameters) do self[row[1]] = tensors[i] end
    self:_setup(tensors[1]:shape(), {}, values[#parameters + 1])
  end

  function made:_expand_from(other, shape)
    for _, row in ipairs(parameters) do self[row[1]] = other[row[1]]:expand(shape) end
  end

  return made
end

return Distribution
