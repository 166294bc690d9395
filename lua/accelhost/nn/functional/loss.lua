--- Losses made of ops.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local reduction_of = require "accelhost.nn.functional.reduction"
local warn = require "accelhost.util.warn"

local fail, shape_text, checked, named = arguments.fail, arguments.shape_text, arguments.checked, arguments.named
local reduce, reduce_own, reduction_row = reduction_of.reduce, reduction_of.reduce_own, reduction_of.row
local F = {}

-- Sizes fit that are equal or 1, compared from the last dim on.
local function check_broadcast(what, input, target)
  local a, b = input:shape(), target:shape()
  for k = 0, math.min(#a, #b) - 1 do
    local one, other = a[#a - k], b[#b - k]
    if one ~= other and one ~= 1 and other ~= 1 then
      fail("%s: expected a target of the input's shape %s, got %s", what, shape_text(input), shape_text(target))
    end
  end
end

-- Check the shape of targets. Other shapes broadcast, as in PyTorch, with a warning: that is seldom intended.
local function check_shapes(what, input, target)
  if C.same_shape(input, target) then return end
  check_broadcast(what, input, target)
  warn(("%s: input %s and target %s have different shapes and are broadcast%s"):format(what, shape_text(input),
    shape_text(target), input:numel() == target:numel() and "; input:view_as(target) has the target's" or ""))
end

local function weigh(what, loss, input, weight)
  if not weight then return loss end
  if not C.same_shape(weight, input) then
    fail("%s: weight: expected the input's shape %s, got %s", what, shape_text(input), shape_text(weight))
  end
  return loss * weight
end

-- The mean of weighted elements is over the sum of the weights.
local function reduce_weighted(what, loss, input, weight, reduction)
  loss = weigh(what, loss, input, weight)
  return weight and reduction == "mean" and loss:sum() / weight:sum() or reduce_own(loss, reduction)
end

--- (input - target)^2, times a weight for each element; their mean is over the sum of the weights.
--
--   F.mse_loss(a, b)  --> tensor(9.)
F.mse_loss = named("mse_loss", {
  "input: tensor", "target: tensor", reduction_row, {"weight: tensor"},
}, function(what, input, target, reduction, weight)
  check_shapes(what, input, target)
  return reduce_weighted(what, C.squared_difference(input, target), input, weight, reduction)
end)

--- |input - target|, times a weight for each element; their mean is over the sum of the weights.
--
--   F.l1_loss(a, b)  --> tensor(3.)
F.l1_loss = named("l1_loss", {
  "input: tensor", "target: tensor", reduction_row, {"weight: tensor"},
}, function(what, input, target, reduction, weight)
  check_shapes(what, input, target)
  local difference = input - target
  local loss = difference:abs()
  difference:free()
  return reduce_weighted(what, loss, input, weight, reduction)
end)

--- Quadratic below beta, linear above: d^2 / (2 beta), |d| - beta / 2.
--
--   F.smooth_l1_loss(a, b)  --> tensor(2.5000)
F.smooth_l1_loss = named("smooth_l1_loss", {
  "input: tensor", "target: tensor", reduction_row, {"beta: nonnegative", 1},
}, function(what, input, target, reduction, beta)
  check_shapes(what, input, target)
  local loss = beta == 0 and (input - target):abs() or C.smooth_l1(input, target, beta)
  return reduce_own(loss, reduction)
end)

--- d^2 / 2 below delta, delta (|d| - delta / 2) above, times a weight for each element.
--
--   F.huber_loss(a, b)  --> tensor(2.5000)
F.huber_loss = named("huber_loss", {
  "input: tensor", "target: tensor", reduction_row, {"delta: positive", 1}, {"weight: tensor"},
}, function(what, input, target, reduction, delta, weight)
  check_shapes(what, input, target)
  return reduce_own(weigh(what, C.huber(input, target, delta), input, weight), reduction)
end)

--- target (log target - input); "batchmean" divides the sum by the batch size.
--
--   F.kl_div(accelhost.zeros(2), accelhost.ones(2), {reduction = "sum"})  --> tensor(0.)
F.kl_div = named("kl_div", {
  "input: tensor", "target: tensor", {"reduction: 'none'|'mean'|'sum'|'batchmean'", "mean"},
  {"log_target: flag", false},
}, function(what, input, target, reduction, log_target)
  check_broadcast(what, input, target)
  local loss
  if log_target then
    loss = target:exp() * (target - input)
  else
    local zero = C.eq(target, 0)
    loss = C.where(zero, 0, target * C.where(zero, 1, target):log()) - target * input
  end
  if reduction == "batchmean" then return loss:sum() / (input:dim() > 0 and input:size(0) or 1) end
  return reduce(loss, reduction)
end)

--- exp(x) - target x, the negative log likelihood of a Poisson distribution of rate exp(x), or of rate x without
-- log_input: x - target log(x + eps). `full` adds Stirling's approximation of log(target!) for targets above 1.
--
--   F.poisson_nll_loss(accelhost.zeros(2), accelhost.ones(2))  --> tensor(1.)
---@return userdata # like input, or reduced
F.poisson_nll_loss = checked("poisson_nll_loss", {
  "input: tensor", "target: tensor", {"log_input: flag", true}, {"full: flag", false}, {"eps: number", 1e-8},
  reduction_row,
}, function(input, target, log_input, full, eps, reduction)
  local loss = log_input and input:exp() - target * input or input - target * (input + eps):log()
  if full then
    local large = target:gt(1)
    local t = C.where(large, target, 1)
    loss = loss + C.where(large, t * t:log() - t + (t * (2 * math.pi)):log() * 0.5, 0):to(loss.dtype)
  end
  return reduce(loss, reduction)
end)

-- A variance that broadcasts to the input: of its shape, or without its last dim, or with one dim of size 1.
local function checked_variance(input, var)
  if type(var) == "number" then var = C.full_like(input, var) end
  if var:lt(0):any():item() then fail("gaussian_nll_loss: var: expected no number below 0") end
  if C.same_shape(var, input) then return var end
  local sizes, given = input:shape(), var:shape()
  local differing, ones = 0, 0
  for d = 1, #sizes do
    if given[d] ~= sizes[d] then
      differing = differing + 1
      ones = ones + (given[d] == 1 and 1 or 0)
    end
  end
  if #given == #sizes - 1 and differing == 1 then return var:unsqueeze(-1) end
  if #given == #sizes and differing == 1 and ones == 1 then return var end
  fail("gaussian_nll_loss: var: shape %s does not fit input %s", shape_text(var), shape_text(input))
end

--- (log(var) + (input - target)^2 / var) / 2 with var at least eps; `full` adds log(2 pi) / 2. The variance is a
-- number, or a tensor of the input's shape, of that shape without its last dim, or with one dim of size 1.
--
--   F.gaussian_nll_loss(a, b, accelhost.ones(3))  --> tensor(4.5000)
---@return userdata # like input, or reduced
F.gaussian_nll_loss = checked("gaussian_nll_loss", {
  "input: tensor", "target: tensor", "var: tensor|number", {"full: flag", false}, {"eps: positive", 1e-6},
  reduction_row,
}, function(input, target, var, full, eps, reduction)
  var = checked_variance(input, var):clone()
  C.autograd.no_grad(function() var:clamp_min_(eps) end)
  local difference = input - target
  local loss = (var:log() + difference * difference / var) * 0.5
  if full then loss = loss + 0.5 * math.log(2 * math.pi) end
  return reduce(loss, reduction)
end)

autocast(F, "float32", "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss")

return F
