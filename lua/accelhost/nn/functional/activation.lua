--- Activation functions made of others.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local signature = arguments.signature
local F = {}

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

return F
