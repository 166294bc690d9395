--- SequentialLR.
local Parts = require "accelhost.optim.lr_scheduler.parts"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"

--- One scheduler after the other; milestones are the epochs at which the next one starts (from its own epoch 0).
--
--   local parts = {optim.lr_scheduler.ConstantLR(optimizer), optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}
--   optim.lr_scheduler.SequentialLR(optimizer, parts, {2}):get_last_lr()[1]  --> 0.033333333333333
local SequentialLR = Parts:extend("SequentialLR", {"_milestones"})
local read = arguments.signature("SequentialLR",
  {"optimizer", "schedulers", "milestones: list", {"last_epoch: integer", -1}})

-- Return the part that runs at an epoch.
local function part_at(self, epoch)
  local place = 1
  for _, milestone in ipairs(self._milestones) do
    if milestone <= epoch then place = place + 1 end
  end
  return place, self._schedulers[place]
end

-- Revert the step of the scheduler's constructor.
local function undo(scheduler)
  if scheduler._schedulers then
    for _, part in ipairs(scheduler._schedulers) do undo(part) end
  else
    scheduler.last_epoch = scheduler.last_epoch - 1
  end
end

function SequentialLR:init(...)
  local optimizer, schedulers, milestones, last_epoch = read(...)
  self:take(schedulers, optimizer)
  if #milestones ~= #schedulers - 1 then
    arguments.fail("SequentialLR: expected %d milestones for %d schedulers, got %d", #schedulers - 1, #schedulers,
      #milestones)
  end
  self._milestones, self.last_epoch = milestones, last_epoch + 1
  for _, group in ipairs(self.optimizer.param_groups) do group.lr = group.initial_lr end
  undo(self)
  local _, first = part_at(self, 0)
  first:_initial_step()
  self._last_lr = first:get_last_lr()
end

function SequentialLR:step()
  if host_updates.is_recording() then return self:_step_captured() end
  self.last_epoch = self.last_epoch + 1
  local place, scheduler = part_at(self, self.last_epoch)
  if place > 1 and self._milestones[place - 1] == self.last_epoch then
    scheduler:_move_to(0)
  else
    scheduler:step()
  end
  self._last_lr = scheduler:get_last_lr()
end

return SequentialLR
