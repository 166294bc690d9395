--- The exponential distribution.
local C = require "accelhost._C"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"

--- The exponential distribution of a rate.
--
--   distributions.Exponential(2).mean  --> tensor(0.5000)
---@param rate number|Tensor above 0
local Exponential = Distribution:define("Exponential", {{"rate", constraints.positive}})
Exponential.has_rsample = true

function Exponential:_get_mean() return self.rate:reciprocal() end
function Exponential:_get_mode() return C.zeros_like(self.rate) end
function Exponential:_get_stddev() return self.rate:reciprocal() end
function Exponential:_get_variance() return self.rate ^ -2 end
function Exponential:_get_support() return constraints.nonnegative end -- luacheck: no self

function Exponential:rsample(...)
  local options = {dtype = self.rate.dtype, device = self.rate.device}
  return C.empty(self:_extended_shape(...), options):exponential_() / self.rate
end

function Exponential:log_prob(value)
  self:_check_value("log_prob", value)
  return self.rate:log() - self.rate * value
end

function Exponential:cdf(value)
  self:_check_value("cdf", value)
  return 1 - (-self.rate * value):exp()
end

function Exponential:icdf(value) return -(-value):log1p() / self.rate end
function Exponential:entropy() return 1 - self.rate:log() end

return Exponential
