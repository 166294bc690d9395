--- Modules that follow each other and are computed as one, where no hook watches them. Fields of modules are read, so
--- that parametrized weights are computed; a module of a subclass with another forward, or with a hook, is called as
--- usual.
local C = require "accelhost._C"
local hooks = require "accelhost.nn.hooks"

local fused = {}

--- Does the module use its class's forward, without hooks?
---@param class table
function fused.is_plain(module, class)
  return type(module) == "table" and module.forward == class.forward and not hooks.watch(module)
end

-- Classes with one op, which makes the result and alone reads the input.
local function plain_classes()
  local norms, quantized = require "accelhost.nn.norm", require "accelhost.nn.quantized"
  return {require("accelhost.nn.linear").Linear, norms.RMSNorm, norms.LayerNorm, quantized.Linear8bitLt,
    quantized.Linear4bit}
end

local plain_forwards

--- Return true if no one else holds input and result of each of the modules, as of linear maps and norms without
--- hooks. The caller may free them then: the graph holds the tensors that gradients need.
---@param ... Module
---@return boolean
function fused.leave_nothing(...)
  if not plain_forwards then
    plain_forwards = {}
    for _, class in ipairs(plain_classes()) do plain_forwards[class.forward] = true end
  end
  for i = 1, select("#", ...) do
    local module = select(i, ...)
    if not plain_forwards[module.forward] or hooks.watch(module) then return false end
  end
  return true
end

--- linear(gelu(linear(x, w1, b1), formula), w2, b2); without w2 the gelu. GELU is done in the products themselves where
--- the device can: cuBLASLt, whose formula is that by tanh.
---@param x Tensor [..., in]
---@param w1 Tensor [inner, in]
---@param b1? Tensor
---@param w2? Tensor [out, inner]
---@param b2? Tensor
---@param formula? string "tanh" (default) or, with w2, "none"
---@return Tensor [..., out]
function fused.gelu_between(x, w1, b1, w2, b2, formula)
  if w2 and not x.is_cuda then
    local before = C.linear(x, w1, b1)
    local out = C.gelu_linear(before, w2, b2, formula or "tanh")
    before:free() -- its gradient is written over it
    return out
  elseif formula == "none" then
    return C.linear(C.gelu(C.linear(x, w1, b1)), w2, b2)
  end
  local y, before = C.linear_gelu(x, w1, b1)
  if not w2 then return y end
  local out = before and C.linear_of_gelu(y, before, w2, b2) or C.linear(y, w2, b2)
  y:free() -- the largest tensors of a transformer's layer; the graph holds those that it reads
  if before then before:free() end
  return out
end

--- Return second(gelu(first(x))), computed as one, of two linear maps without hooks; nil if they cannot be fused.
---@param first Module
---@param formula string? "none", "tanh", or nil: the activation is not GELU
---@param second Module
---@return Tensor|nil
function fused.gelu_mlp(x, first, formula, second)
  if not formula then return nil end
  local Linear = require("accelhost.nn.linear").Linear
  if not fused.is_plain(first, Linear) or not fused.is_plain(second, Linear) then return nil end
  return fused.gelu_between(x, first.weight, first.bias, second.weight, second.bias, formula)
end

--- relu(norm(x) + other), as one op where the norm is a batch norm.
---@param norm Module
---@param other? Tensor
---@return Tensor like x
function fused.norm_relu(norm, x, other)
  local BatchNorm = require("accelhost.nn.batch_norm").BatchNorm
  if fused.is_plain(norm, BatchNorm) and norm.normalise == BatchNorm.normalise then
    return norm:normalise_relu(x, other)
  end
  local y = norm(x)
  return C.relu(other and y + other or y)
end

--- Apply modules i, i + 1, ... of a list that are computed as one op to x. Return the result and their number, or nil
--- and 0 if module i cannot be fused.
---@param list table
---@return Tensor|nil
---@return integer
function fused.run(list, i, x)
  -- Asked of every item at every call, so without __index: it is slow for fields that are missing in a class or beyond
  -- the end of a list.
  local act = rawget(list, i + 1)
  local fields = type(act) == "table" and rawget(act, "_fields")
  if not fields then return nil, 0 end
  local first = rawget(list, i)
  local fields_of_first = type(first) == "table" and rawget(first, "_fields")
  if not fields_of_first then return nil, 0 end
  if fields_of_first.num_features and fields.inplace ~= nil then
    if not fused.is_plain(act, require("accelhost.nn.activation").ReLU) then return nil, 0 end
    return fused.norm_relu(first, x), 2
  end
  local formula = fields.approximate
  if formula == nil then return nil, 0 end
  local Linear = require("accelhost.nn.linear").Linear
  local second = list[i + 2]
  if not fused.is_plain(act, require("accelhost.nn.activation").GELU) or not fused.is_plain(first, Linear) then
    return nil, 0
  end
  local out = fused.gelu_mlp(x, first, formula, second)
  if out then return out, 3 end
  if formula ~= "tanh" then return nil, 0 end
  return fused.gelu_between(x, first.weight, first.bias), 2
end

return fused
