--- ChainedScheduler.
local Parts = require "accelhost.optim.lr_scheduler.parts"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"

--- All schedulers step together; their effects multiply.
--
--   local parts = {optim.lr_scheduler.ConstantLR(optimizer), optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}
--   optim.lr_scheduler.ChainedScheduler(parts):get_last_lr()[1]  --> 0.033333333333333
local ChainedScheduler = Parts:extend "ChainedScheduler"
local read = arguments.signature("ChainedScheduler", {"schedulers", {"optimizer"}})

function ChainedScheduler:init(...)
  self:take(read(...))
  self._last_lr = self:current_lrs()
end

function ChainedScheduler:_initial_step()
  for _, scheduler in ipairs(self._schedulers) do scheduler:_initial_step() end
  self._last_lr = self:current_lrs()
end

function ChainedScheduler:_move_to(epoch)
  for _, scheduler in ipairs(self._schedulers) do scheduler:_move_to(epoch) end
  self._last_lr = self:current_lrs()
end

function ChainedScheduler:step()
  if host_updates.is_recording() then return self:_step_captured() end
  for _, scheduler in ipairs(self._schedulers) do scheduler:step() end
  self._last_lr = self:current_lrs()
end

return ChainedScheduler
