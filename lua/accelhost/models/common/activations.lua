--- Activations by the names that configurations use.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local activations = {}

--- GELU's tanh formula.
---@return Tensor
function activations.tanh_gelu(x) return C.gelu(x, "tanh") end

local tanh_gelu = activations.tanh_gelu

--- GELU by the error function.
---@return Tensor
function activations.gelu(x) return C.gelu(x) end

--- C.gelu's `approximate` of a function of this module; nil: it is another activation.
activations.gelu_formula = {[activations.gelu] = "none", [tanh_gelu] = "tanh"}

local function silu(x) return C.silu(x) end

-- C.activation_mul's name of a function of this module.
local gates = {[silu] = "silu", [activations.gelu] = "gelu", [tanh_gelu] = "gelu_tanh"}

--- Return act(gate) * other, where the device can as one op, which stores neither factor of it for the gradients.
---@param act fun(x: Tensor): Tensor
---@param gate Tensor
---@param other Tensor
---@return Tensor
function activations.gate(act, gate, other)
  local name = gates[act]
  if name and not gate.is_cuda and gate.dtype == other.dtype then return C.activation_mul(gate, other, name) end
  return act(gate) * other
end

local by_name = {
  gelu = activations.gelu, gelu_new = tanh_gelu, gelu_pytorch_tanh = tanh_gelu, gelu_fast = tanh_gelu,
  relu = function(x) return C.relu(x) end, silu = silu, swish = silu, tanh = function(x) return C.tanh(x) end,
}

--- The function of a name.
---@return fun(x: Tensor): Tensor
function activations.find(what, name)
  local found = type(name) == "string" and by_name[name]
  if not found then
    local known = arguments.sorted_keys(by_name)
    arguments.fail("%s: unknown activation %s (known: %s)", what, arguments.describe(name), table.concat(known, ", "))
  end
  return found
end

return activations
