--- accelhost.special: special functions under torch.special's names. Those that stand here in one line are functions
-- of accelhost too, told on its page.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
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
---@param input userdata
---@return userdata
function special.ndtr(...)
  return C.erfc(read_ndtr(...) * -math.sqrt(0.5)) * 0.5
end

local read_ndtri = arguments.signature("ndtri", {"input: tensor"})

--- The inverse of ndtr: sqrt(2) erfinv(2 x - 1).
--
--     accelhost.special.ndtri(accelhost.tensor {0.5})  --> tensor([0.])
---@param input userdata probabilities
---@return userdata
function special.ndtri(...)
  local input = read_ndtri(...)
  if not input:is_floating_point() then input = input:to "float32" end
  return C.erfinv(input * 2 - 1) * math.sqrt(2)
end

local read_entr = arguments.signature("entr", {"input: tensor"})

--- -x ln x; 0 at 0, -infinity below.
--
--     accelhost.special.entr(accelhost.tensor {0, 1})  --> tensor([-0., -0.])
---@param input userdata
---@return userdata
function special.entr(...)
  local input = read_entr(...)
  return C.where(C.lt(input, 0), -math.huge, -C.xlogy(input, input))
end

local read_xlog1py = arguments.signature("xlog1py", {"input: tensor", "other: tensor"})

--- input * ln(1 + other); 0 where input is 0 and other no nan.
--
--     accelhost.special.xlog1py(accelhost.tensor {0, 2}, accelhost.tensor {-1, 0})  --> tensor([0., 0.])
---@param input userdata
---@param other userdata
---@return userdata
function special.xlog1py(...)
  local input, other = read_xlog1py(...)
  if not other:is_floating_point() then
    other = other:to(input:is_floating_point() and input.dtype or "float32")
  elseif input:dim() > 0 or other:dim() == 0 then
    other = other:to(C.dtype.promote_types(input.dtype, other.dtype)) -- the logarithm in the result's precision
  end
  local zero = C.logical_and(C.eq(input, 0), C.isnan(other):logical_not())
  return C.where(zero, 0, input * C.log1p(C.where(zero, 0, other)))
end

return namespace.new("special", special, {
  polygamma = {"accelhost.functions.compare", "polygamma"}, round = {"accelhost.functions.variants", "round"},
})
