--- LambdaLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

--- lr = initial lr * lr_lambda(epoch); a function, or one per group.
--
--   local schedule = optim.lr_scheduler.LambdaLR(optimizer, function(epoch) return 0.9 ^ epoch end)
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.09
local LambdaLR = LRScheduler:define("LambdaLR", {"lr_lambda: callable|list"})

function LambdaLR:check()
  self.lr_lambdas = self:functions_per_group("lr_lambda", self.lr_lambda)
end

function LambdaLR:get_lr()
  return self:each_group(function(_, base, i) return base * self.lr_lambdas[i](self.last_epoch) end)
end

return LambdaLR
