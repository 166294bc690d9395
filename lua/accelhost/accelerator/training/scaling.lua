--- Losses scaled in float16, and steps left out when their gradients overflow.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local sharded = later "accelhost.accelerator.training.sharding"
local tape = require "accelhost.util.tape"
local kind_of = require "accelhost.accelerator.process.kinds"

-- The scaler where it scales.
local function scaler_of(self)
  local scaler = self._scaler
  return scaler and scaler:is_enabled() and scaler or nil
end

-- Has one of the parameters a place in the optimizer?
local function holds(optimizer, wanted)
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      if wanted[parameter] then return true end
    end
  end
  return false
end

local function has_gradients(optimizer)
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      if parameter.grad ~= nil then return true end
    end
  end
  return false
end

-- Unscale an optimizer's gradients, if it has any, unless that was done since its last step.
local function unscale_once(self, optimizer)
  local scaler = scaler_of(self)
  if scaler:_unscaled(optimizer) or not has_gradients(optimizer) then return end
  if self.sharding == "none" then return scaler:unscale_(optimizer) end
  sharded.unscale(scaler, optimizer)
end

-- One optimizer, a table of them, or all of an accelerator: as a list.
local function optimizers_of(self, given)
  local list = given
  if given == nil then
    list = {}
    for prepared in pairs(self._optimizers) do list[#list + 1] = prepared end
  elseif kind_of(given) == "optimizer" then
    list = {given}
  end
  for i = 1, type(list) == "table" and #list or 0 do
    if kind_of(list[i]) ~= "optimizer" then
      list = nil
      break
    end
  end
  if type(list) == "table" then return list end
  arguments.fail("unscale_gradients: expected an optimizer, a table of them or nothing, got %s",
    arguments.describe(given))
end

--- Give the Accelerator class its scaler and unscale_gradients.
---@param Accelerator table
---@return fun(self: Accelerator) begin
return function(Accelerator)
  --- Unscale the gradients of an optimizer, or several (default: of all that have gradients), to read
  --- them or change them; the step does it otherwise. Only in a step that synchronises, and once in it: more calls do
  --- nothing, nor do those with mixed_precision other than "fp16". clip_grad_norm_ and clip_grad_value_ call it.
  --
  --   accelerator:unscale_gradients(optimizer)
  ---@param optimizer? Optimizer|Optimizer[]
  function Accelerator:unscale_gradients(optimizer)
    local list = optimizers_of(self, optimizer)
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

  -- Make the scaler.
  function Accelerator:_init_scaler(options)
    self._scaler = self.mixed_precision == "fp16"
      and require "accelhost.amp.grad_scaler"(arguments.copy(options or {}))
  end

  -- The loss that backward starts from.
  function Accelerator:_scale_loss(loss)
    local scaler = scaler_of(self)
    if not scaler then return loss end
    self:_end_scaled()
    self._scaled = true
    if tape.is_recording() then
      tape.note(function() self._scaled = true end, function() self._scaled = false end)
    end
    return scaler:scale(loss)
  end

  -- A window is over when the next one begins, at the latest.
  function Accelerator:_end_scaled()
    tape.settle()
    if scaler_of(self) then self:_update_scaler(false) end
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

  -- Step an optimizer that was prepared, unless its gradients overflowed, and return whether it was left out: in a step
  -- that is captured, after each replay. One update for the steps of all prepared optimizers, at the latest when the
  -- next backward begins.
  function Accelerator:_step_scaled(optimizer, tell, ...)
    local scaler = scaler_of(self)
    if not scaler then return optimizer:step(...) end
    if not self._scaled then
      arguments.fail("%s:step: the gradients are not of accelerator:backward, which scales the loss for "
        .. "mixed_precision = 'fp16'", optimizer._name)
    end
    local result = scaler:step(optimizer, ...)
    local function tell_outcome()
      tell(scaler:_overflowed(optimizer))
    end
    if tape.is_recording() then
      tape.note_settled(tell_outcome)
    else
      tell_outcome()
    end
    self:_update_scaler(true)
    return result
  end

  -- Unscale what a step would, ahead of it.
  function Accelerator:_unscale_ahead(optimizer)
    if scaler_of(self) and self._scaled then unscale_once(self, optimizer) end
  end

  -- Return a function that reports, after a replay of the step being captured, whether the last step of an optimizer in
  -- it was left out.
  function Accelerator:_outcome_of(optimizer)
    local scaler = scaler_of(self)
    return scaler and function() return scaler:_overflowed(optimizer) end
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
    if tape.is_recording() then
      tape.note(function() self._scaled = false end, function() self._scaled = true end)
    end
  end

  return function(self)
    self._scaled = false -- was a loss scaled since the last update?
  end
end
