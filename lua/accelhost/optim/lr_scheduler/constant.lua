--- ConstantLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr * factor until total_iters, then the full lr.
--
--   local schedule = optim.lr_scheduler.ConstantLR(optimizer, {factor = 0.5, total_iters = 4})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.05
local ConstantLR = LRScheduler:define("ConstantLR", {{"factor: probability", 1.0 / 3}, {"total_iters: size", 5}})

function ConstantLR:get_lr()
  if self.last_epoch == 0 then return self:each_group(function(group) return group.lr * self.factor end) end
  if self.last_epoch ~= self.total_iters then return self:current_lrs() end
  return self:each_group(function(group) return group.lr * (1.0 / self.factor) end)
end

--- The same from the initial rates.
function ConstantLR:closed_form()
  local done = self.last_epoch >= self.total_iters and 1 or 0
  return self:each_group(function(_, base) return base * (self.factor + done * (1 - self.factor)) end)
end

return ConstantLR
