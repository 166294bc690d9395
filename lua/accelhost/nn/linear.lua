--- Linear maps.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local F = require "accelhost.nn.functional"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local repr = require "accelhost.nn.repr"

local linear = {}

--- Returns its argument; arguments of the constructor are ignored.
--
--   nn.Identity()(a)  --> tensor([1., 2., 3.])
---@param ... any
local Identity = Module:extend "Identity"
function Identity:init(...) end -- luacheck: ignore
function Identity:forward(input) return input end -- luacheck: ignore
linear.Identity = Identity

--- y = x W^T + b.
--
--   local fc = nn.Linear(784, 10, {bias = false})
---@field weight Tensor [out_features, in_features]
---@field bias Tensor? [out_features]
local Linear = Module:extend "Linear"
linear.Linear = Linear

local read = arguments.signature("Linear",
  {"in_features: size", "out_features: size", {"bias: flag", true}, {"device: device"}, {"dtype: dtype"}})

function Linear:init(...)
  local in_features, out_features, bias, device, dtype = read(...)
  local options = {dtype = dtype, device = device}
  self.in_features, self.out_features = in_features, out_features
  self.weight = new(C.empty({out_features, in_features}, options))
  if bias then self.bias = new(C.empty({out_features}, options)) end
  self:reset_parameters()
end

--- U(-1/sqrt(in_features), 1/sqrt(in_features)) for weight and bias.
function Linear:reset_parameters()
  init.kaiming_uniform_(self.weight, {a = math.sqrt(5)})
  if self.bias then
    local bound = self.in_features > 0 and 1 / math.sqrt(self.in_features) or 0
    init.uniform_(self.bias, -bound, bound)
  end
end

---@param input Tensor [..., in_features]
---@return Tensor [..., out_features]
function Linear:forward(input)
  return C.linear(input, self.weight, self.bias)
end

function Linear:extra_repr()
  return repr.join("in_features", repr.value(self.in_features), "out_features", repr.value(self.out_features), "bias",
    repr.value(self.bias ~= nil))
end

--- A Linear under the name that PyTorch prints for the output projection of MultiheadAttention.
--
--   nn.NonDynamicallyQuantizableLinear(4, 2)(x):size(1)  --> 2
linear.NonDynamicallyQuantizableLinear = Linear:extend "NonDynamicallyQuantizableLinear"

--- y = x1 A x2 + b.
--
--   nn.Bilinear(4, 2, 5)(x, y):size(1)  --> 5
---@field weight Tensor [out_features, in1_features, in2_features]
local Bilinear = Module:extend "Bilinear"
linear.Bilinear = Bilinear

local read_bilinear = arguments.signature("Bilinear", {
  "in1_features: count", "in2_features: size", "out_features: size", {"bias: flag", true}, {"device: device"},
  {"dtype: dtype"},
})

function Bilinear:init(...)
  local in1, in2, out, bias, device, dtype = read_bilinear(...)
  local options = {dtype = dtype, device = device}
  self.in1_features, self.in2_features, self.out_features = in1, in2, out
  self.weight = new(C.empty({out, in1, in2}, options))
  if bias then self.bias = new(C.empty({out}, options)) end
  local bound = 1 / math.sqrt(in1)
  init.uniform_(self.weight, -bound, bound)
  if self.bias then init.uniform_(self.bias, -bound, bound) end
end

---@param x1 Tensor [..., in1_features]
---@param x2 Tensor [..., in2_features]
---@return Tensor [..., out_features]
function Bilinear:forward(x1, x2)
  return F.bilinear(x1, x2, self.weight, self.bias)
end

function Bilinear:extra_repr()
  return repr.join("in1_features", repr.value(self.in1_features), "in2_features", repr.value(self.in2_features),
    "out_features", repr.value(self.out_features), "bias", repr.value(self.bias ~= nil))
end

return linear
