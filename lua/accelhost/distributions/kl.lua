--- The Kullback-Leibler divergence of two distributions.
local C = require "accelhost._C"
local join = require "accelhost.functions.join"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local linalg = require "accelhost.linalg"
local shapes = require "accelhost.distributions.shapes"

local fail, describe = arguments.fail, arguments.describe
local INF = math.huge

local kl = {}

-- class name of p -> class name of q -> fun(p, q)
local rules = {}

local function rule(first, second, compute)
  rules[first] = rules[first] or {}
  rules[first][second] = compute
end

local function filled(value, mask, number)
  return C.where(mask, C.full_like(value, number), value)
end

rule("Bernoulli", "Bernoulli", function(p, q)
  local first = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
  first = filled(filled(first, q.probs:eq(0), INF), p.probs:eq(0), 0)
  local second = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
  return first + filled(filled(second, q.probs:eq(1), INF), p.probs:eq(1), 0)
end)

rule("Categorical", "Categorical", function(p, q)
  local t = p.probs * (p.logits - q.logits)
  return filled(filled(t, q.probs:eq(0):expand(t:shape()), INF), p.probs:eq(0):expand(t:shape()), 0):sum(-1)
end)

rule("OneHotCategorical", "OneHotCategorical", function(p, q)
  return rules.Categorical.Categorical(p._categorical, q._categorical)
end)

rule("Normal", "Normal", function(p, q)
  local ratio = (p.scale / q.scale) ^ 2
  return (ratio + ((p.loc - q.loc) / q.scale) ^ 2 - 1 - ratio:log()) * 0.5
end)

rule("LogNormal", "LogNormal", function(p, q) return rules.Normal.Normal(p, q) end)

rule("Uniform", "Uniform", function(p, q)
  local result = ((q.high - q.low) / (p.high - p.low)):log()
  return filled(result, q.low:gt(p.low):logical_or(q.high:lt(p.high)), INF)
end)

rule("Exponential", "Exponential", function(p, q)
  local ratio = q.rate / p.rate
  return ratio - ratio:log() - 1
end)

rule("Gamma", "Gamma", function(p, q)
  local a, b = p.concentration, q.concentration
  return b * (p.rate / q.rate):log() + b:lgamma() - a:lgamma() + (a - b) * a:digamma()
    + (q.rate - p.rate) * (a / p.rate)
end)

rule("Dirichlet", "Dirichlet", function(p, q)
  local a, b = p.concentration, q.concentration
  local total = a:sum(-1)
  return total:lgamma() - b:sum(-1):lgamma() - (a:lgamma() - b:lgamma()):sum(-1)
    + ((a - b) * (a:digamma() - total:digamma():unsqueeze(-1))):sum(-1)
end)

rule("Beta", "Beta", function(p, q) return rules.Dirichlet.Dirichlet(p._dirichlet, q._dirichlet) end)

rule("MultivariateNormal", "MultivariateNormal", function(p, q)
  local n = p._event_shape[1]
  if n ~= q._event_shape[1] then
    fail("kl_divergence: expected events of one size, got %d and %d", n, q._event_shape[1])
  end
  local a, b = join.broadcast_tensors(p._tril, q._tril)
  local trace = linalg.solve_triangular(b, a, {upper = false}):square():flatten(-2):sum(-1)
  return q:_half_log_det() - p:_half_log_det() + (trace + q:_mahalanobis(q.loc - p.loc) - n) * 0.5
end)

rule("Independent", "Independent", function(p, q)
  if p.reinterpreted_batch_ndims ~= q.reinterpreted_batch_ndims then
    fail("kl_divergence: expected the same reinterpreted_batch_ndims, got %d and %d", p.reinterpreted_batch_ndims,
      q.reinterpreted_batch_ndims)
  end
  return shapes.sum_last(kl.kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
end)

--- Set how the divergence of two classes is computed: fun(p, q) returns a tensor of the batch's shape.
---@param type_p table a class
---@param type_q table a class
---@param fun fun(p: Distribution, q: Distribution): Tensor
kl.register_kl = arguments.checked("register_kl", {
  "type_p: any", "type_q: any", "fun: function",
}, function(type_p, type_q, fun)
  rules[type_p] = rules[type_p] or {}
  rules[type_p][type_q] = fun
end)

-- The rule of the nearest classes: those of q before those of p.
local function find(p, q)
  local first = class.of(p)
  while first do
    local second = class.of(q)
    while second do
      local found = rules[first] and rules[first][second]
        or rules[first._name] and rules[first._name][second._name]
      if found then return found end
      second = rawget(second, "_parent")
    end
    first = rawget(first, "_parent")
  end
end

--- The Kullback-Leibler divergence KL(p || q), of the batch's shape.
--
--   distributions.kl_divergence(distributions.Normal(0, 1), distributions.Normal(1, 1))  --> tensor(0.5000)
---@param p Distribution
---@param q Distribution
---@return Tensor
function kl.kl_divergence(p, q)
  local compute = find(p, q)
  if not compute then
    fail("kl_divergence: expected two distributions of classes that have one (or register_kl), got %s and %s",
      describe(p), describe(q))
  end
  return compute(p, q)
end

return kl
