--- ExponentialLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr *= gamma every epoch.
---@class ExponentialLR: LRScheduler
local ExponentialLR = LRScheduler:define("ExponentialLR", {"gamma: number"})

function ExponentialLR:get_lr()
  if self.starting then return self:current_lrs() end
  return self:each_group(function(group) return group.lr * self.gamma end)
end

--- The same from the initial rates.
function ExponentialLR:closed_form()
  return self:each_group(function(_, base) return base * self.gamma ^ self.last_epoch end)
end

return ExponentialLR
