--- CosineAnnealingLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

local cos, pi = math.cos, math.pi

--- Half a cosine from lr down to eta_min in T_max epochs, then up again.
--
--   local schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 10})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.097552825814758
local CosineAnnealingLR = LRScheduler:define("CosineAnnealingLR", {"T_max: count", {"eta_min: number", 0}})

function CosineAnnealingLR:get_lr()
  local epoch, T_max, eta_min = self.last_epoch, self.T_max, self.eta_min
  if self.starting then return self:current_lrs() end
  if self._step_count == 1 and epoch > 0 then return self:closed_form() end
  if (epoch - 1 - T_max) % (2 * T_max) == 0 then
    return self:each_group(function(group, base) return group.lr + (base - eta_min) * (1 - cos(pi / T_max)) / 2 end)
  end
  return self:each_group(function(group)
    return (1 + cos(pi * epoch / T_max)) / (1 + cos(pi * (epoch - 1) / T_max)) * (group.lr - eta_min) + eta_min
  end)
end

--- The same from the initial rates.
function CosineAnnealingLR:closed_form()
  return self:each_group(function(_, base)
    return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.last_epoch / self.T_max)) / 2
  end)
end

return CosineAnnealingLR
