--- CyclicLR.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local momentum = require "accelhost.optim.lr_scheduler.momentum"

local floor = math.floor

--- Between base_lr and max_lr and back, again and again. One step per batch.
--
--   local schedule = optim.lr_scheduler.CyclicLR(optimizer, {base_lr = 0.01, max_lr = 0.1})
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.010045
local CyclicLR = LRScheduler:define("CyclicLR", {
  "base_lr: numbers", "max_lr: numbers", {"step_size_up: positive", 2000}, {"step_size_down: positive"},
  {"mode: 'triangular'|'triangular2'|'exp_range'", "triangular"}, {"gamma: number", 1}, {"scale_fn: function"},
  {"scale_mode: 'cycle'|'iterations'", "cycle"}, {"cycle_momentum: flag", true}, {"base_momentum: numbers", 0.8},
  {"max_momentum: numbers", 0.9},
}, {"max_lrs", "total_size", "step_ratio", "base_momentums", "max_momentums"})

-- mode -> the unit that the height of a cycle depends on, and the height
local scales = {
  triangular = {"cycle", function() return 1 end},
  triangular2 = {"cycle", function(x) return 1 / 2 ^ (x - 1) end},
  exp_range = {"iterations", function(x, gamma) return gamma ^ x end},
}

function CyclicLR:check(last_epoch)
  local base_lrs = self:per_group("base_lr", self.base_lr)
  for i, group in ipairs(last_epoch == -1 and self.optimizer.param_groups or {}) do group.lr = base_lrs[i] end
  self.max_lrs = self:per_group("max_lr", self.max_lr)
  self.total_size = self.step_size_up + (self.step_size_down or self.step_size_up)
  self.step_ratio = self.step_size_up / self.total_size
  if not self.scale_fn then self.scale_mode = scales[self.mode][1] end
  if self.cycle_momentum then
    self.base_momentums, self.max_momentums = momentum.start(self, last_epoch == -1)
  end
  self._cycle_bases = base_lrs
end

function CyclicLR:setup(optimizer, last_epoch)
  LRScheduler.setup(self, optimizer, last_epoch)
  self.base_lrs = self._cycle_bases
end

function CyclicLR:get_lr()
  local cycle = floor(1 + self.last_epoch / self.total_size)
  local x = 1 + self.last_epoch / self.total_size - cycle
  local height = x <= self.step_ratio and x / self.step_ratio or (x - 1) / (self.step_ratio - 1)
  local scale = (self.scale_fn or scales[self.mode][2])(self.scale_mode == "cycle" and cycle or self.last_epoch,
    self.gamma)
  return self:each_group(function(group, _, i)
    if self.cycle_momentum then
      local high = self.max_momentums[i]
      momentum.set(group, high - (high - self.base_momentums[i]) * height * scale)
    end
    local base = self._cycle_bases[i]
    return base + (self.max_lrs[i] - base) * height * scale
  end)
end

return CyclicLR
