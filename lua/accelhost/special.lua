--- accelhost.special: special functions under torch.special's names. Those defined here in one line are functions
-- of accelhost too, documented on its page.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local namespace = require "accelhost.util.namespace"

local special = {}

-- Names here and in accelhost.
for name, op in pairs {
  digamma = "digamma", psi = "digamma", erf = "erf", erfc = "erfc", erfinv = "erfinv", exp2 = "exp2",
  expit = "sigmoid", expm1 = "expm1", gammaln = "lgamma", i0 = "i0", log1p = "log1p", log_softmax = "log_softmax",
  logit = "logit", logsumexp = "logsumexp", sinc = "sinc",
  softmax = "softmax", xlogy = "xlogy",
} do
  special[name] = C[op]
end

local read_ndtr = arguments.signature("ndtr", {"input: tensor"})

--- The normal distribution's function: erfc(-x / sqrt(2)) / 2.
--
--     accelhost.special.ndtr(accelhost.tensor {0})  --> tensor([0.5000])
function special.ndtr(...)
  local scaled = read_ndtr(...) * -math.sqrt(0.5)
  local result = C.erfc(scaled)
  scaled:free()
  return result:mul_(0.5)
end

local read_ndtri = arguments.signature("ndtri", {"input: tensor"})

--- The inverse of ndtr, for probabilities near 0 as exact as elsewhere. Whole numbers yield float32.
--
--     accelhost.special.ndtri(accelhost.tensor {0.5})  --> tensor([0.])
---@param input userdata probabilities
function special.ndtri(...)
  return C.ndtri(read_ndtri(...))
end

-- Its slope, -1 - ln x, is infinite at 0 and nan below.
local Entropy = autograd.Function:extend "entr"

function Entropy.forward(ctx, input)
  ctx:save_for_backward(input)
  return C.where(C.lt(input, 0), -math.huge, -C.xlogy(input, input))
end

function Entropy.backward(ctx, grad) return grad * (-1 - C.log(ctx.saved_tensors[1])) end

local read_entr = arguments.signature("entr", {"input: tensor"})

--- -x ln x; 0 at 0, -infinity below.
--
--     accelhost.special.entr(accelhost.tensor {0, 1})  --> tensor([-0., -0.])
function special.entr(...)
  return (Entropy.apply(read_entr(...)))
end

--- input * ln(1 + other); 0 where input is 0 and other no nan.
--
--     accelhost.special.xlog1py(accelhost.tensor {0, 2}, accelhost.tensor {-1, 0})  --> tensor([0., 0.])
---@param input number|userdata one of both is a tensor
special.xlog1py = arguments.checked("xlog1py", {"input: number|tensor", "other: number|tensor"}, function(input, other)
  if not C.is_tensor(other) then
    if not C.is_tensor(input) then arguments.fail("xlog1py: expected a tensor, got two numbers") end
    local dtype = input:is_floating_point() and input.dtype or "float32"
    other = C.full({}, other, {dtype = dtype, device = input.device})
  elseif not C.is_tensor(input) then
    local dtype = other:is_floating_point() and other.dtype or "float32"
    input = C.full({}, input, {dtype = dtype, device = other.device})
  end
  if not other:is_floating_point() then
    other = other:to(input:is_floating_point() and input.dtype or "float32")
  elseif input:dim() > 0 or other:dim() == 0 then
    other = other:to(C.dtype.promote_types(input.dtype, other.dtype)) -- the logarithm in the result's precision
  end
  -- If the logarithm is finite the product is 0 anyway, and its slope in the input the logarithm.
  local zero = C.logical_and(C.eq(input, 0), C.logical_or(C.le(other, -1), C.isposinf(other)))
  return C.where(zero, 0, input * C.log1p(C.where(zero, 0, other)))
end)

return namespace.new("special", special, {
  polygamma = {"accelhost.functions.compare", "polygamma"}, round = {"accelhost.functions.variants", "round"},
})
