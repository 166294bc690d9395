--- ExponentialLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr *= gamma every epoch.
--
--   local schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.09
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
