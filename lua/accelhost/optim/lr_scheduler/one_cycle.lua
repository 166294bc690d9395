--- OneCycleLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"
local momentum = require "accelhost.optim.lr_scheduler.momentum"

local cos, pi = math.cos, math.pi

--- The 1cycle policy: up to max_lr, then down to far below the initial rate; momentum the other way. One step per
-- batch.
--
--   local schedule = optim.lr_scheduler.OneCycleLR(optimizer, {max_lr = 0.1, total_steps = 10})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.052
local OneCycleLR = LRScheduler:define("OneCycleLR", {
  "max_lr: numbers", {"total_steps: count"}, {"epochs: count"}, {"steps_per_epoch: count"},
  {"pct_start: probability", 0.3}, {"anneal_strategy: 'cos'|'linear'", "cos"}, {"cycle_momentum: flag", true},
  {"base_momentum: numbers", 0.85}, {"max_momentum: numbers", 0.95}, {"div_factor: positive", 25},
  {"final_div_factor: positive", 1e4}, {"three_phase: flag", false},
})

local anneal = {
  cos = function(from, to, part) return to + (from - to) / 2 * (cos(pi * part) + 1) end,
  linear = function(from, to, part) return (to - from) * part + from end,
}

-- A phase runs to the step `stop`, between two fields of a group.
local function phases_of(self)
  local start, total = self.pct_start * self.total_steps, self.total_steps
  local function phase(stop, from, to, from_momentum, to_momentum)
    return {stop = stop, from = from, to = to, from_momentum = from_momentum, to_momentum = to_momentum}
  end
  local up = phase(start - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
  if self.three_phase then
    return {up, phase(2 * start - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
      phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")}
  end
  return {up, phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")}
end

function OneCycleLR:check(last_epoch)
  if self.total_steps == nil then
    if self.epochs == nil or self.steps_per_epoch == nil then
      arguments.fail("OneCycleLR: pass total_steps, or epochs and steps_per_epoch")
    end
    self.total_steps = self.epochs * self.steps_per_epoch
  end
  self._phases = phases_of(self)
  local max_lrs = self:per_group("max_lr", self.max_lr)
  for i, group in ipairs(last_epoch == -1 and self.optimizer.param_groups or {}) do
    group.initial_lr = max_lrs[i] / self.div_factor
    group.max_lr = max_lrs[i]
    group.min_lr = group.initial_lr / self.final_div_factor
  end
  if self.cycle_momentum then momentum.start(self, last_epoch == -1) end
end

function OneCycleLR:get_lr()
  local step, curve = self.last_epoch, anneal[self.anneal_strategy]
  if step > self.total_steps then
    arguments.fail("OneCycleLR: step %d, but total_steps is %d", step + 1, self.total_steps)
  end
  return self:each_group(function(group)
    local start = 0
    for i, phase in ipairs(self._phases) do
      if step <= phase.stop or i == #self._phases then
        local part = (step - start) / (phase.stop - start)
        if self.cycle_momentum then
          momentum.set(group, curve(group[phase.from_momentum], group[phase.to_momentum], part))
        end
        return curve(group[phase.from], group[phase.to], part)
      end
      start = phase.stop
    end
  end)
end

return OneCycleLR
