--- MultiStepLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr *= gamma at each milestone.
--
--   local schedule = optim.lr_scheduler.MultiStepLR(optimizer, {milestones = {1, 5}})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.01
local MultiStepLR = LRScheduler:define("MultiStepLR", {"milestones: numbers", {"gamma: number", 0.1}})

-- Count the milestones that are <= epoch.
local function passed(milestones, epoch)
  local count = 0
  for _, milestone in ipairs(milestones) do
    if milestone <= epoch then count = count + 1 end
  end
  return count
end

function MultiStepLR:check()
  local milestones = self.milestones
  self.milestones = type(milestones) == "table" and {unpack(milestones)} or {milestones}
  table.sort(self.milestones)
end

function MultiStepLR:get_lr()
  local hits = passed(self.milestones, self.last_epoch) - passed(self.milestones, self.last_epoch - 1)
  if hits == 0 then return self:current_lrs() end
  return self:each_group(function(group) return group.lr * self.gamma ^ hits end)
end

--- The same from the initial rates.
function MultiStepLR:closed_form()
  local hits = passed(self.milestones, self.last_epoch)
  return self:each_group(function(_, base) return base * self.gamma ^ hits end)
end

return MultiStepLR
