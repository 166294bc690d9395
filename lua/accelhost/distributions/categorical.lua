--- The categorical distribution.
local C = require "accelhost._C"
local join = require "accelhost.functions.join"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local dims = require "accelhost.util.dims"
local probabilities = require "accelhost.distributions.probabilities"
local shapes = require "accelhost.distributions.shapes"

local fail = arguments.fail

--- Class numbers from 0, with the probabilities (normalised) or logits along the last dim.
--
--   local policy = distributions.Categorical {logits = accelhost.zeros(3, 4)}
--   local action = policy:sample()
--   print(action:size(0), policy:log_prob(action):dim(), policy:entropy():dim())  --> 3  1  1
---@param probs? Tensor [..., classes]
---@param logits? Tensor [..., classes]
---@field probs Tensor
---@field logits Tensor normalised
local Categorical = Distribution:extend "Categorical"
Categorical._parameters = {{"_probs", constraints.simplex}, {"_logits", constraints.real_vector}}
Categorical.has_enumerate_support = true
probabilities.add(Categorical, false)

local read = arguments.signature("Categorical", {{"probs: tensor"}, {"logits: tensor"}, {"validate_args: flag"}})

function Categorical:init(...)
  local probs, logits, validate = read(...)
  probabilities.check_one("Categorical", probs, logits)
  local given, name = probs or logits, probs and "probs" or "logits"
  if given:dim() < 1 then fail("Categorical: %s: expected a tensor of at least 1 dim, got shape ()", name) end
  self:_set_param(probs and probs / probs:sum(-1, true) or logits - logits:logsumexp(-1, true), probs ~= nil)
  self._num_events = given:size(-1)
  self:_setup(shapes.part(given:shape(), 1, given:dim() - 1), {}, validate)
end

function Categorical:_expand_from(other, shape)
  self._num_events = other._num_events
  self:_set_param(other._param:expand(dims.concat(shape, {other._num_events})), other._is_probs)
end

function Categorical:_get_mean() return self.probs:new_full(self._batch_shape, 0 / 0) end
Categorical._get_variance = Categorical._get_mean
function Categorical:_get_mode() return self.probs:argmax(-1) end
function Categorical:_get_param_shape() return self._param:shape() end
function Categorical:_get_support() return constraints.integer_interval(0, self._num_events - 1) end

function Categorical:sample(...)
  local shape, sample_shape = self:_extended_shape(...)
  return C.autograd.no_grad(function()
    local rows = self.probs:reshape(-1, self._num_events)
    return rows:multinomial(dims.product(sample_shape), true):t():reshape(shape)
  end)
end

function Categorical:log_prob(value)
  self:_check_value("log_prob", value)
  local index, logits = join.broadcast_tensors(value:long():unsqueeze(-1), self.logits)
  return logits:gather(-1, index:narrow(-1, 0, 1)):squeeze(-1)
end

function Categorical:entropy()
  local logits = self.logits
  return -(logits:clamp_min(C.dtype.finfo(logits.dtype).min) * self.probs):sum(-1)
end

function Categorical:_support_values()
  return C.arange(self._num_events, {dtype = "int64", device = self._param.device})
end

return Categorical
