--- Layers that replace a target module: they hold the module and, by the adapters' names, the adapters' tensors.
local C = require "accelhost._C"
local container = require "accelhost.nn.container"
local Module = require("accelhost.nn.module").Module

local adapter_layer = {}

--- The base of all adapters' layers. A kind of adapter has these methods: `add(name, config, target)`, `has(name)`,
--- `parts(name)` (its tensors and modules), `remove(name)`, `adapted(x)` (the result with the active adapters),
--- `merge_one(name)` and `unmerge_one(name)` (of the weight itself).
local AdapterLayer = Module:extend "AdapterLayer"
adapter_layer.AdapterLayer = AdapterLayer

---@param base Module
function AdapterLayer:init(base)
  self.base_layer = base
  self.active, self.merged, self.is_disabled = {}, {}, false
end

-- The dtype of an adapter's weights: float32 for a base in halves or quantised, as peft has it.
local function adapter_dtype(weight)
  return weight.dtype == "float64" and "float64" or "float32"
end

--- Return the base layer's weight, dequantised where it is quantised.
---@return Tensor
function AdapterLayer:base_weight()
  local base = self.base_layer
  return base.dequantize and base:dequantize() or base.weight
end

--- Change the base layer's weight to the function's value of it. A quantised one is dequantised before and quantised
--- after it, which rounds.
---@param fn fun(weight: Tensor): Tensor
function AdapterLayer:change_weight(fn)
  local base = self.base_layer
  if base.set_weight then return base:set_weight(fn(base:dequantize())) end
  base.weight:copy_(fn(base.weight))
end

--- Return the sizes of the base layer's outputs and inputs.
---@return integer outputs
---@return integer inputs
function AdapterLayer:sizes()
  local base = self.base_layer
  if base.in_features then return base.out_features, base.in_features end
  local outputs, inputs = base.weight:size(0), base.weight:size(1)
  if self.is_transposed then return inputs, outputs end
  return outputs, inputs
end

--- Give an adapter's tensors and modules the device and the dtype of the base layer.
function AdapterLayer:place(name)
  local weight = self.base_layer.weight
  local target = {dtype = adapter_dtype(weight), device = weight.device}
  for _, part in ipairs(self:parts(name)) do
    if C.is_tensor(part) then
      C.set_data(part, C.autograd.no_grad(part.to, part, target))
    else
      part:to(target)
    end
  end
end

--- Change the weight so that the base layer alone has the result with these adapters.
function AdapterLayer:merge(names)
  C.autograd.no_grad(function()
    for _, name in ipairs(names) do
      if self:has(name) then
        self:merge_one(name)
        self.merged[#self.merged + 1] = name
      end
    end
  end)
end

--- Undo the merged adapters, last first.
function AdapterLayer:unmerge()
  C.autograd.no_grad(function()
    for i = #self.merged, 1, -1 do
      self:unmerge_one(self.merged[i])
      self.merged[i] = nil
    end
  end)
end

---@return Tensor
function AdapterLayer:forward(x)
  if self.is_disabled and #self.merged > 0 then self:unmerge() end
  if self.is_disabled or #self.merged > 0 then return self.base_layer(x) end
  return self:adapted(x)
end

--- A module that is trained and saved whole: a copy of it for each adapter.
local SavedModule = Module:extend "ModulesToSaveWrapper"
adapter_layer.SavedModule = SavedModule

---@param original Module
function SavedModule:init(original)
  self.original_module = original
  self.modules_to_save = container.ModuleDict {}
  self.active, self.is_disabled = {}, false
end

--- Add a copy for an adapter.
function SavedModule:add(name)
  self.modules_to_save[name] = self.original_module:deepcopy()
end

--- Remove it.
function SavedModule:remove(name)
  if self.modules_to_save:contains(name) then self.modules_to_save:pop(name) end
end

--- Return the module that is called.
---@return Module
function SavedModule:current()
  local name = self.active[#self.active]
  return not self.is_disabled and name and self.modules_to_save:get(name) or self.original_module
end

function SavedModule:forward(...) return self:current()(...) end

return adapter_layer
