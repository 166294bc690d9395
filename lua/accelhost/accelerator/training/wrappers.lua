--- The result of prepare for optimizers and schedulers: the same interface, with steps that wait for the end
--- of an accumulation window.
local C = require "accelhost._C"
local Parallel = require "accelhost.averaging.parallel"
local arguments = require "accelhost.util.arguments"
local later = require "accelhost.util.later"
local contents = later "accelhost.checkpoint.contents"
local sharded = later "accelhost.accelerator.training.sharding"
local host_updates = require "accelhost.util.host_updates"
local warn = require "accelhost.util.warn"

local wrappers = {}

-- An object that forwards everything to `inner` except the given methods; `mark` names the field of its metatable that
-- identifies it.
local function wrap(inner, mark, methods)
  return setmetatable({}, {
    [mark] = true,
    _name = "prepared " .. inner._name,
    __index = function(_, key)
      local own = methods[key]
      if own ~= nil and key ~= "step_was_skipped" then return own end
      host_updates.settle()
      if own ~= nil then return methods.read_skipped() end
      local value = inner[key]
      if type(value) ~= "function" then return value end
      return function(_, ...)
        return value(inner, ...)
      end
    end,
    __newindex = function(_, key, value)
      host_updates.settle()
      inner[key] = value
    end,
    __tostring = function() return tostring(inner) end,
  })
end

-- Warn, once, of parameters of no prepared model: each process steps them by its own gradients.
local function check_averaged(optimizer)
  for _, group in ipairs(optimizer.param_groups) do
    for i, parameter in ipairs(group.params) do
      if parameter.grad ~= nil and not Parallel.of(parameter) then
        warn(("%s:step: parameter %d %s belongs to no prepared model, so its gradient is not averaged over the "
          .. "processes; pass the model to accelerator:prepare"):format(optimizer._name, i,
          table.concat(parameter:shape(), " x ")))
        return
      end
    end
  end
end

-- A closure whose loss is the mean over the processes: a search that decided by its own process's loss would go another
-- way than the others.
local function with_mean_loss(accelerator, closure)
  return function()
    local loss = closure()
    return accelerator:reduce(C.is_tensor(loss) and loss:detach() or C.tensor(loss), "mean")
  end
end

-- The state is whole for the script, whatever it is here.
local function add_state(methods, accelerator, optimizer)
  local whole = accelerator.sharding == "none"
  function methods.state_dict(_, ...)
    if whole then return optimizer:state_dict(...) end
    return sharded.state_dict(optimizer)
  end
  function methods.load_state_dict(_, ...)
    optimizer:load_state_dict(...)
    if not whole then sharded.cut(optimizer) end
  end
  -- For a checkpoint: back to the bit, whatever its dtypes.
  function methods.load_saved(_, state)
    contents.load_optimizer(optimizer, state)
    if not whole then sharded.cut(optimizer) end
  end
  -- The state of all processes on one; the others get nil. A collective.
  function methods.state_for(_, rank)
    if whole then return accelerator.process_index == rank and optimizer:state_dict() or nil end
    return sharded.state_dict(optimizer, rank)
  end
  -- The same in parts, each process's own, and back.
  function methods.own_part() return sharded.own_state(optimizer) end
  function methods.load_parts(_, parts) methods:load_saved(sharded.together(optimizer, parts)) end
end

--- An optimizer whose step and zero_grad do nothing inside an accumulation window.
---@param optimizer table
---@return table
function wrappers.optimizer(accelerator, optimizer)
  local checked, methods = accelerator.num_processes == 1
  local stepped_in -- the captured step in which it stepped last
  local function report(skipped)
    methods.step_was_skipped = skipped
  end
  methods = {
    step = function(_, closure, ...)
      if closure and accelerator._virtual_shards then
        arguments.fail("%s:step: with virtual_shards a closure would see one shard only; leave it out",
          optimizer._name)
      end
      if not accelerator.sync_gradients then return nil end
      if closure and optimizer._reads_loss and accelerator.num_processes > 1 then
        closure = with_mean_loss(accelerator, closure)
      end
      if not checked then
        checked = true
        check_averaged(optimizer)
      end
      local shards = accelerator.sharding ~= "none" and sharded.shards(optimizer)
      local result
      if shards and #shards > 0 then
        result = sharded.step(accelerator, optimizer, shards, report, closure)
      else
        result = accelerator._loss_scaler:step(optimizer, report, closure, ...)
      end
      stepped_in = host_updates.current()
      for _, group in ipairs(optimizer.param_groups) do Parallel.used(group.params[1]) end
      return result
    end,
    zero_grad = function(_, ...)
      if not accelerator.sync_gradients then return end
      accelerator._loss_scaler:forget(optimizer)
      return optimizer:zero_grad(...)
    end,
    -- For optimizers that train and evaluate with other weights; the others have nothing to switch.
    train = function()
      if optimizer.train then optimizer:train() end
    end,
    eval = function()
      if optimizer.eval then optimizer:eval() end
    end,
    step_was_skipped = false,
    read_skipped = function()
      if stepped_in and stepped_in == host_updates.current() and accelerator._loss_scaler:outcome_of(optimizer) then
        arguments.fail "step_was_skipped: the device has not decided that while the step is captured; read it after it"
      end
      return methods.step_was_skipped
    end,
    -- For a scheduler in a captured step: a function that reports after a replay whether the last step until now was
    -- left out.
    outcome = function()
      local own = stepped_in and stepped_in == host_updates.current() and accelerator._loss_scaler:outcome_of(optimizer)
      return own or function() return methods.step_was_skipped end
    end,
  }
  add_state(methods, accelerator, optimizer)
  return wrap(optimizer, "_is_optimizer", methods)
end

-- Step as often as the accelerator counts, but not past the end of a schedule that has one.
local function step_times(accelerator, scheduler, ...)
  local per_process = accelerator.scheduler_steps == "per_process" and not accelerator.split_batches
  for _ = 1, per_process and accelerator.num_processes or 1 do
    if not scheduler.total_steps or scheduler._step_count <= scheduler.total_steps then scheduler:step(...) end
  end
end

-- Step in a graph; the scheduler's step is undone after a replay in which one of the optimizers skipped its step.
local function step_captured(accelerator, scheduler, optimizers, ...)
  local outcomes = {}
  for i, optimizer in ipairs(optimizers) do outcomes[i] = optimizer.outcome() end
  host_updates.unless_skipped(function()
    for _, outcome in ipairs(outcomes) do
      if outcome() then return true end
    end
    return false
  end, step_times, accelerator, scheduler, ...)
end

--- A scheduler that steps with its optimizers: not within a window, and not when one of them skipped its step.
---@param scheduler table
---@param optimizers table[] prepared ones
---@return table
function wrappers.scheduler(accelerator, scheduler, optimizers)
  return wrap(scheduler, "_is_scheduler", {
    step = function(_, ...)
      if not accelerator.step_scheduler_with_optimizer then return scheduler:step(...) end
      if not accelerator.sync_gradients then
        local counts = accelerator.scheduler_steps == "per_process" and accelerator.gradient_state.adjust_scheduler
        if counts then scheduler._step_count = scheduler._step_count + 1 end
        return
      end
      if host_updates.is_recording() then return step_captured(accelerator, scheduler, optimizers, ...) end
      for _, optimizer in ipairs(optimizers) do
        if optimizer.step_was_skipped then return end
      end
      step_times(accelerator, scheduler, ...)
    end,
  })
end

return wrappers
