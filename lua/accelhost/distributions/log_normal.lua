--- The log-normal distribution.
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local Normal = require "accelhost.distributions.normal"

--- The distribution of exp(x), x being normal with mean `loc` and standard deviation `scale`.
--
--   distributions.LogNormal(0, 1).mode  --> tensor(0.3679)
---@param scale number|Tensor above 0
local LogNormal = Distribution:define("LogNormal", {{"loc", constraints.real}, {"scale", constraints.positive}})
LogNormal.has_rsample = true

-- The distribution of x.
function LogNormal:_get_base_dist() return Normal(self.loc, self.scale, {validate_args = false}) end
function LogNormal:_get_mean() return (self.loc + self.scale ^ 2 / 2):exp() end
function LogNormal:_get_mode() return (self.loc - self.scale:square()):exp() end
function LogNormal:_get_variance() return (self.scale ^ 2):expm1() * (self.loc * 2 + self.scale ^ 2):exp() end
function LogNormal:_get_support() return constraints.positive end -- luacheck: no self

function LogNormal:sample(...) return self.base_dist:sample(...):exp() end
function LogNormal:rsample(...) return self.base_dist:rsample(...):exp() end

function LogNormal:log_prob(value)
  self:_check_value("log_prob", value)
  local x = value:log()
  return self.base_dist:log_prob(x) - x
end

function LogNormal:cdf(value)
  self:_check_value("cdf", value)
  return self.base_dist:cdf(value:log())
end

function LogNormal:icdf(value) return self.base_dist:icdf(value):exp() end
function LogNormal:entropy() return self.base_dist:entropy() + self.loc end

return LogNormal
