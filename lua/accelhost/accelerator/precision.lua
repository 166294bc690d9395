--- What is computed in which precision: forwards of prepared models under autocast, losses scaled in float16, steps left
--- out when that overflows.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configuration = require "accelhost.accelerator.configuration"

local precision = {}

local halves = {bf16 = "bfloat16", fp16 = "float16"}

--- Raise unless a device can compute in a precision.
---@param mixed_precision string
---@param device string
function precision.check(mixed_precision, device)
  if mixed_precision ~= "no" and device ~= "cpu" then
    arguments.fail("Accelerator: mixed_precision = '%s': only tensors on the CPU are cast, the device is %s",
      mixed_precision, device)
  end
end

--- The scaler of an accelerator: false but for fp16.
---@param given {mixed_precision: string, scaler_handler: GradScalerKwargs?}
---@return GradScaler|false
function precision.scaler(given)
  if given.mixed_precision ~= "fp16" then return false end
  return require "accelhost.amp.grad_scaler"(arguments.copy(given.scaler_handler or {}))
end

-- The scaler where it scales.
local function scaler_of(self)
  local scaler = self._scaler
  return scaler and scaler:is_enabled() and scaler or nil
end

-- Half tensors of what a model gives as float32; in plain tables, too.
local function widened(value)
  if C.is_tensor(value) then
    local half = value.dtype == "bfloat16" or value.dtype == "float16"
    return half and value:to "float32" or value
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local copy = {}
  for key, item in next, value do copy[key] = widened(item) end
  return copy
end

local function widened_all(...)
  local count = select("#", ...)
  if count == 1 then return widened((...)) end
  local results = {...}
  for i = 1, count do results[i] = widened(results[i]) end
  return unpack(results, 1, count)
end

-- The autocast of an accelerator: fn in its precision, or as the handler says.
local function run(self, handler, fn, ...)
  local dtype = halves[self.mixed_precision]
  handler = handler or self._autocast_handler
  if not dtype then return fn(...) end
  return C.autocast.run(not handler or handler.enabled, dtype, not handler or handler.cache_enabled, fn, ...)
end

-- model -> its own forward, while it has one that runs under autocast
local own_forward = setmetatable({}, {__mode = "k"})

-- Has one of the parameters a place in the optimizer?
local function holds(optimizer, wanted)
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      if wanted[parameter] then return true end
    end
  end
  return false
end

-- Unscale an optimizer's gradients unless that was done since its last step.
local function unscale_once(self, optimizer)
  local scaler = scaler_of(self)
  if not scaler:_unscaled(optimizer) then scaler:unscale_(optimizer) end
end

--- Give the Accelerator class autocast, unscale_gradients and its scaler.
---@param Accelerator table
---@return fun(self: Accelerator) begin
local function install(Accelerator)
  --- Run fn as the forward of a prepared model runs: with mixed_precision "bf16" or "fp16" under autocast, with "no" in
  --- the dtypes that its tensors have. A handler with enabled = false makes an island of full precision.
  --
  --   accelerator:autocast(function() return 7 end)  --> 7
  --   accelerator:autocast({enabled = false}, function() return 7 end)  --> 7
  ---@param handler? AutocastKwargs|function in place of the accelerator's; or fn at once
  ---@param fn? function
  ---@return any # what fn returns
  function Accelerator:autocast(handler, fn)
    if type(handler) == "function" and fn == nil then
      handler, fn = nil, handler
    end
    if handler ~= nil then handler = configuration.of("autocast: handler", "AutocastKwargs", handler) end
    arguments.check("autocast", "fn", "function", fn)
    return run(self, handler, fn)
  end

  --- Take the scale out of the gradients of an optimizer, or several (default: of all that have gradients), to look at
  --- them or change them; the step does it otherwise. Only in a step that synchronises, and once in it: more calls do
  --- nothing, nor do those with mixed_precision other than "fp16". clip_grad_norm_ and clip_grad_value_ call it.
  --
  --   accelerator:unscale_gradients(optimizer)
  ---@param optimizer? Optimizer|Optimizer[]
  function Accelerator:unscale_gradients(optimizer)
    local kind = require "accelhost.accelerator.kinds"
    local list = optimizer
    if optimizer == nil then
      list = {}
      for prepared in pairs(self._optimizers) do list[#list + 1] = prepared end
    elseif kind(optimizer) == "optimizer" then
      list = {optimizer}
    end
    for i = 1, type(list) == "table" and #list or 0 do
      if kind(list[i]) ~= "optimizer" then list = nil break end
    end
    if type(list) ~= "table" then
      arguments.fail("unscale_gradients: expected an optimizer, a table of them or nothing, got %s",
        arguments.describe(optimizer))
    end
    if not scaler_of(self) or not self.sync_gradients then return end
    for _, entry in ipairs(list) do unscale_once(self, self._optimizers[entry] or entry) end
  end

  class.property(Accelerator, "scaler", function(self) return self._scaler or nil end)
  class.property(Accelerator, "optimizer_step_was_skipped", function(self)
    for optimizer in pairs(self._optimizers) do
      if optimizer.step_was_skipped then return true end
    end
    return false
  end)

  -- Let a model's forward run under autocast, and give float32.
  function Accelerator:_cast_forward(model)
    if self.mixed_precision == "no" or own_forward[model] then return end
    local forward = model.forward
    own_forward[model] = forward
    model.forward = function(...)
      return widened_all(run(self, nil, forward, ...))
    end
  end

  -- Give a model its own forward back.
  function Accelerator:_restore_forward(model) -- luacheck: ignore self
    if not own_forward[model] then return end
    model.forward = nil
    if model.forward ~= own_forward[model] then model.forward = own_forward[model] end
    own_forward[model] = nil
  end

  -- The loss that backward starts from.
  function Accelerator:_scale_loss(loss)
    local scaler = scaler_of(self)
    if not scaler then return loss end
    self:_update_scaler(false)
    self._scaled = true
    return scaler:scale(loss)
  end

  -- Unscale the gradients of the optimizers that have some of these parameters.
  function Accelerator:_unscale_for(parameters)
    if not scaler_of(self) then return end
    local wanted = {}
    for _, parameter in ipairs(C.is_tensor(parameters) and {parameters} or parameters) do wanted[parameter] = true end
    for _, optimizer in pairs(self._optimizers) do
      if holds(optimizer, wanted) then unscale_once(self, optimizer) end
    end
  end

  -- Step an optimizer that was prepared, unless its gradients overflowed; was it left out? One update for the steps of
  -- all prepared optimizers, at the latest when the next backward begins.
  function Accelerator:_step_scaled(optimizer, ...)
    local scaler = scaler_of(self)
    if not scaler then return false, optimizer:step(...) end
    if not self._scaled then
      arguments.fail("%s:step: the gradients are not of accelerator:backward, which scales the loss for "
        .. "mixed_precision = 'fp16'", optimizer._name)
    end
    local result = scaler:step(optimizer, ...)
    local skipped = scaler:_overflowed(optimizer)
    self:_update_scaler(true)
    return skipped, result
  end

  -- Gradients that are dropped were unscaled for nothing.
  function Accelerator:_forget_unscaled(optimizer)
    local scaler = scaler_of(self)
    if scaler then scaler:_forget(optimizer) end
  end

  -- Have the scaler end the window if all optimizers, or with all = false any, stepped in it.
  function Accelerator:_update_scaler(all)
    local any, every = false, true
    for _, optimizer in pairs(self._optimizers) do
      local stepped = self._scaler:_stepped(optimizer)
      any, every = any or stepped, every and stepped
    end
    if not any or (all and not every) then return end
    self._scaler:_update_stepped()
    self._scaled = false
  end

  return function(self)
    self._scaled = false -- was a loss scaled since the last update?
  end
end

return setmetatable(precision, {__call = function(_, Accelerator) return install(Accelerator) end})
