--- Activation functions as modules.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local activation = {}

-- name, parameters (as of a signature), run(module, input), and what stands between the brackets
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

class("ReLU", {inplace}, function(self, input)
  if self.inplace then return C.relu_(input) end
  return C.relu(input)
end, with_inplace())

class("ReLU6", {inplace}, function(self, input)
  return (self.inplace and C.hardtanh_ or C.hardtanh)(input, 0, 6)
end, with_inplace())

class("GELU", {{"approximate: 'none'|'tanh'", "none"}}, function(self, input)
  return C.gelu(input, self.approximate)
end, function(self) return "approximate='" .. self.approximate .. "'" end)

class("SiLU", {inplace}, function(self, input)
  return (self.inplace and C.silu_ or C.silu)(input)
end, with_inplace())

class("Tanh", {}, function(_, input) return C.tanh(input) end)

class("Sigmoid", {}, function(_, input) return C.sigmoid(input) end)

class("LeakyReLU", {{"negative_slope: number", 0.01}, inplace}, function(self, input)
  return (self.inplace and C.leaky_relu_ or C.leaky_relu)(input, self.negative_slope)
end, with_inplace(function(self) return "negative_slope=" .. repr.float(self.negative_slope) end))

class("ELU", {{"alpha: number", 1}, inplace}, function(self, input)
  return (self.inplace and C.elu_ or C.elu)(input, self.alpha)
end, with_inplace(function(self) return "alpha=" .. repr.float(self.alpha) end))

class("Hardtanh", {{"min_val: number", -1}, {"max_val: number", 1}, inplace}, function(self, input)
  return (self.inplace and C.hardtanh_ or C.hardtanh)(input, self.min_val, self.max_val)
end, with_inplace(function(self)
  return repr.join("min_val", repr.float(self.min_val), "max_val", repr.float(self.max_val))
end))

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

class("Softmax", {{"dim: integer"}}, function(self, input) return C.softmax(input, check_dim(self)) end, dim_repr)
class("LogSoftmax", {{"dim: integer"}}, function(self, input)
  return C.log_softmax(input, check_dim(self))
end, dim_repr)

class("CELU", {{"alpha: number", 1}, inplace}, function(self, input)
  return F.celu(input, self.alpha, self.inplace)
end, with_inplace(function(self) return "alpha=" .. repr.float(self.alpha) end))

class("SELU", {inplace}, function(self, input) return F.selu(input, self.inplace) end, with_inplace())

class("Mish", {inplace}, function(self, input) return F.mish(input, self.inplace) end, with_inplace())

class("Hardswish", {inplace}, function(self, input)
  return (self.inplace and C.hardswish_ or C.hardswish)(input)
end)

class("Hardsigmoid", {inplace}, function(self, input)
  return (self.inplace and C.hardsigmoid_ or C.hardsigmoid)(input)
end)

class("Threshold", {"threshold: number", "value: number", inplace}, function(self, input)
  return F.threshold(input, self.threshold, self.value, self.inplace)
end, with_inplace(function(self)
  return repr.join("threshold", repr.value(self.threshold), "value", repr.value(self.value))
end))

class("RReLU", {{"lower: number", 1 / 8}, {"upper: number", 1 / 3}, inplace}, function(self, input)
  return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)
end, with_inplace(function(self)
  return repr.join("lower", repr.float(self.lower), "upper", repr.float(self.upper))
end))

class("LogSigmoid", {}, function(_, input) return F.logsigmoid(input) end)

class("Softsign", {}, function(_, input) return F.softsign(input) end)

class("Tanhshrink", {}, function(_, input) return F.tanhshrink(input) end)

class("Hardshrink", {{"lambd: number", 0.5}}, function(self, input)
  return F.hardshrink(input, self.lambd)
end, function(self) return repr.value(self.lambd) end)

class("Softshrink", {{"lambd: nonnegative", 0.5}}, function(self, input)
  return F.softshrink(input, self.lambd)
end, function(self) return repr.value(self.lambd) end)

class("GLU", {{"dim: integer", -1}}, function(self, input) return F.glu(input, self.dim) end, dim_repr)

class("Softmin", {{"dim: integer"}}, function(self, input) return F.softmin(input, check_dim(self)) end, dim_repr)

--- Softmax over the channels of [N, C, H, W] or [C, H, W].
class("Softmax2d", {}, function(_, input)
  if input:dim() ~= 3 and input:dim() ~= 4 then
    arguments.fail("Softmax2d: expected an input of 3 or 4 dims, got %d", input:dim())
  end
  return C.softmax(input, -3)
end)

--- Leaky ReLU with learnt slopes: one, or one for each channel (dim 1) (He et al., 2015).
---@class PReLU: Module
---@field weight table [num_parameters]
local PReLU = Module:extend "PReLU"
activation.PReLU = PReLU

local read_prelu = arguments.signature("PReLU",
  {{"num_parameters: count", 1}, {"init: number", 0.25}, {"device: device"}, {"dtype: dtype"}})

---@param num_parameters integer? 1, or the number of channels
---@param init number? what the slopes start from
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
