--- Losses scaled in float16, and steps left out when their gradients overflow.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local sharded = later "accelhost.accelerator.training.sharding"
local host_updates = require "accelhost.util.host_updates"
local kind_of = require "accelhost.accelerator.process.kinds"

---@part Accelerator
---@field scaler GradScaler|false of mixed_precision = "fp16"
---@field scaled boolean was a loss scaled since the last update?
local LossScaler = class.new "LossScaler"

---@param options? GradScalerKwargs|table
function LossScaler:init(accelerator, options)
  self.accelerator, self.scaled = accelerator, false
  self.scaler = accelerator.mixed_precision == "fp16"
    and require "accelhost.amp.grad_scaler"(arguments.copy(options or {}))
end

--- Forget that a loss was scaled.
function LossScaler:reset() self.scaled = false end

-- The scaler where it scales.
local function scaler_of(self)
  local scaler = self.scaler
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
  if self.accelerator.sharding == "none" then return scaler:unscale_(optimizer) end
  sharded.unscale(scaler, optimizer)
end

-- One optimizer, a table of them, or all of an accelerator: as a list.
local function optimizers_of(self, given)
  local list = given
  if given == nil then
    list = {}
    for prepared in pairs(self.accelerator._prepared.optimizers) do list[#list + 1] = prepared end
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

--- Unscale the gradients of an optimizer, or several (default: of all that have gradients), to read
--- them or change them; the step does it otherwise. Only in a step that synchronises, and once in it: more calls do
--- nothing, nor do those with mixed_precision other than "fp16". clip_grad_norm_ and clip_grad_value_ call it.
--
--   accelerator:unscale_gradients(optimizer)
---@param optimizer? Optimizer|Optimizer[]
function LossScaler:unscale_gradients(optimizer)
  local list, known = optimizers_of(self, optimizer), self.accelerator._prepared.optimizers
  if not scaler_of(self) or not self.accelerator.sync_gradients then return end
  for _, entry in ipairs(list) do unscale_once(self, known[entry] or entry) end
end

--- Return the loss that backward starts from.
---@param loss userdata
---@return userdata
function LossScaler:scale(loss)
  local scaler = scaler_of(self)
  if not scaler then return loss end
  self:end_window()
  self.scaled = true
  if host_updates.is_recording() then
    host_updates.add(function() self.scaled = true end, function() self.scaled = false end)
  end
  return scaler:scale(loss)
end

--- End the window in which losses were scaled, at the latest when the next one begins.
function LossScaler:end_window()
  host_updates.settle()
  if scaler_of(self) then self:_update_scaler(false) end
end

--- Unscale the gradients of the optimizers that have some of these parameters.
---@param parameters userdata|userdata[]
function LossScaler:unscale_for(parameters)
  if not scaler_of(self) then return end
  local wanted = {}
  for _, parameter in ipairs(C.is_tensor(parameters) and {parameters} or parameters) do wanted[parameter] = true end
  for _, optimizer in pairs(self.accelerator._prepared.optimizers) do
    if holds(optimizer, wanted) then unscale_once(self, optimizer) end
  end
end

--- Step an optimizer that was prepared, unless its gradients overflowed, and return whether it was left out: in a step
--- that is captured, after each replay. One update for the steps of all prepared optimizers, at the latest when the
--- next backward begins.
---@param report fun(skipped: boolean)
function LossScaler:step(optimizer, report, ...)
  local scaler = scaler_of(self)
  if not scaler then return optimizer:step(...) end
  if not self.scaled then
    arguments.fail("%s:step: the gradients are not of accelerator:backward, which scales the loss for "
      .. "mixed_precision = 'fp16'", optimizer._name)
  end
  local result = scaler:step(optimizer, ...)
  local function report_outcome()
    report(scaler:_overflowed(optimizer))
  end
  if host_updates.is_recording() then
    host_updates.after_settle(report_outcome)
  else
    report_outcome()
  end
  self:_update_scaler(true)
  return result
end

--- Unscale an optimizer's gradients before its step does.
function LossScaler:unscale_ahead(optimizer)
  if scaler_of(self) and self.scaled then unscale_once(self, optimizer) end
end

--- Return a function that reports, after a replay of the step being captured, whether the last step of an optimizer in
--- it was left out.
---@return (fun(): boolean)?
function LossScaler:outcome_of(optimizer)
  local scaler = scaler_of(self)
  return scaler and function() return scaler:_overflowed(optimizer) end
end

--- Forget that gradients were unscaled, which are dropped.
function LossScaler:forget(optimizer)
  local scaler = scaler_of(self)
  if scaler then scaler:_forget(optimizer) end
end

-- Have the scaler end the window if all optimizers, or with all = false any, stepped in it.
function LossScaler:_update_scaler(all)
  local any, every = false, true
  for _, optimizer in pairs(self.accelerator._prepared.optimizers) do
    local stepped = self.scaler:_stepped(optimizer)
    any, every = any or stepped, every and stepped
  end
  if not any or (all and not every) then return end
  self.scaler:_update_stepped()
  self.scaled = false
  if host_updates.is_recording() then
    host_updates.add(function() self.scaled = false end, function() self.scaled = true end)
  end
end

return LossScaler
