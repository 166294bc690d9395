--- accelhost.optim.lr_scheduler: PyTorch's schedulers, in their chainable forms.
--
--   local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = epochs})
--   for epoch = 1, epochs do train() scheduler:step() end
--
-- Milestones and epochs count from 0, as in PyTorch.
local C = require "accelhost._C"
local LRScheduler = require "accelhost.optim.scheduler"
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature
local cos, pi, min, max, floor = math.cos, math.pi, math.min, math.max, math.floor

local lr_scheduler = {LRScheduler = LRScheduler, is_scheduler = LRScheduler.is_scheduler}

local function define(name, fields)
  local class = LRScheduler:extend(name, fields)
  lr_scheduler[name] = class
  return class
end

local function current(group)
  return group.lr
end

--- One value per group from a value or a table of them.
local function per_group(self, name, value)
  local count, values = #self.optimizer.param_groups, {}
  if type(value) == "table" then
    if #value ~= count then
      fail("%s: %s: expected %d values, one per parameter group, got %d", self._name, name, count, #value)
    end
    return value
  end
  for i = 1, count do values[i] = value end
  return values
end

--- How many of the sorted numbers are <= value.
local function count_upto(sorted, value)
  local n = 0
  for i = 1, #sorted do
    if sorted[i] <= value then n = n + 1 end
  end
  return n
end

--- lr = initial lr * lr_lambda(epoch); a function, or one per group.
---@class LambdaLR: LRScheduler
local LambdaLR = define "LambdaLR"
local read_lambda = signature("LambdaLR", {"optimizer", "lr_lambda", {"last_epoch", -1}})

local function read_functions(self, optimizer, lr_lambda)
  self.optimizer = self:check_optimizer(optimizer)
  self.lr_lambdas = per_group(self, "lr_lambda", lr_lambda)
  for _, fn in ipairs(self.lr_lambdas) do
    if type(fn) ~= "function" then fail("%s: lr_lambda: expected a function, got %s", self._name, describe(fn)) end
  end
end

function LambdaLR:init(...)
  local optimizer, lr_lambda, last_epoch = read_lambda(...)
  read_functions(self, optimizer, lr_lambda)
  self:setup(optimizer, last_epoch)
end

function LambdaLR:get_lr()
  return self:each_group(function(_, base, i) return base * self.lr_lambdas[i](self.last_epoch) end)
end

--- lr *= lr_lambda(epoch).
---@class MultiplicativeLR: LRScheduler
local MultiplicativeLR = define "MultiplicativeLR"
local read_multiplicative = signature("MultiplicativeLR", {"optimizer", "lr_lambda", {"last_epoch", -1}})

function MultiplicativeLR:init(...)
  local optimizer, lr_lambda, last_epoch = read_multiplicative(...)
  read_functions(self, optimizer, lr_lambda)
  self:setup(optimizer, last_epoch)
end

function MultiplicativeLR:get_lr()
  if self.last_epoch <= 0 then return self:each_group(current) end
  return self:each_group(function(group, _, i) return group.lr * self.lr_lambdas[i](self.last_epoch) end)
end

--- lr *= gamma every step_size epochs.
---@class StepLR: LRScheduler
local StepLR = define("StepLR", {"step_size", "gamma"})
local read_step = signature("StepLR", {"optimizer", "step_size", {"gamma", 0.1}, {"last_epoch", -1}})

function StepLR:init(...)
  local optimizer, step_size, gamma, last_epoch = read_step(...)
  self.step_size, self.gamma = step_size, gamma
  self:setup(optimizer, last_epoch)
end

function StepLR:get_lr()
  if self.last_epoch == 0 or self.last_epoch % self.step_size ~= 0 then return self:each_group(current) end
  return self:each_group(function(group) return group.lr * self.gamma end)
end

--- The lrs at last_epoch from the initial ones alone, for step(epoch); without it get_lr serves there too.
function StepLR:closed_form()
  return self:each_group(function(_, base) return base * self.gamma ^ floor(self.last_epoch / self.step_size) end)
end

--- lr *= gamma at each milestone.
---@class MultiStepLR: LRScheduler
local MultiStepLR = define("MultiStepLR", {"milestones", "gamma"})
local read_multistep = signature("MultiStepLR", {"optimizer", "milestones", {"gamma", 0.1}, {"last_epoch", -1}})

function MultiStepLR:init(...)
  local optimizer, milestones, gamma, last_epoch = read_multistep(...)
  if type(milestones) ~= "table" then
    fail("MultiStepLR: milestones: expected a table of epochs, got %s", describe(milestones))
  end
  self.milestones, self.gamma = {unpack(milestones)}, gamma
  table.sort(self.milestones)
  self:setup(optimizer, last_epoch)
end

function MultiStepLR:get_lr()
  local hits = count_upto(self.milestones, self.last_epoch) - count_upto(self.milestones, self.last_epoch - 1)
  if hits == 0 then return self:each_group(current) end
  return self:each_group(function(group) return group.lr * self.gamma ^ hits end)
end

function MultiStepLR:closed_form()
  local hits = count_upto(self.milestones, self.last_epoch)
  return self:each_group(function(_, base) return base * self.gamma ^ hits end)
end

--- lr * factor until total_iters, then the full lr.
---@class ConstantLR: LRScheduler
local ConstantLR = define("ConstantLR", {"factor", "total_iters"})
local read_constant = signature("ConstantLR",
  {"optimizer", {"factor", 1.0 / 3}, {"total_iters", 5}, {"last_epoch", -1}})

function ConstantLR:init(...)
  local optimizer, factor, total_iters, last_epoch = read_constant(...)
  if factor > 1 or factor < 0 then fail("ConstantLR: factor: expected a number between 0 and 1, got %g", factor) end
  self.factor, self.total_iters = factor, total_iters
  self:setup(optimizer, last_epoch)
end

function ConstantLR:get_lr()
  if self.last_epoch == 0 then return self:each_group(function(group) return group.lr * self.factor end) end
  if self.last_epoch ~= self.total_iters then return self:each_group(current) end
  return self:each_group(function(group) return group.lr * (1.0 / self.factor) end)
end

function ConstantLR:closed_form()
  local done = self.last_epoch >= self.total_iters and 1 or 0
  return self:each_group(function(_, base) return base * (self.factor + done * (1 - self.factor)) end)
end

--- From lr * start_factor to lr * end_factor in total_iters equal steps.
---@class LinearLR: LRScheduler
local LinearLR = define("LinearLR", {"start_factor", "end_factor", "total_iters"})
local read_linear = signature("LinearLR",
  {"optimizer", {"start_factor", 1.0 / 3}, {"end_factor", 1}, {"total_iters", 5}, {"last_epoch", -1}})

function LinearLR:init(...)
  local optimizer, start_factor, end_factor, total_iters, last_epoch = read_linear(...)
  if start_factor > 1 or start_factor <= 0 then
    fail("LinearLR: start_factor: expected a number above 0 and up to 1, got %g", start_factor)
  end
  if end_factor > 1 or end_factor < 0 then
    fail("LinearLR: end_factor: expected a number between 0 and 1, got %g", end_factor)
  end
  self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
  self:setup(optimizer, last_epoch)
end

function LinearLR:get_lr()
  local epoch, start, total = self.last_epoch, self.start_factor, self.total_iters
  local change = self.end_factor - start
  if epoch == 0 then return self:each_group(function(group) return group.lr * start end) end
  if epoch > total then return self:each_group(current) end
  return self:each_group(function(group)
    return group.lr * (1 + change / (total * start + (epoch - 1) * change))
  end)
end

function LinearLR:closed_form()
  local change = self.end_factor - self.start_factor
  return self:each_group(function(_, base)
    return base * (self.start_factor + change * min(self.total_iters, self.last_epoch) / self.total_iters)
  end)
end

--- lr *= gamma every epoch.
---@class ExponentialLR: LRScheduler
local ExponentialLR = define("ExponentialLR", {"gamma"})
local read_exponential = signature("ExponentialLR", {"optimizer", "gamma", {"last_epoch", -1}})

function ExponentialLR:init(...)
  local optimizer, gamma, last_epoch = read_exponential(...)
  self.gamma = gamma
  self:setup(optimizer, last_epoch)
end

function ExponentialLR:get_lr()
  if self.last_epoch == 0 then return self:each_group(current) end
  return self:each_group(function(group) return group.lr * self.gamma end)
end

function ExponentialLR:closed_form()
  return self:each_group(function(_, base) return base * self.gamma ^ self.last_epoch end)
end

--- lr * (1 - epoch / total_iters)^power.
---@class PolynomialLR: LRScheduler
local PolynomialLR = define("PolynomialLR", {"total_iters", "power"})
local read_polynomial = signature("PolynomialLR",
  {"optimizer", {"total_iters", 5}, {"power", 1}, {"last_epoch", -1}})

function PolynomialLR:init(...)
  local optimizer, total_iters, power, last_epoch = read_polynomial(...)
  self.total_iters, self.power = total_iters, power
  self:setup(optimizer, last_epoch)
end

function PolynomialLR:get_lr()
  local epoch, total = self.last_epoch, self.total_iters
  if epoch == 0 or epoch > total then return self:each_group(current) end
  local decay = ((1 - epoch / total) / (1 - (epoch - 1) / total)) ^ self.power
  return self:each_group(function(group) return group.lr * decay end)
end

function PolynomialLR:closed_form()
  local rest = (1 - min(self.total_iters, self.last_epoch) / self.total_iters) ^ self.power
  return self:each_group(function(_, base) return base * rest end)
end

--- Half a cosine from lr down to eta_min in T_max epochs, then up again.
---@class CosineAnnealingLR: LRScheduler
local CosineAnnealingLR = define("CosineAnnealingLR", {"T_max", "eta_min"})
local read_cosine = signature("CosineAnnealingLR", {"optimizer", "T_max", {"eta_min", 0}, {"last_epoch", -1}})

function CosineAnnealingLR:init(...)
  local optimizer, T_max, eta_min, last_epoch = read_cosine(...)
  self.T_max, self.eta_min = T_max, eta_min
  self:setup(optimizer, last_epoch)
end

function CosineAnnealingLR:get_lr()
  local epoch, T_max, eta_min = self.last_epoch, self.T_max, self.eta_min
  if epoch == 0 then return self:each_group(current) end
  if self._step_count == 1 and epoch > 0 then return self:closed_form() end
  if (epoch - 1 - T_max) % (2 * T_max) == 0 then
    return self:each_group(function(group, base) return group.lr + (base - eta_min) * (1 - cos(pi / T_max)) / 2 end)
  end
  return self:each_group(function(group)
    return (1 + cos(pi * epoch / T_max)) / (1 + cos(pi * (epoch - 1) / T_max)) * (group.lr - eta_min) + eta_min
  end)
end

function CosineAnnealingLR:closed_form()
  return self:each_group(function(_, base)
    return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.last_epoch / self.T_max)) / 2
  end)
end

--- Cosine annealing that starts again after T_0 epochs, then after T_0 * T_mult, ...
---@class CosineAnnealingWarmRestarts: LRScheduler
local Restarts = define("CosineAnnealingWarmRestarts", {"T_0", "T_i", "T_mult", "eta_min", "T_cur"})
local read_restarts = signature("CosineAnnealingWarmRestarts",
  {"optimizer", "T_0", {"T_mult", 1}, {"eta_min", 0}, {"last_epoch", -1}})

function Restarts:init(...)
  local optimizer, T_0, T_mult, eta_min, last_epoch = read_restarts(...)
  if T_0 <= 0 or T_0 % 1 ~= 0 then
    fail("CosineAnnealingWarmRestarts: T_0: expected a positive integer, got %g", T_0)
  end
  if T_mult < 1 or T_mult % 1 ~= 0 then
    fail("CosineAnnealingWarmRestarts: T_mult: expected an integer from 1, got %g", T_mult)
  end
  self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
  self:setup(optimizer, last_epoch)
end

function Restarts:get_lr()
  return self:each_group(function(_, base)
    return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.T_cur / self.T_i)) / 2
  end)
end

--- The epoch may have a fraction: scheduler:step(epoch + i / iterations).
function Restarts:step(epoch)
  if epoch == nil and self.last_epoch < 0 then epoch = 0 end
  if epoch == nil then
    epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur - self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  elseif epoch < 0 then
    fail("CosineAnnealingWarmRestarts: expected an epoch from 0, got %g", epoch)
  elseif epoch < self.T_0 then
    self.T_i, self.T_cur = self.T_0, epoch
  elseif self.T_mult == 1 then
    self.T_cur = epoch % self.T_0
  else
    local n = floor(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1) / math.log(self.T_mult))
    self.T_cur = epoch - self.T_0 * (self.T_mult ^ n - 1) / (self.T_mult - 1)
    self.T_i = self.T_0 * self.T_mult ^ n
  end
  self.last_epoch = floor(epoch)
  self._step_count = (self._step_count or 0) + 1
  self:apply(self:get_lr())
end

--- Does the optimizer keep its momentum in betas[1]?
local function set_momentum(group, value)
  if group.betas then
    group.betas = {value, group.betas[2]}
  else
    group.momentum = value
  end
end

local function check_momentum(self)
  local defaults = self.optimizer.defaults
  if defaults.momentum == nil and defaults.betas == nil then
    fail("%s: cycle_momentum needs an optimizer with momentum or betas; pass cycle_momentum = false", self._name)
  end
end

--- The 1cycle policy: up to max_lr, then down to far below the initial rate; momentum the other way. One step per
-- batch.
---@class OneCycleLR: LRScheduler
local OneCycleLR = define("OneCycleLR", {"total_steps", "cycle_momentum"})
local read_one_cycle = signature("OneCycleLR", {
  "optimizer", "max_lr", {"total_steps"}, {"epochs"}, {"steps_per_epoch"}, {"pct_start", 0.3},
  {"anneal_strategy", "cos"}, {"cycle_momentum", true}, {"base_momentum", 0.85}, {"max_momentum", 0.95},
  {"div_factor", 25}, {"final_div_factor", 1e4}, {"three_phase", false}, {"last_epoch", -1},
})

local anneal = {
  cos = function(from, to, part) return to + (from - to) / 2 * (cos(pi * part) + 1) end,
  linear = function(from, to, part) return (to - from) * part + from end,
}

function OneCycleLR:init(...)
  local optimizer, max_lr, total_steps, epochs, steps_per_epoch, pct_start, strategy, cycle_momentum, base_momentum,
    max_momentum, div_factor, final_div_factor, three_phase, last_epoch = read_one_cycle(...)
  self.optimizer = self:check_optimizer(optimizer)
  if total_steps == nil then
    if epochs == nil or steps_per_epoch == nil then
      fail("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
    end
    total_steps = epochs * steps_per_epoch
  end
  if total_steps <= 0 or total_steps % 1 ~= 0 then
    fail("OneCycleLR: total_steps: expected a positive integer, got %g", total_steps)
  end
  if pct_start < 0 or pct_start > 1 then
    fail("OneCycleLR: pct_start: expected a number between 0 and 1, got %g", pct_start)
  end
  self._anneal = anneal[strategy]
  if not self._anneal then
    fail("OneCycleLR: unknown anneal_strategy '%s' (known: cos, linear)", tostring(strategy))
  end
  self.total_steps, self.cycle_momentum = total_steps, cycle_momentum
  local up = {stop = pct_start * total_steps - 1, from = "initial_lr", to = "max_lr", from_momentum = "max_momentum",
    to_momentum = "base_momentum"}
  if three_phase then
    self._phases = {
      up,
      {stop = 2 * pct_start * total_steps - 2, from = "max_lr", to = "initial_lr", from_momentum = "base_momentum",
        to_momentum = "max_momentum"},
      {stop = total_steps - 1, from = "initial_lr", to = "min_lr", from_momentum = "max_momentum",
        to_momentum = "max_momentum"},
    }
  else
    self._phases = {
      up,
      {stop = total_steps - 1, from = "max_lr", to = "min_lr", from_momentum = "base_momentum",
        to_momentum = "max_momentum"},
    }
  end
  local max_lrs = per_group(self, "max_lr", max_lr)
  if cycle_momentum then check_momentum(self) end
  local highs, lows = per_group(self, "max_momentum", max_momentum), per_group(self, "base_momentum", base_momentum)
  if last_epoch == -1 then
    for i, group in ipairs(self.optimizer.param_groups) do
      group.initial_lr = max_lrs[i] / div_factor
      group.max_lr = max_lrs[i]
      group.min_lr = group.initial_lr / final_div_factor
      if cycle_momentum then
        set_momentum(group, highs[i])
        group.max_momentum, group.base_momentum = highs[i], lows[i]
      end
    end
  end
  self:setup(optimizer, last_epoch)
end

function OneCycleLR:get_lr()
  local step = self.last_epoch
  if step > self.total_steps then
    fail("OneCycleLR: step %d, but total_steps is %d", step + 1, self.total_steps)
  end
  return self:each_group(function(group)
    local start = 0
    for i, phase in ipairs(self._phases) do
      if step <= phase.stop or i == #self._phases then
        local part = (step - start) / (phase.stop - start)
        if self.cycle_momentum then
          set_momentum(group, self._anneal(group[phase.from_momentum], group[phase.to_momentum], part))
        end
        return self._anneal(group[phase.from], group[phase.to], part)
      end
      start = phase.stop
    end
  end)
end

--- Between base_lr and max_lr and back, again and again. One step per batch.
---@class CyclicLR: LRScheduler
local CyclicLR = define("CyclicLR", {"max_lrs", "total_size", "step_ratio", "mode", "gamma", "scale_mode",
  "cycle_momentum", "base_momentums", "max_momentums"})
local read_cyclic = signature("CyclicLR", {
  "optimizer", "base_lr", "max_lr", {"step_size_up", 2000}, {"step_size_down"}, {"mode", "triangular"}, {"gamma", 1},
  {"scale_fn"}, {"scale_mode", "cycle"}, {"cycle_momentum", true}, {"base_momentum", 0.8}, {"max_momentum", 0.9},
  {"last_epoch", -1},
})

local scales = {
  triangular = {"cycle", function() return 1 end},
  triangular2 = {"cycle", function(_, x) return 1 / 2 ^ (x - 1) end},
  exp_range = {"iterations", function(self, x) return self.gamma ^ x end},
}

function CyclicLR:init(...)
  local optimizer, base_lr, max_lr, up, down, mode, gamma, scale_fn, scale_mode, cycle_momentum, base_momentum,
    max_momentum, last_epoch = read_cyclic(...)
  self.optimizer = self:check_optimizer(optimizer)
  local base_lrs = per_group(self, "base_lr", base_lr)
  if last_epoch == -1 then
    for i, group in ipairs(self.optimizer.param_groups) do group.lr = base_lrs[i] end
  end
  self.max_lrs = per_group(self, "max_lr", max_lr)
  down = down or up
  self.total_size = up + down
  self.step_ratio = up / self.total_size
  self.mode, self.gamma, self.cycle_momentum = mode, gamma, cycle_momentum
  if scale_fn then
    self.scale_mode = scale_mode
    self._scale = function(_, x) return scale_fn(x) end
  else
    local scale = scales[mode]
    if not scale then
      fail("CyclicLR: unknown mode '%s' (known: triangular, triangular2, exp_range)", tostring(mode))
    end
    self.scale_mode, self._scale = scale[1], scale[2]
  end
  if cycle_momentum then
    check_momentum(self)
    self.base_momentums = per_group(self, "base_momentum", base_momentum)
    self.max_momentums = per_group(self, "max_momentum", max_momentum)
    if last_epoch == -1 then
      for i, group in ipairs(self.optimizer.param_groups) do set_momentum(group, self.base_momentums[i]) end
    end
  end
  self._cycle_bases = base_lrs
  self:setup(optimizer, last_epoch)
  self.base_lrs = base_lrs
end

function CyclicLR:get_lr()
  local cycle = floor(1 + self.last_epoch / self.total_size)
  local x = 1 + self.last_epoch / self.total_size - cycle
  local height = x <= self.step_ratio and x / self.step_ratio or (x - 1) / (self.step_ratio - 1)
  local scale = self:_scale(self.scale_mode == "cycle" and cycle or self.last_epoch)
  return self:each_group(function(group, _, i)
    if self.cycle_momentum then
      local high = self.max_momentums[i]
      set_momentum(group, high - (high - self.base_momentums[i]) * height * scale)
    end
    local base = self._cycle_bases[i]
    return base + (self.max_lrs[i] - base) * height * scale
  end)
end

local function check_schedulers(self, schedulers)
  if type(schedulers) ~= "table" or getmetatable(schedulers) ~= nil or #schedulers == 0 then
    fail("%s: expected a table of schedulers, got %s", self._name, describe(schedulers))
  end
  for i, scheduler in ipairs(schedulers) do
    if not LRScheduler.is_scheduler(scheduler) then
      fail("%s: item %d: expected a scheduler, got %s", self._name, i, describe(scheduler))
    end
    if scheduler.optimizer ~= schedulers[1].optimizer then
      fail("%s: schedulers 1 and %d belong to different optimizers", self._name, i)
    end
  end
end

local function save_parts(self, state)
  state._schedulers = {}
  for i, scheduler in ipairs(self._schedulers) do state._schedulers[i] = scheduler:state_dict() end
  return state
end

local function load_parts(self, state)
  LRScheduler.load_state_dict(self, state)
  for i, part in ipairs(state._schedulers or {}) do self._schedulers[i]:load_state_dict(part) end
end

--- One scheduler after the other; milestones say at which epoch the next one starts (from its own epoch 0).
---@class SequentialLR: LRScheduler
local SequentialLR = define("SequentialLR", {"_milestones"})
local read_sequential = signature("SequentialLR", {"optimizer", "schedulers", "milestones", {"last_epoch", -1}})

function SequentialLR:init(...)
  local optimizer, schedulers, milestones, last_epoch = read_sequential(...)
  self.optimizer = self:check_optimizer(optimizer)
  check_schedulers(self, schedulers)
  if schedulers[1].optimizer ~= self.optimizer then
    fail("SequentialLR: the schedulers belong to another optimizer")
  end
  if #milestones ~= #schedulers - 1 then
    fail("SequentialLR: expected %d milestones for %d schedulers, got %d", #schedulers - 1, #schedulers, #milestones)
  end
  self._schedulers, self._milestones = schedulers, milestones
  self.last_epoch = last_epoch + 1
  -- Undo what making the schedulers did to the rates, then start the first one.
  for _, group in ipairs(self.optimizer.param_groups) do group.lr = group.initial_lr end
  for _, scheduler in ipairs(schedulers) do scheduler.last_epoch = scheduler.last_epoch - 1 end
  schedulers[1]:_initial_step()
  self._last_lr = schedulers[1]:get_last_lr()
end

function SequentialLR:step()
  self.last_epoch = self.last_epoch + 1
  local i = count_upto(self._milestones, self.last_epoch)
  local scheduler = self._schedulers[i + 1]
  if i > 0 and self._milestones[i] == self.last_epoch then
    scheduler:step(0)
  else
    scheduler:step()
  end
  self._last_lr = scheduler:get_last_lr()
end

function SequentialLR:state_dict()
  return save_parts(self, LRScheduler.state_dict(self))
end

SequentialLR.load_state_dict = load_parts

--- All schedulers step together; their effects multiply.
---@class ChainedScheduler: LRScheduler
local ChainedScheduler = define "ChainedScheduler"

---@param schedulers LRScheduler[]
function ChainedScheduler:init(schedulers)
  check_schedulers(self, schedulers)
  self._schedulers, self.optimizer = schedulers, schedulers[1].optimizer
  self._last_lr = schedulers[#schedulers]:each_group(current)
end

function ChainedScheduler:step()
  for _, scheduler in ipairs(self._schedulers) do scheduler:step() end
  self._last_lr = self._schedulers[1]:each_group(current)
end

function ChainedScheduler:state_dict()
  return save_parts(self, LRScheduler.state_dict(self))
end

ChainedScheduler.load_state_dict = load_parts

--- Reduce the rates by `factor` when a metric has not improved for more than `patience` epochs.
--
--   scheduler:step(validation_loss)
---@class ReduceLROnPlateau: LRScheduler
local Plateau = define("ReduceLROnPlateau", {"factor", "min_lrs", "patience", "cooldown", "cooldown_counter", "mode",
  "threshold", "threshold_mode", "best", "num_bad_epochs", "eps"})
Plateau._is_plateau = true
local read_plateau = signature("ReduceLROnPlateau", {
  "optimizer", {"mode", "min"}, {"factor", 0.1}, {"patience", 10}, {"threshold", 1e-4}, {"threshold_mode", "rel"},
  {"cooldown", 0}, {"min_lr", 0}, {"eps", 1e-8},
})

function Plateau:init(...)
  local optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps = read_plateau(...)
  if factor >= 1 then fail("ReduceLROnPlateau: factor: expected a number below 1, got %g", factor) end
  if mode ~= "min" and mode ~= "max" then
    fail("ReduceLROnPlateau: unknown mode '%s' (known: min, max)", tostring(mode))
  end
  if threshold_mode ~= "rel" and threshold_mode ~= "abs" then
    fail("ReduceLROnPlateau: unknown threshold_mode '%s' (known: rel, abs)", tostring(threshold_mode))
  end
  self.optimizer = self:check_optimizer(optimizer)
  self.min_lrs = per_group(self, "min_lr", min_lr)
  self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
  self.threshold, self.threshold_mode = threshold, threshold_mode
  self.best = mode == "min" and math.huge or -math.huge
  self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0
  self._last_lr = self:each_group(current)
  self.base_lrs = self:each_group(current)
end

--- A list of fn(group, nil, i) for every parameter group: there are no initial lrs here.
function Plateau.each_group(self, fn)
  local lrs = {}
  for i, group in ipairs(self.optimizer.param_groups) do lrs[i] = fn(group, nil, i) end
  return lrs
end

--- Is `value` better than `best` by more than the threshold?
function Plateau:is_better(value, best)
  local threshold = self.threshold
  if self.mode == "min" then
    if self.threshold_mode == "rel" then return value < best * (1 - threshold) end
    return value < best - threshold
  end
  if self.threshold_mode == "rel" then return value > best * (threshold + 1) end
  return value > best + threshold
end

---@param metrics number|table a number or a tensor with one element
function Plateau:step(metrics)
  local value = C.is_tensor(metrics) and metrics:item() or metrics
  if type(value) ~= "number" then
    fail("ReduceLROnPlateau: step: expected the metric, a number, got %s", describe(metrics))
  end
  self.last_epoch = self.last_epoch + 1
  if self:is_better(value, self.best) then
    self.best, self.num_bad_epochs = value, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter = self.cooldown_counter - 1
    self.num_bad_epochs = 0
  end
  if self.num_bad_epochs > self.patience then
    for i, group in ipairs(self.optimizer.param_groups) do
      local reduced = max(group.lr * self.factor, self.min_lrs[i])
      if group.lr - reduced > self.eps then group.lr = reduced end
    end
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  self._last_lr = self:each_group(current)
end

return namespace.new("optim.lr_scheduler", lr_scheduler)
