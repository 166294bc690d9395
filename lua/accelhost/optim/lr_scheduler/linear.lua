--- LinearLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"

--- From lr * start_factor to lr * end_factor in total_iters equal steps.
--
--   local schedule = optim.lr_scheduler.LinearLR(optimizer, {total_iters = 4})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.05
local LinearLR = LRScheduler:define("LinearLR",
  {{"start_factor: probability", 1.0 / 3}, {"end_factor: probability", 1}, {"total_iters: size", 5}})

function LinearLR:check()
  if self.start_factor == 0 then
    arguments.fail("LinearLR: start_factor: expected a number above 0 and up to 1, got 0")
  end
end

function LinearLR:get_lr()
  local epoch, start, total = self.last_epoch, self.start_factor, self.total_iters
  local change = self.end_factor - start
  if epoch == 0 then return self:each_group(function(group) return group.lr * start end) end
  if self.starting or epoch > total then return self:current_lrs() end
  return self:each_group(function(group)
    return group.lr * (1 + change / (total * start + (epoch - 1) * change))
  end)
end

--- The same from the initial rates.
function LinearLR:closed_form()
  local change = self.end_factor - self.start_factor
  return self:each_group(function(_, base)
    return base * (self.start_factor + change * math.min(self.total_iters, self.last_epoch) / self.total_iters)
  end)
end

return LinearLR
