--- PolynomialLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr * (1 - epoch / total_iters)^power.
--
--   local schedule = optim.lr_scheduler.PolynomialLR(optimizer, {total_iters = 4})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.075
local PolynomialLR = LRScheduler:define("PolynomialLR", {{"total_iters: count", 5}, {"power: number", 1}})

function PolynomialLR:get_lr()
  local epoch, total = self.last_epoch, self.total_iters
  if self.starting or epoch > total then return self:current_lrs() end
  local decay = ((1 - epoch / total) / (1 - (epoch - 1) / total)) ^ self.power
  return self:each_group(function(group) return group.lr * decay end)
end

--- The same from the initial rates.
function PolynomialLR:closed_form()
  local rest = (1 - math.min(self.total_iters, self.last_epoch) / self.total_iters) ^ self.power
  return self:each_group(function(_, base) return base * rest end)
end

return PolynomialLR
