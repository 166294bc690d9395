--- Schedulers made of schedulers: the base of SequentialLR and ChainedScheduler.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe

---@class PartsScheduler
local Parts = LRScheduler:extend "PartsScheduler"

--- Store the parts: all of one optimizer, the default optimizer of the schedule.
---@param schedulers LRScheduler[]
---@param optimizer Optimizer?
function Parts:take(schedulers, optimizer)
  if type(schedulers) ~= "table" or getmetatable(schedulers) ~= nil or #schedulers == 0 then
    fail("%s: expected a table of schedulers, got %s", self._name, describe(schedulers))
  end
  self.optimizer = optimizer and self:check_optimizer(optimizer)
  for i, scheduler in ipairs(schedulers) do
    if not LRScheduler.is_scheduler(scheduler) then
      fail("%s: item %d: expected a scheduler, got %s", self._name, i, describe(scheduler))
    end
    if scheduler._is_plateau then
      fail("%s: item %d: a ReduceLROnPlateau wants a metric at each step and cannot be a part", self._name, i)
    end
    self.optimizer = self.optimizer or scheduler.optimizer
    if scheduler.optimizer ~= self.optimizer then
      fail("%s: item %d: the scheduler belongs to another optimizer", self._name, i)
    end
  end
  self._schedulers = schedulers
end

--- The state, with that of the parts.
function Parts:state_dict()
  local state = LRScheduler.state_dict(self)
  state._schedulers = {}
  for i, scheduler in ipairs(self._schedulers) do state._schedulers[i] = scheduler:state_dict() end
  return state
end

function Parts:load_state_dict(state)
  LRScheduler.load_state_dict(self, state)
  for i, part in ipairs(state._schedulers or {}) do self._schedulers[i]:load_state_dict(part) end
end

return Parts
