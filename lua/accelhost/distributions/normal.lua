--- The normal distribution.
local C = require "accelhost._C"
local create = require "accelhost.functions.create"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"

--- The normal distribution with mean `loc` and standard deviation `scale`.
--
--   distributions.Normal(0, 1):log_prob(accelhost.tensor(0))  --> tensor(-0.9189)
---@param scale number|Tensor above 0
---@param validate_args? boolean default true: check parameters and values
local Normal = Distribution:define("Normal", {{"loc", constraints.real}, {"scale", constraints.positive}})
Normal.has_rsample = true

function Normal:_get_mean() return self.loc end
function Normal:_get_mode() return self.loc end
function Normal:_get_stddev() return self.scale end
function Normal:_get_variance() return self.scale ^ 2 end
function Normal:_get_support() return constraints.real end -- luacheck: no self

function Normal:sample(...)
  local shape = self:_extended_shape(...)
  return C.autograd.no_grad(create.normal, self.loc:expand(shape), self.scale:expand(shape))
end

function Normal:rsample(...)
  local noise = C.empty(self:_extended_shape(...), {dtype = self.loc.dtype, device = self.loc.device}):normal_()
  return self.loc + noise * self.scale
end

function Normal:log_prob(value)
  self:_check_value("log_prob", value)
  return -(value - self.loc) ^ 2 / (self.scale ^ 2 * 2) - self.scale:log() - math.log(math.sqrt(2 * math.pi))
end

function Normal:cdf(value)
  self:_check_value("cdf", value)
  return (((value - self.loc) * self.scale:reciprocal() / math.sqrt(2)):erf() + 1) * 0.5
end

function Normal:icdf(value)
  return self.loc + self.scale * (value * 2 - 1):erfinv() * math.sqrt(2)
end

function Normal:entropy()
  return self.scale:log() + (0.5 + 0.5 * math.log(2 * math.pi))
end

return Normal
