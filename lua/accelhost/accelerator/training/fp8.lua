--- FP8: linear layers of prepared models multiply 8-bit floats, as Transformer Engine's te.Linear with DelayedScaling.
--
-- Input and weight are quantised to e4m3, the gradient of the result to e5m2 (fp8_format = "HYBRID"), each by a scale
-- that follows from the largest sizes (amax) of earlier steps; the three products of a layer have float32 sums. Scales
-- change at the end of a backward that synchronises, in a window of accumulation once, by the maximum over its
-- micro-steps and over the processes, so that the graph of a step has one scale for each tensor.
local C = require "accelhost._C"
local Linear = require("accelhost.nn.linear").Linear
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail

local TENSORS = 3 -- of a layer: input, weight, gradient of the result
local MULTIPLE = 16 -- of both sides of a weight, as cuBLASLt's products need them
local E4M3_MAX, E5M2_MAX, FLOAT_MAX = 448, 57344, 0x1.fffffep127

-- The product of a layer and its gradients. `e5m2`: the format of the gradient; `scales`: of a layer, as Scales:layer
-- returns them.
local Fp8Linear = autograd.Function:extend "Fp8Linear"

function Fp8Linear.forward(ctx, input, weight, bias, scales, e5m2)
  local rows = input:reshape {-1, weight:size(1)}
  local x = C.fp8_quantize(rows, scales.scale[1], scales.amax[1], false)
  local w = C.fp8_quantize(weight, scales.scale[2], scales.amax[2], false)
  ctx:save_for_backward(x, w)
  ctx.scales, ctx.e5m2, ctx.shape = scales, e5m2, input:shape()
  ctx.input_dtype, ctx.weight_dtype = input.dtype, weight.dtype
  local size = input:shape()
  size[#size] = weight:size(0)
  return C.fp8_matmul(x, w, scales.inverse[1], scales.inverse[2], bias or nil, false, false, input.dtype):reshape(size)
end

function Fp8Linear.backward(ctx, grad)
  local x, w = ctx.saved_tensors[1], ctx.saved_tensors[2]
  local scales, e5m2, wants = ctx.scales, ctx.e5m2, ctx.needs_input_grad
  local rows = grad:reshape {-1, w:size(0)}
  local g = C.fp8_quantize(rows, scales.scale[3], scales.amax[3], e5m2)
  local of_input = wants[1]
    and C.fp8_matmul(g, w:t(), scales.inverse[3], scales.inverse[2], nil, e5m2, false, ctx.input_dtype)
  local of_weight = wants[2]
    and C.fp8_matmul(g:t(), x:t(), scales.inverse[3], scales.inverse[1], nil, e5m2, false, ctx.weight_dtype)
  local of_bias = wants[3] and C.column_sum(rows)
  return of_input and of_input:reshape(ctx.shape) or nil, of_weight or nil, of_bias or nil
end

-- The scales of a model's layers, with the amaxes from which they are made: a column for each tensor of a layer.
local Scales = class.new "Scales"

function Scales:init(recipe, names, device)
  local columns = TENSORS * #names
  local options = {dtype = "float32", device = device}
  self.recipe, self.names, self.updates = recipe, names, 0
  self.history = C.zeros({recipe.amax_history_len, columns}, options) -- the newest amaxes in row 0
  self.scale = C.ones({columns}, options)
  local largest = {}
  for i = 1, columns do
    local is_gradient = i % TENSORS == 0
    largest[i] = is_gradient and recipe.fp8_format == "HYBRID" and E5M2_MAX or E4M3_MAX
  end
  self.largest = C.tensor(largest, options)
  self.newest = self.history:select(0, 0)
  self.layers = {}
end

-- Copies of the scales and their inverses, which later updates leave alone, as views for each layer. A captured step
-- has its own.
local function snapshot(self)
  local step = host_updates.current() or false
  if self.copied == nil or self.copied_in ~= step then
    self.copied, self.copied_in = C.stack({self.scale, self.scale:reciprocal()}, 0), step
    self.layers = {}
  end
  return self.copied
end

--- Return the scales, inverse scales and amaxes of layer i, each of its TENSORS tensors. Without `records` amaxes are
--- not kept.
---@param records boolean
---@return {scale: Tensor[], inverse: Tensor[], amax: Tensor[]}
function Scales:layer(i, records)
  local copied = snapshot(self)
  local layer = self.layers[i]
  if not layer then
    layer = {scale = {}, inverse = {}, amax = {}, none = {}}
    for k = 1, TENSORS do
      local column = TENSORS * (i - 1) + k - 1
      layer.scale[k], layer.inverse[k] = copied[0][column], copied[1][column]
      layer.amax[k] = self.newest[column]
    end
    self.layers[i] = layer
  end
  if records then return layer end
  return {scale = layer.scale, inverse = layer.inverse, amax = layer.none}
end

-- The scales that the history leads to; those of tensors without numbers, or with infinite ones, stay.
local function next_scales(self)
  local recipe = self.recipe
  local amax = recipe.amax_compute_algo == "max" and self.history:amax(0) or self.newest
  local scale = (self.largest / amax / 2 ^ recipe.margin):clamp {max = FLOAT_MAX}
  return C.where(amax:gt(0):logical_and(amax:isfinite()), scale, self.scale)
end

--- Compute the next scales, from the largest amaxes of all processes, and begin the next row of the history. A
--- collective. Without an amax since the last update everything stays.
function Scales:update()
  if C.comm.size() > 1 then C.comm.all_reduce(self.newest, "max") end
  self.updates = self.updates + 1
  if self.updates % self.recipe.interval == 0 then self.scale:copy_(next_scales(self)) end
  if self.history:size(0) > 1 then
    local was_used = self.newest:ne(0):any()
    self.history:copy_(C.where(was_used, self.history:roll(-1, 0), self.history))
  end
  self.newest:zero_()
  self.copied = nil
end

---@return table
function Scales:state_dict()
  return {history = self.history, scale = self.scale, names = self.names, updates = self.updates}
end

---@param state table
function Scales:load_state_dict(state)
  local there, here = state.history:shape(), self.history:shape()
  if there[1] ~= here[1] or there[2] ~= here[2] then
    fail("load_state: FP8: expected %d amaxes of %d layers, got %d of %d", here[1], here[2] / TENSORS, there[1],
      there[2] / TENSORS)
  end
  self.history:copy_(state.history)
  self.scale:copy_(state.scale)
  self.updates, self.copied = state.updates, nil
end

class.guard(Scales)

---@field recipe TERecipeKwargs
---@field models table<Module, Scales> of prepared models
local Fp8 = class.new "Fp8"

---@param recipe TERecipeKwargs
function Fp8:init(accelerator, recipe)
  self.accelerator, self.recipe = accelerator, recipe
  self:reset()
end

--- Forget all models.
function Fp8:reset() self.models = setmetatable({}, {__mode = "k"}) end

-- Does a layer compute in FP8 now? Within autocast, in training, if its input has numbers.
local function is_active(recipe, layer, input)
  if not (layer.training or recipe.use_autocast_during_eval) or not C.is_tensor(input) then return nil end
  local enabled, dtype = C.autocast.state(input.device:match "^%a+")
  local fits = input:is_floating_point() and input.dtype ~= "float64" and input:numel() > 0
  return enabled and fits and dtype or nil
end

-- The forward of layer i.
local function forward_of(scales, i)
  local recipe = scales.recipe
  local e5m2 = recipe.fp8_format == "HYBRID"
  return function(layer, input)
    local dtype = is_active(recipe, layer, input)
    if not dtype then return Linear.forward(layer, input) end
    local bias = layer.bias
    return Fp8Linear.apply(input:to(dtype), layer.weight, bias and bias:to(dtype) or false,
      scales:layer(i, layer.training and C.autograd.is_grad_enabled()), e5m2)
  end
end

-- Has a linear layer 8-bit products?
local function is_suited(module)
  if class.of(module) ~= Linear or module.forward ~= Linear.forward then return false end
  local weight = module.weight
  return module.in_features % MULTIPLE == 0 and module.out_features % MULTIPLE == 0 and weight.dtype ~= "float64"
end

--- Have a model's linear layers compute in FP8: those of class nn.Linear whose sizes are multiples of 16.
function Fp8:prepare(model)
  if self.models[model] then return end
  local names, layers, seen = {}, {}, {}
  for name, module in model:named_modules() do
    if not seen[module] and is_suited(module) then
      names[#names + 1], layers[#layers + 1] = name, module
      seen[module] = true
    end
  end
  if #names == 0 then
    fail("prepare: mixed_precision = 'fp8': the model has no nn.Linear whose sizes are multiples of %d; use 'bf16'",
      MULTIPLE)
  end
  local scales = Scales(self.recipe, names, layers[1].weight.device)
  self.models[model] = scales
  for i, layer in ipairs(layers) do layer.forward = forward_of(scales, i) end
end

--- Restore the layers' own forwards.
function Fp8:restore(model)
  local scales = self.models[model]
  if not scales then return end
  self.models[model] = nil
  local is_ours = {}
  for _, name in ipairs(scales.names) do is_ours[name] = true end
  for name, module in model:named_modules() do
    if is_ours[name] then module.forward = nil end
  end
end

--- Return the scales of the prepared models, in their order.
function Fp8:states()
  local list = {}
  for _, model in ipairs(self.accelerator._prepared:list "model") do list[#list + 1] = self.models[model] end
  return list
end

--- Update the scales after a backward that synchronised a model. A collective then.
function Fp8:end_backward()
  for _, handle in ipairs(averaging.of(self.accelerator)) do
    if handle.sync then
      C.autograd.no_grad(function()
        for _, scales in ipairs(self:states()) do scales:update() end
      end)
      return
    end
  end
end

return class.guard(Fp8)
