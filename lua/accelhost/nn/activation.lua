--- Activation functions as modules.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local activation = {}

-- name, parameters (as of a signature), run(module, input), and the text between the brackets of its repr
local function class(name, parameters, forward, extra_repr)
  local Class = Module:extend(name)
  Class.init = arguments.setter(name, parameters)
  Class.forward = forward
  if extra_repr then Class.extra_repr = extra_repr end
  activation[name] = Class
end

local function with_inplace(text)
  return function(self)
    local before = text and text(self) or ""
    if not self.inplace then return before end
    return before == "" and "inplace=True" or before .. ", inplace=True"
  end
end

local inplace = {"inplace: flag", false}

--- max(input, 0), element by element; with `inplace` the input itself is changed.
--
--   nn.ReLU()(x)[0]  --> tensor([1., 0., 3., 0.])
class("ReLU", {inplace}, function(self, input)
  if self.inplace then return C.relu_(input) end
  return C.relu(input)
end, with_inplace())

--- min(max(input, 0), 6), element by element.
--
--   nn.ReLU6()(accelhost.tensor{-1, 3, 9})  --> tensor([0., 3., 6.])
class("ReLU6", {inplace}, function(self, input)
  return (self.inplace and C.hardtanh_ or C.hardtanh)(input, 0, 6)
end, with_inplace())

--- The Gaussian error linear unit (F.gelu); approximate = "tanh" is the formula that GPT-2 uses.
--
--   nn.GELU()(accelhost.tensor{0, 1})  --> tensor([0.0000, 0.8413])
class("GELU", {{"approximate: 'none'|'tanh'", "none"}}, function(self, input)
  return C.gelu(input, self.approximate)
end, function(self) return "approximate='" .. self.approximate .. "'" end)

--- input * sigmoid(input), element by element; also called swish.
--
--   nn.SiLU()(accelhost.tensor{0, 1})  --> tensor([0.0000, 0.7311])
class("SiLU", {inplace}, function(self, input)
  return (self.inplace and C.silu_ or C.silu)(input)
end, with_inplace())

--- The hyperbolic tangent, element by element.
--
--   nn.Tanh()(accelhost.tensor{0, 1})  --> tensor([0.0000, 0.7616])
class("Tanh", {}, function(_, input) return C.tanh(input) end)

--- 1 / (1 + exp(-input)), element by element.
--
--   nn.Sigmoid()(accelhost.tensor{0})  --> tensor([0.5000])
class("Sigmoid", {}, function(_, input) return C.sigmoid(input) end)

--- input above 0, negative_slope * input below.
--
--   nn.LeakyReLU(0.1)(accelhost.tensor{-1, 1})  --> tensor([-0.1000,  1.0000])
class("LeakyReLU", {{"negative_slope: number", 0.01}, inplace}, function(self, input)
  return (self.inplace and C.leaky_relu_ or C.leaky_relu)(input, self.negative_slope)
end, with_inplace(function(self) return "negative_slope=" .. repr.float(self.negative_slope) end))

--- input above 0, alpha (exp(input) - 1) below.
--
--   nn.ELU()(accelhost.tensor{-1, 1})  --> tensor([-0.6321,  1.0000])
class("ELU", {{"alpha: number", 1}, inplace}, function(self, input)
  return (self.inplace and C.elu_ or C.elu)(input, self.alpha)
end, with_inplace(function(self) return "alpha=" .. repr.float(self.alpha) end))

--- The elements cut to [min_val, max_val].
--
--   nn.Hardtanh()(accelhost.tensor{-2, 0.5})  --> tensor([-1.0000,  0.5000])
class("Hardtanh", {{"min_val: number", -1}, {"max_val: number", 1}, inplace}, function(self, input)
  return (self.inplace and C.hardtanh_ or C.hardtanh)(input, self.min_val, self.max_val)
end, with_inplace(function(self)
  return repr.join("min_val", repr.float(self.min_val), "max_val", repr.float(self.max_val))
end))

local make_hardtanh = activation.Hardtanh.init

function activation.Hardtanh:init(...)
  make_hardtanh(self, ...)
  if self.max_val <= self.min_val then
    arguments.fail("Hardtanh: max_val: expected a number above min_val = %g, got %g", self.min_val, self.max_val)
  end
end

--- log(1 + exp(beta input)) / beta, and input itself where beta * input is above the threshold.
--
--   nn.Softplus()(accelhost.tensor{0})  --> tensor([0.6931])
class("Softplus", {{"beta: number", 1}, {"threshold: number", 20}}, function(self, input)
  return C.softplus(input, self.beta, self.threshold)
end, function(self)
  return repr.join("beta", repr.float(self.beta), "threshold", repr.float(self.threshold))
end)

local function check_dim(self)
  if self.dim == nil then arguments.fail("%s: 'dim' is missing", self._name) end
  return self.dim
end

local function dim_repr(self) return "dim=" .. repr.value(self.dim) end

--- exp(input) divided by its sum along `dim`, which has to be given.
--
--   nn.Softmax(0)(accelhost.zeros(2))  --> tensor([0.5000, 0.5000])
class("Softmax", {{"dim: integer"}}, function(self, input) return C.softmax(input, check_dim(self)) end, dim_repr)
--- The logarithm of softmax along `dim`, which has to be given.
--
--   nn.LogSoftmax(0)(accelhost.zeros(2))  --> tensor([-0.6931, -0.6931])
class("LogSoftmax", {{"dim: integer"}}, function(self, input)
  return C.log_softmax(input, check_dim(self))
end, dim_repr)

--- max(0, input) + min(0, alpha (exp(input / alpha) - 1)).
--
--   nn.CELU()(accelhost.tensor{-1, 1})  --> tensor([-0.6321,  1.0000])
class("CELU", {{"alpha: number", 1}, inplace}, function(self, input)
  return F.celu(input, self.alpha, self.inplace)
end, with_inplace(function(self) return "alpha=" .. repr.float(self.alpha) end))

--- The scaled ELU, whose constants keep mean 0 and variance 1 (Klambauer et al., 2017).
--
--   nn.SELU()(accelhost.tensor{0, 1})  --> tensor([0.0000, 1.0507])
class("SELU", {inplace}, function(self, input) return F.selu(input, self.inplace) end, with_inplace())

--- input * tanh(softplus(input)) (Misra, 2019).
--
--   nn.Mish()(accelhost.tensor{0, 1})  --> tensor([0.0000, 0.8651])
class("Mish", {inplace}, function(self, input) return F.mish(input, self.inplace) end, with_inplace())

--- input * relu6(input + 3) / 6 (Howard et al., 2019).
--
--   nn.Hardswish()(accelhost.tensor{-4, 0, 4})  --> tensor([-0.,  0.,  4.])
class("Hardswish", {inplace}, function(self, input)
  return (self.inplace and C.hardswish_ or C.hardswish)(input)
end)

--- relu6(input + 3) / 6.
--
--   nn.Hardsigmoid()(accelhost.tensor{-4, 0, 4})  --> tensor([0.0000, 0.5000, 1.0000])
class("Hardsigmoid", {inplace}, function(self, input)
  return (self.inplace and C.hardsigmoid_ or C.hardsigmoid)(input)
end)

--- input above the threshold, else `value`.
--
--   nn.Threshold(0, -1)(accelhost.tensor{-2, 2})  --> tensor([-1.,  2.])
class("Threshold", {"threshold: number", "value: number", inplace}, function(self, input)
  return F.threshold(input, self.threshold, self.value, self.inplace)
end, with_inplace(function(self)
  return repr.join("threshold", repr.value(self.threshold), "value", repr.value(self.value))
end))

--- Leaky ReLU whose slope below 0 is drawn between lower and upper for each element in training, and is their mean
--- in evaluation.
--
--   nn.RReLU():eval()(accelhost.tensor{-1, 1})  --> tensor([-0.2292,  1.0000])
class("RReLU", {{"lower: number", 1 / 8}, {"upper: number", 1 / 3}, inplace}, function(self, input)
  return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)
end, with_inplace(function(self)
  return repr.join("lower", repr.float(self.lower), "upper", repr.float(self.upper))
end))

--- log(1 / (1 + exp(-input))), without overflow.
--
--   nn.LogSigmoid()(accelhost.tensor{0})  --> tensor([-0.6931])
class("LogSigmoid", {}, function(_, input) return F.logsigmoid(input) end)

--- input / (1 + |input|).
--
--   nn.Softsign()(accelhost.tensor{-1, 1})  --> tensor([-0.5000,  0.5000])
class("Softsign", {}, function(_, input) return F.softsign(input) end)

--- input - tanh(input).
--
--   nn.Tanhshrink()(accelhost.tensor{0})  --> tensor([0.])
class("Tanhshrink", {}, function(_, input) return F.tanhshrink(input) end)

--- input where it is above lambd or below -lambd, else 0.
--
--   nn.Hardshrink()(accelhost.tensor{0.3, 1})  --> tensor([0., 1.])
class("Hardshrink", {{"lambd: number", 0.5}}, function(self, input)
  return F.hardshrink(input, self.lambd)
end, function(self) return repr.value(self.lambd) end)

--- input moved by lambd towards 0, and 0 between -lambd and lambd.
--
--   nn.Softshrink()(accelhost.tensor{0.3, 1})  --> tensor([0.0000, 0.5000])
class("Softshrink", {{"lambd: nonnegative", 0.5}}, function(self, input)
  return F.softshrink(input, self.lambd)
end, function(self) return repr.value(self.lambd) end)

--- The first half of a dim times the sigmoid of the second half.
--
--   nn.GLU()(accelhost.tensor{2, 0})  --> tensor([1.])
class("GLU", {{"dim: integer", -1}}, function(self, input) return F.glu(input, self.dim) end, dim_repr)

--- softmax(-input) along `dim`, which has to be given.
--
--   nn.Softmin(0)(accelhost.zeros(2))  --> tensor([0.5000, 0.5000])
class("Softmin", {{"dim: integer"}}, function(self, input) return F.softmin(input, check_dim(self)) end, dim_repr)

--- Softmax over the channels of [N, C, H, W] or [C, H, W].
--
--   nn.Softmax2d()(images):sum():round()  --> tensor(1568.)
class("Softmax2d", {}, function(_, input)
  if input:dim() ~= 3 and input:dim() ~= 4 then
    arguments.fail("Softmax2d: expected an input of 3 or 4 dims, got %d", input:dim())
  end
  return C.softmax(input, -3)
end)

--- Leaky ReLU with learnt slopes: one, or one for each channel (dim 1) (He et al., 2015).
--
--   nn.PReLU()(accelhost.tensor{-4, 4}):detach()  --> tensor([-1.,  4.])
---@field weight Tensor [num_parameters]
local PReLU = Module:extend "PReLU"
activation.PReLU = PReLU

local read_prelu = arguments.signature("PReLU",
  {{"num_parameters: count", 1}, {"init: number", 0.25}, {"device: device"}, {"dtype: dtype"}})

---@param num_parameters integer? 1, or the number of channels
---@param init number? initial value of the slopes
function PReLU:init(...)
  local count, init, device, dtype = read_prelu(...)
  self.num_parameters, self._initial = count, init
  self.weight = new(C.empty({count}, {device = device, dtype = dtype}))
  self:reset_parameters()
end

--- Set all slopes to `init`.
function PReLU:reset_parameters()
  C.autograd.no_grad(function() self.weight:fill_(self._initial) end)
end

function PReLU:forward(input)
  return F.prelu(input, self.weight)
end

function PReLU:extra_repr()
  return "num_parameters=" .. self.num_parameters
end

return activation
