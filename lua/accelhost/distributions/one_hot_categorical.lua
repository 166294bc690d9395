--- The categorical distribution over one-hot vectors.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Categorical = require "accelhost.distributions.categorical"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"

--- Vectors of one 1 and zeros: Categorical, with the class as a position.
--
--   distributions.OneHotCategorical {probs = accelhost.tensor {0, 1}}:sample()  --> tensor([0., 1.])
---@param probs? Tensor [..., classes]
---@param logits? Tensor [..., classes]
---@field probs Tensor
---@field logits Tensor normalised
local OneHotCategorical = Distribution:extend "OneHotCategorical"
OneHotCategorical.has_enumerate_support = true

local read = arguments.signature("OneHotCategorical", {{"probs: tensor"}, {"logits: tensor"}, {"validate_args: flag"}})

function OneHotCategorical:init(...)
  local probs, logits, validate = read(...)
  self._categorical = Categorical(probs, logits, validate)
  self:_setup(self._categorical.batch_shape, {self._categorical._num_events}, validate)
end

function OneHotCategorical:_expand_from(other, shape) self._categorical = other._categorical:expand(shape) end

function OneHotCategorical:_get_probs() return self._categorical.probs end
function OneHotCategorical:_get_logits() return self._categorical.logits end
function OneHotCategorical:_get_mean() return self.probs end
function OneHotCategorical:_get_variance() return self.probs * (1 - self.probs) end
function OneHotCategorical:_get_param_shape() return self._categorical.param_shape end
function OneHotCategorical:_get_support() return constraints.one_hot end -- luacheck: no self

local function one_hot(self, index)
  return F.one_hot(index, self._categorical._num_events):to(self.probs.dtype)
end

function OneHotCategorical:_get_mode() return one_hot(self, self.probs:argmax(-1)) end

function OneHotCategorical:sample(...)
  return one_hot(self, self._categorical:sample(...))
end

function OneHotCategorical:log_prob(value)
  self:_check_value("log_prob", value)
  return self._categorical:log_prob(value:argmax(-1))
end

function OneHotCategorical:entropy() return self._categorical:entropy() end

function OneHotCategorical:_support_values() return one_hot(self, self._categorical:_support_values()) end

function OneHotCategorical:extra_repr() return self._categorical:extra_repr() end

return OneHotCategorical
