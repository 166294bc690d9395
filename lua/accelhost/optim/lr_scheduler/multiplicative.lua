--- MultiplicativeLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr *= lr_lambda(epoch); a function, or one per group.
--
--   local schedule = optim.lr_scheduler.MultiplicativeLR(optimizer, function() return 0.5 end)
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.05
local MultiplicativeLR = LRScheduler:define("MultiplicativeLR", {"lr_lambda: callable|list"})

function MultiplicativeLR:check()
  self.lr_lambdas = self:functions_per_group("lr_lambda", self.lr_lambda)
end

function MultiplicativeLR:get_lr()
  if self.starting then return self:current_lrs() end
  return self:each_group(function(group, _, i) return group.lr * self.lr_lambdas[i](self.last_epoch) end)
end

return MultiplicativeLR
