--- StepLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr *= gamma every step_size epochs.
--
--   local schedule = optim.lr_scheduler.StepLR(optimizer, 1)
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.01
local StepLR = LRScheduler:define("StepLR", {"step_size: count", {"gamma: number", 0.1}})

function StepLR:get_lr()
  if self.last_epoch == 0 or self.last_epoch % self.step_size ~= 0 then return self:current_lrs() end
  return self:each_group(function(group) return group.lr * self.gamma end)
end

--- The same from the initial rates.
function StepLR:closed_form()
  return self:each_group(function(_, base) return base * self.gamma ^ math.floor(self.last_epoch / self.step_size) end)
end

return StepLR
