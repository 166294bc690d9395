--- The layer of IA3: a target module whose outputs, or inputs, are multiplied by a trained vector. Names in state dicts
--- are peft's.
local C = require "accelhost._C"
local Conv1D = require("accelhost.models.decoders.gpt2").Conv1D
local AdapterLayer = require("accelhost.peft.adapter_layer").AdapterLayer
local Linear = require("accelhost.nn.linear").Linear
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local container = require "accelhost.nn.container"
local parameter = require "accelhost.nn.parameter"
local targets = require "accelhost.peft.targets"

local IA3Layer = AdapterLayer:extend "ia3.Linear"

---@param base Module
---@param is_feedforward boolean the inputs are multiplied
function IA3Layer:init(base, is_feedforward)
  AdapterLayer.init(self, base)
  self.is_feedforward, self.is_transposed = is_feedforward, class.is(base, Conv1D)
  self.ia3_l = container.ParameterDict {}
end

--- Add an adapter: a vector of ones, or of random numbers.
---@param config IA3Config
function IA3Layer:add(name, config)
  local out, width = self:sizes()
  local shape = self.is_feedforward and {1, width} or {out, 1}
  local vector = C.randn(shape) -- drawn in any case, as peft does
  self.ia3_l[name] = parameter.new(config.init_ia3_weights and C.ones(shape) or vector)
  self:place(name)
end

--- Is there an adapter of this name?
function IA3Layer:has(name) return self.ia3_l:contains(name) end

--- Return the vector.
function IA3Layer:parts(name) return {self.ia3_l[name]} end

--- Remove an adapter.
function IA3Layer:remove(name)
  if self:has(name) then self.ia3_l:pop(name) end
end

--- Return the result with the active adapters.
function IA3Layer:adapted(x)
  local scale
  for _, name in ipairs(self.active) do
    if self:has(name) then
      local vector = self.ia3_l[name]:flatten()
      scale = scale and scale * vector or vector
    end
  end
  if not scale then return self.base_layer(x) end
  if self.is_feedforward then return self.base_layer((x:to(scale.dtype) * scale):to(x.dtype)) end
  local result = self.base_layer(x)
  return (result * scale):to(result.dtype)
end

-- Multiply the weight, and the bias of outputs, by the function's value of the vector.
local function scale_weight(self, name, fn)
  local vector, bias = fn(self.ia3_l[name]), self.base_layer.bias
  local factor = self.is_transposed and vector:t() or vector
  self:change_weight(function(weight) return (weight * factor):to(weight.dtype) end)
  if bias and not self.is_feedforward then bias:copy_((bias * vector:flatten()):to(bias.dtype)) end
end

--- Multiply the weight by an adapter's vector.
function IA3Layer:merge_one(name) scale_weight(self, name, function(vector) return vector end) end

--- Divide the weight by it. A zero counts as 1e-8: the numbers that it multiplied are lost.
function IA3Layer:unmerge_one(name)
  scale_weight(self, name, function(vector) return 1 / (vector + vector:eq(0) * 1e-8) end)
end

--- Return the layer with adapters for a target module.
---@param name string the module's
---@param config IA3Config
---@return IA3Layer
local function wrap(what, name, module, config)
  if class.is(module, IA3Layer) then return module end
  if class.is(module, Linear) or class.is(module, Conv1D) then
    return IA3Layer(module, targets.matches(what, {name}, config.feedforward_modules)[1])
  end
  arguments.fail("%s: target_modules: '%s' is a %s; vectors of IA3 are for linear maps", what, name,
    module:class_name())
end

return {wrap = wrap}
