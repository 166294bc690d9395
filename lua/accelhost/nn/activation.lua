--- Activation functions as modules.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
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

return activation
