--- The base of learning-rate schedulers.
--
-- A scheduler sets the learning rates of its optimizer when it is made (epoch 0) and at each step. get_lr gives the
-- rates of all groups for `last_epoch`, usually from those in force, so that schedulers can be chained; closed_form,
-- where there is one, gives them from the initial rates alone.
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe = arguments.fail, arguments.describe

---@class LRScheduler
---@field last_epoch integer
local LRScheduler = class.new "LRScheduler"
LRScheduler._is_scheduler, LRScheduler._state_fields = true, {}

function LRScheduler:init(...) -- luacheck: no unused args
  fail("LRScheduler is the base; make a StepLR, a LambdaLR, ... or a subclass")
end

--- Make a subclass; `fields` names what belongs to the state_dict besides the common fields.
---@param name string
---@param fields string[]?
---@return LRScheduler class
function LRScheduler.extend(parent, name, fields)
  local made = class.new(name, parent)
  made._state_fields = fields or {}
  return made
end

--- Is this value a scheduler?
---@param value any
---@return boolean
function LRScheduler.is_scheduler(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_scheduler == true
end

--- The optimizer that a value is or stands for.
function LRScheduler:check_optimizer(optimizer)
  if not Optimizer.is_optimizer(optimizer) then
    fail("%s: optimizer: expected an optimizer, got %s", self._name, describe(optimizer))
  end
  return optimizer:unwrap()
end

--- Store the optimizer and set the rates of epoch 0; subclasses call it last in init.
---@param optimizer Optimizer
---@param last_epoch integer? -1: from the start
function LRScheduler:setup(optimizer, last_epoch)
  self.optimizer = self:check_optimizer(optimizer)
  last_epoch = last_epoch or -1
  self.base_lrs = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    if last_epoch == -1 then
      if group.initial_lr == nil then group.initial_lr = group.lr end
    elseif group.initial_lr == nil then
      fail("%s: group %d has no initial_lr, which last_epoch = %d needs", self._name, i, last_epoch)
    end
    self.base_lrs[i] = group.initial_lr
  end
  self.last_epoch = last_epoch
  self:_initial_step()
end

function LRScheduler:_initial_step()
  self.optimizer._step_count = 0
  self._step_count = 0
  self:step()
end

--- The rates of all groups for last_epoch; subclasses define it.
function LRScheduler:get_lr()
  fail("%s does not define get_lr", self._name)
end

local function each_group(self, fn)
  local lrs = {}
  for i, group in ipairs(self.optimizer.param_groups) do lrs[i] = fn(group, self.base_lrs[i], i) end
  return lrs
end
--- A table of fn(group, base_lr, i) over the groups.
LRScheduler.each_group = each_group

local function apply(self, lrs)
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    group.lr = lrs[i]
    self._last_lr[i] = lrs[i]
  end
end
LRScheduler.apply = apply

--- Go on by one epoch (or step, as you count), after optimizer:step().
---@param epoch integer? go to this one instead
function LRScheduler:step(epoch)
  if self._step_count == 1 and self.optimizer._step_count < 1 and not self._warned then
    self._warned = true
    io.stderr:write("warning: scheduler:step() before optimizer:step(): the first value of the schedule is skipped\n")
  end
  self._step_count = self._step_count + 1
  if epoch == nil then
    self.last_epoch = self.last_epoch + 1
    apply(self, self:get_lr())
  else
    self.last_epoch = epoch
    apply(self, self.closed_form and self:closed_form() or self:get_lr())
  end
end

--- The rates set last, one per group.
---@return number[]
function LRScheduler:get_last_lr()
  local copy = {}
  for i, lr in ipairs(self._last_lr or {}) do copy[i] = lr end
  return copy
end

local common = {"base_lrs", "last_epoch", "_step_count", "_last_lr"}

local function copy(value)
  if type(value) ~= "table" then return value end
  local result = {}
  for k, v in pairs(value) do result[k] = copy(v) end
  return result
end

local function all_fields(self)
  local names = {}
  for _, name in ipairs(common) do names[#names + 1] = name end
  for _, name in ipairs(self._state_fields) do names[#names + 1] = name end
  return names
end

--- Everything but the optimizer and functions, as plain data.
---@return table
function LRScheduler:state_dict()
  local state = {}
  for _, name in ipairs(all_fields(self)) do
    if type(self[name]) ~= "function" then state[name] = copy(self[name]) end
  end
  return state
end

--- Take over a state_dict. The optimizer's rates are part of the optimizer's own state.
---@param state table
function LRScheduler:load_state_dict(state)
  if type(state) ~= "table" then
    fail("%s: load_state_dict: expected a table, got %s", self._name, describe(state))
  end
  for _, name in ipairs(all_fields(self)) do
    if state[name] ~= nil then self[name] = copy(state[name]) end
  end
end

return LRScheduler
