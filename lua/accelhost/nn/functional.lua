--- accelhost.nn.functional: functions without state. Names of the op table marked functional come from there; those
-- below are compositions of ops. Options are positional in PyTorch's order or named in one trailing table.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"
local warn = require "accelhost.util.warn"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local F = {}

-- Activations.

local function unary(name, fn)
  local read = signature(name, {"input: tensor"})
  F[name] = function(...) return fn((read(...))) end
end

--- min(max(x, 0), 6).
unary("relu6", function(input) return C.hardtanh(input, 0, 6) end)

--- log(sigmoid(x)).
unary("logsigmoid", function(input) return -C.softplus(-input) end)

--- x / (1 + |x|).
unary("softsign", function(input) return input / (C.abs(input) + 1) end)

--- x * tanh(softplus(x)); of halves in float32, where x times a gradient may be beyond a half.
unary("mish", function(input)
  local half = input.dtype == "float16" or input.dtype == "bfloat16"
  local x = half and input:float() or input
  local result = x * C.tanh(C.softplus(x))
  return half and result:to(input.dtype) or result
end)

--- Scaled ELU.
unary("selu", function(input)
  return C.elu(input, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946
end)

local read_gumbel = signature("gumbel_softmax",
  {"logits: tensor", {"tau: positive", 1}, {"hard: flag", false}, {"dim: integer", -1}})
--- A sample of the Gumbel-softmax distribution; with hard = true one-hot, with the soft sample's gradient.
function F.gumbel_softmax(...)
  local logits, tau, hard, dim = read_gumbel(...)
  local noise = C.autograd.no_grad(function() return -C.empty_like(logits):exponential_():log_() end)
  local soft = C.softmax((logits + noise) / tau, dim)
  if not hard then return soft end
  local index = soft:argmax(dim, true)
  local one = C.zeros_like(logits):scatter_(dim, index, 1)
  return one - soft:detach() + soft
end

-- Dropout of whole channels.

--- `unbatched`: the number of dims of an input whose first dim is the channel; otherwise the second is.
local function channel_dropout(what, low, high, unbatched)
  local read = signature(what,
      {"input: tensor", {"p: probability", 0.5}, {"training: flag", true}, {"inplace: flag", false}})
  return function(...)
    local input, p, training, inplace = read(...)
    if input:dim() < low or input:dim() > high then
      fail("%s: expected an input of %d or %d dims, got %d", what, low, high, input:dim())
    end
    if not training or p == 0 then return input end
    local sizes = input:shape()
    for d = input:dim() == unbatched and 2 or 3, input:dim() do sizes[d] = 1 end
    local keep = C.dropout(input:new_ones(sizes), p, true)
    return inplace and input:mul_(keep) or input * keep
  end
end

--- Zero whole channels of [N, C, L] or [C, L].
F.dropout1d = channel_dropout("dropout1d", 2, 3, 2)
--- Zero whole channels of [N, C, H, W]. As in PyTorch, three dims are [N, C, L].
F.dropout2d = channel_dropout("dropout2d", 3, 4)

-- Distances, products, padding.

local read_normalize = signature("normalize",
  {"input: tensor", {"p: number", 2}, {"dim: integer", 1}, {"eps: number", 1e-12}})
--- input / max(|input|_p, eps) along a dim.
function F.normalize(...)
  local input, p, dim, eps = read_normalize(...)
  return input / C.norm(input, p, dim, true):clamp_min(eps)
end

-- x over its norm, which is taken for at least eps; the gradient is that of the norm itself.
local function unit(x, dim, eps)
  local length = C.norm(x, 2, dim, true):clone()
  C.autograd.no_grad(function() length:clamp_min_(eps) end)
  return x / length
end

local read_cosine = signature("cosine_similarity",
  {"x1: tensor", "x2: tensor", {"dim: integer", 1}, {"eps: number", 1e-8}})
--- x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dim of the shape that both broadcast to.
function F.cosine_similarity(...)
  local x1, x2, dim, eps = read_cosine(...)
  local shape = (x1:detach() + x2:detach()):shape()
  return (unit(x1:expand(shape), dim, eps) * unit(x2:expand(shape), dim, eps)):sum(dim)
end

local read_pairwise = signature("pairwise_distance",
  {"x1: tensor", "x2: tensor", {"p: number", 2}, {"eps: number", 1e-6}, {"keepdim: flag", false}})
--- |x1 - x2 + eps|_p over the last dim.
function F.pairwise_distance(...)
  local x1, x2, p, eps, keepdim = read_pairwise(...)
  return C.norm(x1 - x2 + eps, p, -1, keepdim)
end

local read_bilinear = signature("bilinear", {"input1: tensor", "input2: tensor", "weight: tensor", {"bias: tensor"}})
--- x1^T W[o] x2 + b[o] for every row of input1 [..., in1] and input2 [..., in2], with weight [out, in1, in2].
function F.bilinear(...)
  local x1, x2, weight, bias = read_bilinear(...)
  local fits = weight:dim() == 3 and x1:dim() > 0 and x1:dim() == x2:dim() and x1:size(-1) == weight:size(1) and
    x2:size(-1) == weight:size(2)
  local sizes = x1:shape()
  for d = 1, fits and #sizes - 1 or 0 do fits = fits and sizes[d] == x2:size(d - 1) end
  if not fits then
    fail("bilinear: inputs %s and %s do not fit weight %s: expected (..., in1) and (..., in2) for (out, in1, in2)",
      shape_text(x1), shape_text(x2), shape_text(weight))
  end
  local out, in1, in2 = unpack(weight:shape())
  sizes[#sizes] = out
  x1, x2 = x1:reshape(-1, in1), x2:reshape(-1, in2)
  -- [N, 1, in1] x [out, in1, in2] -> [out, N, in2], times x2, summed over in2.
  local y = (C.matmul(x1:unsqueeze(0), weight) * x2:unsqueeze(0)):sum(-1):transpose(0, 1)
  return (bias and y + bias or y):reshape(sizes)
end

F.pad = require "accelhost.nn.padding"

-- Losses.

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

F.multi_head_attention_forward = require "accelhost.nn.multi_head"

--- The op of this name, if the table lists it as functional ("relu", or "relu_" in place).
local function op(name)
  local info = C.op_info(name) or C.op_info((name:gsub("_$", "")))
  return info and info.functional and C[name] or nil
end

return namespace.new("nn.functional", F, {}, {
  find = op,
  names = function()
    local list = {}
    for name in pairs(C) do
      if op(name) then list[#list + 1] = name end
    end
    return list
  end,
})
