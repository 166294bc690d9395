--- GreedyLR, which PyTorch does not have.
local C = require "accelhost._C"
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail

--- Raise the rates (by 1 / factor, to at most max_lr) when a metric has improved more than `patience` times in a row,
-- lower them (by factor, to at least min_lr) when it has not improved more than `patience` times in a row, as
-- transformers has it (arXiv 2512.14527). With `smooth` the mean of the last window_size metrics is followed. At
-- min_lr for reset_start reductions, all begins again. `cooldown` and `warmup` are steps without a change after a
-- reduction and after a rise.
--
--   local scheduler = optim.GreedyLR(optimizer, {patience = 0, min_lr = 1e-5})
--   scheduler:step(0.5)
local Greedy = LRScheduler:extend("GreedyLR", {"factor", "min_lrs", "max_lrs", "patience", "cooldown", "warmup",
  "cooldown_counter", "warmup_counter", "mode", "threshold", "threshold_mode", "best", "num_bad_epochs",
  "num_good_epochs", "eps", "smooth", "window_size", "reset_start", "resets_left", "init_lrs", "window"})
Greedy._is_plateau = true
local read = arguments.signature("GreedyLR", {
  "optimizer", {"mode: 'min'|'max'", "min"}, {"factor: positive", 0.95}, {"patience: size", 10},
  {"threshold: number", 1e-6}, {"threshold_mode: 'rel'|'abs'", "abs"}, {"cooldown: size", 0}, {"warmup: size", 0},
  {"min_lr: numbers", 1e-3}, {"max_lr: numbers", 1}, {"eps: number", 1e-8}, {"smooth: flag", false},
  {"window_size: count", 50}, {"reset_start: size", 500},
})

local function begin(self)
  self.best = self.mode == "min" and math.huge or -math.huge
  self.num_bad_epochs, self.num_good_epochs, self.cooldown_counter, self.warmup_counter = 0, 0, 0, 0
  self.resets_left, self.window = self.reset_start, {}
end

function Greedy:init(...)
  local optimizer
  optimizer, self.mode, self.factor, self.patience, self.threshold, self.threshold_mode, self.cooldown, self.warmup,
    self.min_lr, self.max_lr, self.eps, self.smooth, self.window_size, self.reset_start = read(...)
  if self.factor >= 1 then fail("GreedyLR: factor: expected a number below 1, got %g", self.factor) end
  self.optimizer = self:check_optimizer(optimizer)
  self.min_lrs, self.max_lrs = self:per_group("min_lr", self.min_lr), self:per_group("max_lr", self.max_lr)
  self.last_epoch = 0
  self.base_lrs, self._last_lr, self.init_lrs = self:current_lrs(), self:current_lrs(), self:current_lrs()
  begin(self)
end

-- The mean over the last metrics.
local function smoothed(self, value)
  local window, sum = self.window, 0
  window[#window + 1] = value
  if #window > self.window_size then table.remove(window, 1) end
  for _, metric in ipairs(window) do sum = sum + metric end
  return sum / #window
end

local function improves(self, value)
  local sign = self.mode == "min" and 1 or -1
  local margin = self.threshold_mode == "rel" and self.best * self.threshold * sign or self.threshold
  return value * sign < (self.best - margin * sign) * sign
end

local function raise(self)
  for i, group in ipairs(self.optimizer.param_groups) do
    local raised = math.min(group.lr / self.factor, self.max_lrs[i])
    if raised - group.lr > self.eps then group.lr = raised end
  end
  self.resets_left = self.reset_start
end

local function reduce(self)
  local lowest = true
  for i, group in ipairs(self.optimizer.param_groups) do
    local reduced = math.max(group.lr * self.factor, self.min_lrs[i])
    if group.lr - reduced > self.eps then group.lr = reduced end
    lowest = lowest and group.lr <= self.min_lrs[i]
  end
  if not lowest then return end
  self.resets_left = self.resets_left - 1
  if self.resets_left > 0 then return end
  for i, group in ipairs(self.optimizer.param_groups) do group.lr = self.init_lrs[i] end
  begin(self)
end

-- Count an epoch with or without improvement. Return true if the caller has to compare the counts.
local function count(self, value)
  if self.cooldown_counter > 0 or self.warmup_counter > 0 then
    local waiting = self.cooldown_counter > 0 and "cooldown_counter" or "warmup_counter"
    self[waiting] = self[waiting] - 1
    self.num_bad_epochs, self.num_good_epochs = 0, 0
    return false
  end
  if improves(self, value) then
    self.best, self.num_bad_epochs, self.num_good_epochs = value, 0, self.num_good_epochs + 1
  else
    self.num_bad_epochs, self.num_good_epochs = self.num_bad_epochs + 1, 0
  end
  return true
end

---@param metrics number|userdata a number or a tensor with one element
function Greedy:step(metrics)
  local value = C.is_tensor(metrics) and metrics:numel() == 1 and metrics:item() or metrics
  if type(value) ~= "number" then
    fail("GreedyLR: step: expected the metric, a number, got %s", arguments.describe(metrics))
  end
  self.last_epoch = self.last_epoch + 1
  if self.smooth then value = smoothed(self, value) end
  if count(self, value) then
    if self.num_good_epochs > self.patience then
      raise(self)
      self.warmup_counter, self.num_good_epochs = self.warmup, 0
    elseif self.num_bad_epochs > self.patience then
      reduce(self)
      self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
    end
  end
  self._last_lr = self:current_lrs()
end

return Greedy
