--- Losses made of ops.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local warn = require "accelhost.util.warn"

local signature = arguments.signature
local F = {}

local reduction_row = {"reduction: 'none'|'mean'|'sum'", "mean"}

local function reduce(loss, reduction)
  if reduction == "mean" then return loss:mean() end
  if reduction == "sum" then return loss:sum() end
  return loss
end

-- Targets of another shape broadcast, as in PyTorch, which is seldom what was meant.
local function check_shapes(what, input, target)
  if C.same_shape(input, target) then return end
  warn(("%s: input (%s) and target (%s) have different shapes and are broadcast"):format(what,
    table.concat(input:shape(), ", "), table.concat(target:shape(), ", ")))
end

local read_mse = signature("mse_loss", {"input: tensor", "target: tensor", reduction_row})
--- (input - target)^2.
function F.mse_loss(...)
  local input, target, reduction = read_mse(...)
  check_shapes("mse_loss", input, target)
  local difference = input - target
  return reduce(difference * difference, reduction)
end

local read_l1 = signature("l1_loss", {"input: tensor", "target: tensor", reduction_row})
--- |input - target|.
function F.l1_loss(...)
  local input, target, reduction = read_l1(...)
  check_shapes("l1_loss", input, target)
  return reduce((input - target):abs(), reduction)
end

local read_smooth = signature("smooth_l1_loss",
  {"input: tensor", "target: tensor", reduction_row, {"beta: nonnegative", 1}})
--- Quadratic below beta, linear above: d^2 / (2 beta), |d| - beta / 2.
function F.smooth_l1_loss(...)
  local input, target, reduction, beta = read_smooth(...)
  check_shapes("smooth_l1_loss", input, target)
  local loss = beta == 0 and (input - target):abs() or C.smooth_l1(input, target, beta)
  return reduce(loss, reduction)
end

local read_huber = signature("huber_loss",
  {"input: tensor", "target: tensor", reduction_row, {"delta: positive", 1}})
--- d^2 / 2 below delta, delta (|d| - delta / 2) above.
function F.huber_loss(...)
  local input, target, reduction, delta = read_huber(...)
  check_shapes("huber_loss", input, target)
  return reduce(C.huber(input, target, delta), reduction)
end

local read_kl = signature("kl_div", {
  "input: tensor", "target: tensor", {"reduction: 'none'|'mean'|'sum'|'batchmean'", "mean"},
  {"log_target: flag", false},
})
--- target (log target - input); "batchmean" divides the sum by the batch size.
function F.kl_div(...)
  local input, target, reduction, log_target = read_kl(...)
  local loss
  if log_target then
    loss = target:exp() * (target - input)
  else
    local zero = C.eq(target, 0)
    loss = C.where(zero, 0, target * C.where(zero, 1, target):log()) - target * input
  end
  if reduction == "batchmean" then return loss:sum() / (input:dim() > 0 and input:size(0) or 1) end
  return reduce(loss, reduction)
end

return F
