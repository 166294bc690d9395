--- Activation functions made of others.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"

local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked
local F = {}

--- fn(input, ...) under its name, with PyTorch's `inplace` behind its options (and before a `further` one), and the
-- same written into the input. The gradients are of a copy, since the input is overwritten.
local function with_inplace(name, parameters, fn, further)
  local rows, rows_ = {"input: tensor"}, {"input: tensor"}
  for i, parameter in ipairs(parameters) do rows[i + 1], rows_[i + 1] = parameter, parameter end
  local place = #rows + 1
  rows[place], rows[place + 1], rows_[place] = {"inplace: flag", false}, further, further
  local count, read, read_ = #rows_, signature(name, rows), signature(name .. "_", rows_)
  local function write(input, ...)
    return input:copy_(fn(input:clone(), ...))
  end
  return function(...)
    local values = {read(...)}
    local chosen = values[place] and write or fn
    for i = place, count do values[i] = values[i + 1] end
    return chosen(unpack(values, 1, count))
  end, function(...)
    return write(read_(...))
  end
end

--- min(max(x, 0), 6). relu6_ writes into its input.
--
--   F.relu6(accelhost.tensor{-1, 3, 9})  --> tensor([0., 3., 6.])
F.relu6, F.relu6_ = with_inplace("relu6", {}, function(input) return C.hardtanh(input, 0, 6) end)

--- Scaled ELU, 1.0507 (max(x, 0) + 1.6733 (exp(min(x, 0)) - 1)) (Klambauer et al., 2017). selu_ writes into its input.
--
--   F.selu(accelhost.tensor{0, 1})  --> tensor([0.0000, 1.0507])
F.selu, F.selu_ = with_inplace("selu", {}, function(input)
  return C.elu_scaled(input, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)
end)

--- max(x, 0) + min(alpha (exp(x / alpha) - 1), 0) (Barron, 2017); alpha is not 0. celu_ writes into its input.
--
--   F.celu(accelhost.tensor{-1, 1})  --> tensor([-0.6321,  1.0000])
F.celu, F.celu_ = with_inplace("celu", {{"alpha: number", 1}}, function(input, alpha)
  if alpha == 0 then fail("celu: alpha: expected a number other than 0") end
  return C.elu_scaled(input, alpha, 1, 1 / alpha)
end)

--- x tanh(softplus(x)); of halves in float32, where x times a gradient may be beyond a half.
--
--   F.mish(accelhost.tensor{0, 1})  --> tensor([0.0000, 0.8651])
F.mish, F.mish_ = with_inplace("mish", {}, function(input)
  local half = input.dtype == "float16" or input.dtype == "bfloat16"
  local x = half and input:float() or input
  local result = x * C.tanh(C.softplus(x))
  return half and result:to(input.dtype) or result
end)

--- x where x > threshold, else value. threshold_ writes into its input.
--
--   F.threshold(accelhost.tensor{-2, 2}, 0, -1)  --> tensor([-1.,  2.])
F.threshold, F.threshold_ = with_inplace("threshold", {"threshold: number", "value: number"},
  function(input, threshold, value)
    if input:is_floating_point() then return C.threshold(input, threshold, value) end
    local below = input:le(threshold)
    local result = input:masked_fill(below, value)
    below:free()
    return result
  end)

-- In training the slopes of elements that are not above 0 are drawn in memory's order, in float64 whatever the dtype.
local function rrelu(input, lower, upper, training, generator)
  if lower > upper then fail("rrelu: expected lower <= upper, got %s and %s", lower, upper) end
  if not training then return C.leaky_relu(input, (lower + upper) / 2) end
  local slope = C.autograd.no_grad(function()
    local below = input:le(0)
    local drawn = C.empty(below:sum():item(), {dtype = "float64", device = input.device})
    drawn:uniform_(lower, upper, {generator = generator})
    return C.ones_like(input):masked_scatter_(below, drawn:to(input.dtype))
  end)
  return input * slope
end

--- Leaky ReLU whose slope is drawn from U(lower, upper) for each element in training, and is the middle otherwise
-- (Xu et al., 2015), from `generator` if it is given. rrelu_ writes into its input.
--
--   F.rrelu(accelhost.tensor{-1, 1})  --> tensor([-0.2292,  1.0000])
F.rrelu, F.rrelu_ = with_inplace("rrelu",
  {{"lower: number", 1 / 8}, {"upper: number", 1 / 3}, {"training: flag", false}}, rrelu, {"generator: generator"})

local function unary(name, fn)
  local read = signature(name, {"input: tensor"})
  return function(...) return fn((read(...))) end
end

--- log(sigmoid(x)).
--
--   F.logsigmoid(accelhost.tensor{0})  --> tensor([-0.6931])
F.logsigmoid = unary("logsigmoid", function(input) return C.softplus(input, -1) end)

--- x / (1 + |x|).
--
--   F.softsign(accelhost.tensor{-1, 1})  --> tensor([-0.5000,  0.5000])
F.softsign = unary("softsign", function(input)
  local size = C.abs(input)
  local divisor = size + 1
  size:free()
  local result = input / divisor
  divisor:free()
  return result
end)

--- x - tanh(x).
--
--   F.tanhshrink(accelhost.tensor{0})  --> tensor([0.])
F.tanhshrink = unary("tanhshrink", function(input) return input - C.tanh(input) end)

-- The shape in which a weight for each channel broadcasts against an input.
local function sizes_of_channels(dims, count)
  local sizes = {}
  for d = 2, dims do sizes[d - 1] = d == 2 and count or 1 end
  return sizes
end

--- x where x > 0, else weight x, with one weight or one for each channel (dim 1).
--
--   F.prelu(accelhost.tensor{-4, 4}, accelhost.tensor{0.25})  --> tensor([-1.,  4.])
F.prelu = checked("prelu", {"input: tensor", "weight: tensor"}, function(input, weight)
  local dims, count = input:dim(), weight:numel()
  local channels = dims > 1 and input:size(1) or 1
  if weight:dim() > 1 or count ~= 1 and count ~= channels then
    fail("prelu: weight: expected 1 number or one for each of %d channels, got shape %s", channels,
      arguments.shape_text(weight))
  end
  if count == 1 and dims > 0 or dims == 2 then return C.sloped(input, weight) end
  local shaped = dims == 4 and weight:view(count, 1, 1) or weight:view(sizes_of_channels(dims, count))
  local result = C.sloped(input, shaped)
  shaped:free()
  return result
end)

--- a sigmoid(b) of the halves a and b of a dim (Dauphin et al., 2017).
--
--     F.glu(accelhost.zeros(2, 6)):size(1)  --> 3
---@return userdata # of half the size along dim
F.glu = checked("glu", {"input: tensor", {"dim: integer", -1}}, function(input, dim)
  local size = input:dim() > 0 and input:size(dim) or 1
  if size % 2 ~= 0 then fail("glu: expected an even size of dim %d, got input %s", dim, arguments.shape_text(input)) end
  return C.gated(input:narrow(dim, 0, size / 2), input:narrow(dim, size / 2, size / 2))
end)

--- softmax(-x) along a dim.
--
--   F.softmin(accelhost.zeros(2), 0)  --> tensor([0.5000, 0.5000])
F.softmin = checked("softmin", {"input: tensor", "dim: integer", {"dtype: dtype"}}, function(input, dim, dtype)
  return C.softmax(-input, dim, dtype)
end)

--- A sample of the Gumbel-softmax distribution, from `generator` if it is given; with hard = true one-hot, with the
--- soft sample's gradient. `eps` means nothing, as in PyTorch.
--
--   F.gumbel_softmax(x, {hard = true}):sum()  --> tensor(2.)
F.gumbel_softmax = checked("gumbel_softmax", {
  "logits: tensor", {"tau: positive", 1}, {"hard: flag", false}, {"eps: number", 1e-10}, {"dim: integer", -1},
  {"generator: generator"},
}, function(logits, tau, hard, _, dim, generator)
  local noise = C.autograd.no_grad(function()
    return -C.empty_like(logits):exponential_(1, {generator = generator}):log_()
  end)
  local soft = C.softmax((logits + noise) / tau, dim)
  if not hard then return soft end
  local index = soft:argmax(dim, true)
  local one = C.zeros_like(logits):scatter_(dim, index, 1)
  return one - soft:detach() + soft
end)

-- Ops of the table with PyTorch's option `inplace` after the others: it selects the op that writes into its input.
-- `place` is its position among the arguments. Calls without it are passed on unchanged.
local function chosen_inplace(name, place)
  local plain, into = C[name], C[name .. "_"]
  return function(...)
    local given = select("#", ...)
    local last = given > 1 and select(given, ...)
    if given == place and type(last) == "boolean" then
      return (last and into or plain)(unpack({...}, 1, given - 1))
    end
    if type(last) ~= "table" or getmetatable(last) ~= nil or last.inplace == nil then return plain(...) end
    local fn, values, options = arguments.check(name, "inplace", "flag", last.inplace) and into or plain, {...}, {}
    for key, value in pairs(last) do
      if key ~= "inplace" then options[key] = value end
    end
    values[given] = options
    return fn(unpack(values, 1, given))
  end
end

for name, place in pairs {
  relu = 2, silu = 2, hardswish = 2, hardsigmoid = 2, leaky_relu = 3, elu = 3, hardtanh = 4, dropout = 4,
} do
  F[name] = chosen_inplace(name, place)
end

autocast(F, "lower", "prelu")

return F
