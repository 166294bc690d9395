--- The base of learning-rate schedulers.
--
-- A scheduler sets the learning rates of its optimizer when it is made (epoch 0) and at each step. get_lr returns the
-- rates of all groups for `last_epoch`, usually from those in force, so that schedulers can be chained; closed_form,
-- where there is one, computes them from the initial rates alone (for step(epoch)).
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"
local host_updates = require "accelhost.util.host_updates"
local warn = require "accelhost.util.warn"

local fail, describe = arguments.fail, arguments.describe

--- The base of schedulers, for one of your own: extend it, call self:setup(optimizer) last in init and define get_lr(),
--- which returns a table of rates, one for each group, for self.last_epoch.
--
--   local Half = optim.lr_scheduler.LRScheduler:extend "Half"
--   function Half:init(optimizer) self:setup(optimizer) end
--   function Half:get_lr() return {0.1 / 2 ^ self.last_epoch} end
--   local schedule = Half(optimizer)
--   optimizer:step()
--   schedule:step()
--   schedule:get_last_lr()[1]  --> 0.05
---@field last_epoch integer
local LRScheduler = class.new "LRScheduler"
LRScheduler._is_scheduler, LRScheduler._state_fields = true, {}

function LRScheduler:init(...) -- luacheck: no unused args
  fail("LRScheduler is the base; make a StepLR, a LambdaLR, ... or a subclass")
end

--- Make a subclass; `fields` names the fields of the state_dict besides the common ones.
---@param fields string[]?
---@return LRScheduler class
function LRScheduler.extend(parent, name, fields)
  local made = class.new(name, parent)
  made._state_fields = fields or {}
  return made
end

--- Make a subclass from the parameters of its constructor.
--
--   local StepLR = LRScheduler:define("StepLR", {"step_size: count", {"gamma: number", 0.1}})
--
-- The constructor accepts the optimizer, these parameters and last_epoch; it stores the parameters as fields, calls
-- check(last_epoch), and sets the rates of epoch 0. The state_dict contains the fields except functions.
---@param parameters (string|table)[] as of a signature
---@param more string[]? further fields of the state_dict
---@return LRScheduler class
function LRScheduler.define(parent, name, parameters, more)
  local all, names = {"optimizer"}, {}
  for i, parameter in ipairs(parameters) do
    all[i + 1] = parameter
    names[i] = (type(parameter) == "table" and parameter[1] or parameter):match "^[%w_]+"
  end
  all[#all + 1] = {"last_epoch: integer", -1}
  local read, count = arguments.signature(name, all), #names
  local made = parent:extend(name, names)
  for _, field in ipairs(more or {}) do made._state_fields[#made._state_fields + 1] = field end
  function made:init(...)
    local values = {read(...)}
    self.optimizer = self:check_optimizer(values[1])
    for i = 1, count do self[names[i]] = values[i + 1] end
    self:check(values[count + 2])
    self:setup(self.optimizer, values[count + 2])
  end
  return made
end

--- Check the parameters and compute derived fields, before the rates of epoch 0; subclasses define it.
function LRScheduler:check() end -- luacheck: ignore

--- The text between the brackets: the parameters.
function LRScheduler:extra_repr()
  local parts = {}
  for _, name in ipairs(self._state_fields) do
    local value = self[name]
    if type(value) == "table" then
      local items = {}
      for i = 1, #value do items[i] = tostring(value[i]) end
      value = "{" .. table.concat(items, ", ") .. "}"
    end
    if value ~= nil and not name:find "^_" then parts[#parts + 1] = name .. "=" .. tostring(value) end
  end
  return table.concat(parts, ", ")
end

--- Is this value a scheduler?
--
--   optim.lr_scheduler.is_scheduler(scheduler)  --> true
function LRScheduler.is_scheduler(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_scheduler == true
end

--- The optimizer that a value is or wraps.
function LRScheduler:check_optimizer(optimizer)
  if not Optimizer.is_optimizer(optimizer) then
    fail("%s: optimizer: expected an optimizer, got %s", self._name, describe(optimizer))
  end
  return optimizer:unwrap()
end

--- Store the optimizer and set the rates of epoch 0; subclasses call it last in init.
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

--- Set the rates of the first epoch: `starting` is true meanwhile.
function LRScheduler:_initial_step()
  self.optimizer._step_count = 0
  self._step_count = 0
  self.starting = true
  self:step()
  self.starting = nil
end

--- The rates of all groups for last_epoch; subclasses define it.
function LRScheduler:get_lr()
  fail("%s does not define get_lr", self._name)
end

--- A table of fn(group, base_lr, i) over the groups.
function LRScheduler:each_group(fn)
  local lrs, base_lrs = {}, self.base_lrs or {}
  for i, group in ipairs(self.optimizer.param_groups) do lrs[i] = fn(group, base_lrs[i], i) end
  return lrs
end

--- The rates in force.
---@return number[]
function LRScheduler:current_lrs()
  return self:each_group(function(group) return group.lr end)
end

--- Apply rates.
---@param lrs number[] one per group
function LRScheduler:apply(lrs)
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    group.lr = lrs[i]
    self._last_lr[i] = lrs[i]
  end
end

--- One value per group from a value or a table of them.
---@param name string of the parameter, for messages
function LRScheduler:per_group(name, value)
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

--- Functions for the groups, from one or a table of them.
---@param name string of the parameter, for messages
---@return function[]
function LRScheduler:functions_per_group(name, value)
  local functions = self:per_group(name, value)
  for i, fn in ipairs(functions) do
    if not kinds.is_callable(fn) then
      fail("%s: %s: item %d: expected a function, got %s", self._name, name, i, describe(fn))
    end
  end
  return functions
end

--- Go to the next epoch, or to a given one.
---@param epoch integer?
function LRScheduler:_move_to(epoch)
  self.last_epoch = epoch or self.last_epoch + 1
  self:apply(epoch and self.closed_form and self:closed_form() or self:get_lr())
end

-- Return a function that undoes all changes by later steps, also to momenta.
local function saved(self)
  local state, lrs, groups = self:state_dict(), self:current_lrs(), {}
  for i, group in ipairs(self.optimizer.param_groups) do
    groups[i] = {}
    for name, value in pairs(group) do
      if name ~= "params" then groups[i][name] = arguments.copy(value) end
    end
  end
  return function()
    self:load_state_dict(state)
    for i, group in ipairs(groups) do
      for name, value in pairs(group) do self.optimizer.param_groups[i][name] = value end
    end
    self:apply(lrs)
  end
end

--- Step within a step that is captured as a graph: now, and before each of its replays.
---@param ... any of step
function LRScheduler:_step_captured(...)
  host_updates.call_each_replay(function() return saved(self) end, self.step, self, ...)
end

--- Advance by one epoch (or step, as you count), after optimizer:step().
---@param epoch integer? go to this one instead
function LRScheduler:step(epoch)
  if host_updates.is_recording() then return self:_step_captured(epoch) end
  host_updates.settle()
  if epoch ~= nil then arguments.check("step", "epoch", "number", epoch) end
  -- Optimizers written in a script do not count their steps.
  if self._step_count == 1 and self.optimizer._kind and self.optimizer._step_count < 1 then
    warn("scheduler:step() before optimizer:step(): the first value of the schedule is skipped")
  end
  self._step_count = self._step_count + 1
  self:_move_to(epoch)
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

-- Is it a function, or a list of functions for the groups?
local function is_code(value)
  return kinds.is_callable(value) or type(value) == "table" and kinds.is_callable(value[1])
end

--- Everything but the optimizer and functions, as plain data.
---@return table
function LRScheduler:state_dict()
  host_updates.settle()
  local state = {}
  for _, name in ipairs(all_fields(self)) do
    if not is_code(self[name]) then state[name] = copy(self[name]) end
  end
  return state
end

--- Load a state_dict. The optimizer's rates are part of the optimizer's own state.
---@param state table
function LRScheduler:load_state_dict(state)
  host_updates.settle()
  if type(state) ~= "table" then
    fail("%s: load_state_dict: expected a table, got %s", self._name, describe(state))
  end
  for _, name in ipairs(all_fields(self)) do
    if state[name] ~= nil then self[name] = copy(state[name]) end
  end
end

return class.guard(LRScheduler)
