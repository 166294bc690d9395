--- The Bernoulli distribution.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local probabilities = require "accelhost.distributions.probabilities"
local shapes = require "accelhost.distributions.shapes"

--- 1 with a probability, else 0: of `probs`, or of `logits`, whose sigmoid it is.
--
--   distributions.Bernoulli {logits = 0}.mean  --> tensor(0.5000)
---@field probs Tensor
---@field logits Tensor
local Bernoulli = Distribution:extend "Bernoulli"
Bernoulli._parameters = {{"_probs", constraints.unit_interval}, {"_logits", constraints.real}}
Bernoulli.has_enumerate_support = true
probabilities.add(Bernoulli, true)

local read = arguments.signature("Bernoulli", {{"probs: number|tensor"}, {"logits: number|tensor"},
  {"validate_args: flag"}})

function Bernoulli:init(...)
  local probs, logits, validate = read(...)
  probabilities.check_one("Bernoulli", probs, logits)
  local value = shapes.broadcast(probs or logits)
  self:_set_param(value, probs ~= nil)
  self:_setup(value:shape(), {}, validate)
end

function Bernoulli:_expand_from(other, shape) self:_set_param(other._param:expand(shape), other._is_probs) end

function Bernoulli:_get_mean() return self.probs end
function Bernoulli:_get_variance() return self.probs * (1 - self.probs) end
function Bernoulli:_get_support() return constraints.boolean end -- luacheck: no self
function Bernoulli:_get_param_shape() return self._param:shape() end

--- 1 or 0, nan where both are as likely.
function Bernoulli:_get_mode()
  local probs = self.probs
  return C.where(probs:eq(0.5), C.full_like(probs, 0 / 0), probs:ge(0.5):to(probs.dtype))
end

function Bernoulli:sample(...)
  return C.autograd.no_grad(C.bernoulli, self.probs:expand((self:_extended_shape(...))))
end

function Bernoulli:log_prob(value)
  self:_check_value("log_prob", value)
  local logits, target = shapes.broadcast(self.logits, value)
  return -F.binary_cross_entropy_with_logits(logits, target:to(logits.dtype), {reduction = "none"})
end

function Bernoulli:entropy()
  return F.binary_cross_entropy_with_logits(self.logits, self.probs, {reduction = "none"})
end

function Bernoulli:_support_values()
  return C.arange(2, {dtype = self._param.dtype, device = self._param.device})
end

return Bernoulli
