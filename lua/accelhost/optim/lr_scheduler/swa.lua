--- SWALR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"

local strategies = {
  cos = function(t) return (1 - math.cos(math.pi * t)) / 2 end,
  linear = function(t) return t end,
}

--- From the rate in force to swa_lr (one, or one per group) in anneal_epochs steps, and on at that rate: for the epochs
--- over which weights are averaged.
--
--   local scheduler = optim.swa_utils.SWALR(optimizer, {swa_lr = 0.05})
local SWALR = LRScheduler:define("SWALR", {
  "swa_lr: numbers", {"anneal_epochs: size", 10}, {"anneal_strategy: 'cos'|'linear'", "cos"},
})

function SWALR:check()
  local rates = self:per_group("swa_lr", self.swa_lr)
  for i, group in ipairs(self.optimizer.param_groups) do group.swa_lr = rates[i] end
end

function SWALR:get_lr()
  local anneal, length = strategies[self.anneal_strategy], math.max(1, self.anneal_epochs)
  local step = self._step_count - 1
  if self.anneal_epochs == 0 then step = math.max(1, step) end
  local before = anneal(math.max(0, math.min(1, (step - 1) / length)))
  local now = anneal(math.max(0, math.min(1, step / length)))
  return self:each_group(function(group)
    local from = before == 1 and group.swa_lr or (group.lr - before * group.swa_lr) / (1 - before)
    return group.swa_lr * now + from * (1 - now)
  end)
end

return SWALR
