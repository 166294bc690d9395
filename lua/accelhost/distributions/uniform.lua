--- The uniform distribution.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"

--- The uniform distribution from `low` to below `high`.
--
--   distributions.Uniform(0, 4).variance  --> tensor(1.3333)
---@param high number|Tensor above low
local Uniform = Distribution:define("Uniform", {{"low", constraints.real}, {"high", constraints.real}})
Uniform.has_rsample = true

local setup = Distribution._setup

function Uniform:_setup(...)
  setup(self, ...)
  if self._validate_args and not self.low:lt(self.high):all():item() then
    arguments.fail("Uniform: high: expected numbers above low, got others")
  end
end

function Uniform:_get_mean() return (self.high + self.low) / 2 end
function Uniform:_get_mode() return self.high * (0 / 0) end
function Uniform:_get_variance() return (self.high - self.low) ^ 2 / 12 end
function Uniform:_get_support() return constraints.interval(self.low, self.high) end

function Uniform:rsample(...)
  local drawn = C.rand(self:_extended_shape(...), {dtype = self.low.dtype, device = self.low.device})
  return self.low + drawn * (self.high - self.low)
end

function Uniform:log_prob(value)
  self:_check_value("log_prob", value)
  local inside = self.low:le(value):logical_and(self.high:gt(value)):type_as(self.low)
  return inside:log() - (self.high - self.low):log()
end

function Uniform:cdf(value)
  self:_check_value("cdf", value)
  return ((value - self.low) / (self.high - self.low)):clamp(0, 1)
end

function Uniform:icdf(value) return value * (self.high - self.low) + self.low end
function Uniform:entropy() return (self.high - self.low):log() end

return Uniform
