--- The gamma distribution.
local C = require "accelhost._C"
local autograd = require "accelhost.autograd"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local gradients = require "accelhost.distributions.gamma_gradients"

--- The gamma distribution of a concentration (shape) and a rate (1 / scale).
--
--   distributions.Gamma(2, 4).mean  --> tensor(0.5000)
---@param concentration number|Tensor above 0
---@param rate number|Tensor above 0
local Gamma = Distribution:define("Gamma", {{"concentration", constraints.positive}, {"rate", constraints.positive}})
Gamma.has_rsample = true

local Standard = autograd.Function:extend "standard_gamma"

function Standard.forward(ctx, concentration)
  local drawn = C.standard_gamma(concentration)
  ctx:save_for_backward(drawn, concentration)
  return drawn
end

function Standard.backward(ctx, grad)
  return grad * gradients.standard_gamma(ctx.saved_tensors[2], ctx.saved_tensors[1])
end

function Gamma:_get_mean() return self.concentration / self.rate end
function Gamma:_get_mode() return ((self.concentration - 1) / self.rate):clamp_min(0) end
function Gamma:_get_variance() return self.concentration / self.rate ^ 2 end
function Gamma:_get_support() return constraints.nonnegative end -- luacheck: no self

function Gamma:rsample(...)
  local shape = self:_extended_shape(...)
  return (Standard.apply(self.concentration:expand(shape)) / self.rate:expand(shape)):clamp_min(
    C.dtype.finfo(self.rate.dtype).tiny)
end

function Gamma:log_prob(value)
  self:_check_value("log_prob", value)
  return C.xlogy(self.concentration, self.rate) + C.xlogy(self.concentration - 1, value) - self.rate * value
    - self.concentration:lgamma()
end

function Gamma:entropy()
  local a = self.concentration
  return a - self.rate:log() + a:lgamma() + (1 - a) * a:digamma()
end

return Gamma
