--- ReduceLROnPlateau.
local C = require "accelhost._C"
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail

--- Reduce the rates by `factor` when a metric has not improved for more than `patience` epochs.
--
--   scheduler:step(validation_loss)
local Plateau = LRScheduler:extend("ReduceLROnPlateau", {"factor", "min_lrs", "patience", "cooldown",
  "cooldown_counter", "mode", "threshold", "threshold_mode", "best", "num_bad_epochs", "eps"})
Plateau._is_plateau = true
local read = arguments.signature("ReduceLROnPlateau", {
  "optimizer", {"mode: 'min'|'max'", "min"}, {"factor: number", 0.1}, {"patience: size", 10},
  {"threshold: number", 1e-4}, {"threshold_mode: 'rel'|'abs'", "rel"}, {"cooldown: size", 0}, {"min_lr: numbers", 0},
  {"eps: number", 1e-8},
})

function Plateau:init(...)
  local optimizer
  optimizer, self.mode, self.factor, self.patience, self.threshold, self.threshold_mode, self.cooldown, self.min_lr,
    self.eps = read(...)
  if self.factor >= 1 then fail("ReduceLROnPlateau: factor: expected a number below 1, got %g", self.factor) end
  self.optimizer = self:check_optimizer(optimizer)
  self.min_lrs = self:per_group("min_lr", self.min_lr)
  self.best = self.mode == "min" and math.huge or -math.huge
  self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0
  self.base_lrs, self._last_lr = self:current_lrs(), self:current_lrs()
end

-- Is `value` better than `best` by more than the threshold?
local function improves(self, value)
  local best, threshold = self.best, self.threshold
  if self.mode == "min" then
    if self.threshold_mode == "rel" then return value < best * (1 - threshold) end
    return value < best - threshold
  end
  if self.threshold_mode == "rel" then return value > best * (threshold + 1) end
  return value > best + threshold
end

local function reduce(self)
  local groups = self.optimizer.param_groups
  if #groups ~= #self.min_lrs then self.min_lrs = self:per_group("min_lr", self.min_lr) end
  for i, group in ipairs(groups) do
    local reduced = math.max(group.lr * self.factor, self.min_lrs[i])
    if group.lr - reduced > self.eps then group.lr = reduced end
  end
end

---@param metrics number|userdata a number or a tensor with one element
function Plateau:step(metrics)
  if host_updates.is_recording() then
    fail "ReduceLROnPlateau:step: it reads metrics, which cannot be captured in a graph; call it after the step"
  end
  local value = C.is_tensor(metrics) and metrics:numel() == 1 and metrics:item() or metrics
  if type(value) ~= "number" then
    fail("ReduceLROnPlateau: step: expected the metric, a number, got %s", arguments.describe(metrics))
  end
  self.last_epoch = self.last_epoch + 1
  if improves(self, value) then
    self.best, self.num_bad_epochs = value, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter = self.cooldown_counter - 1
    self.num_bad_epochs = 0
  end
  if self.num_bad_epochs > self.patience then
    reduce(self)
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  self._last_lr = self:current_lrs()
end

return Plateau
