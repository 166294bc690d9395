--- The state of a run: the objects of an accelerator, its open accumulation windows, and its own counters.
local averaging = require "accelhost.averaging"

local run_state = {}

--- The objects that were registered for checkpoints.
---@return any[]
function run_state.registered(accelerator)
  local checkpointer = rawget(accelerator, "_checkpointer")
  return checkpointer and checkpointer.registered or {}
end

--- List the prepared and registered objects, in their order.
function run_state.objects(accelerator)
  local fp8 = accelerator.mixed_precision == "fp8" and accelerator._precision.fp8
  local checkpointer = rawget(accelerator, "_checkpointer")
  local list = {registered = run_state.registered(accelerator), scalers = {accelerator.scaler},
    per_process = checkpointer and checkpointer.per_process or {}, fp8_scales = fp8 and fp8:states() or {}}
  for field, kind in pairs {models = "model", optimizers = "optimizer", schedulers = "scheduler", loaders = "loader"} do
    list[field] = accelerator._prepared:list(kind)
  end
  return list
end

--- Return the open accumulation windows of this process: each model's accumulated gradients; nil without.
---@return table?
function run_state.windows(accelerator)
  local windows, any = {}, false
  for i, handle in ipairs(averaging.of(accelerator)) do
    windows[i] = handle:window_state() or false
    any = any or windows[i] ~= false
  end
  return any and windows or nil
end

--- Restore the models' windows: those of each process that resumes here, or rank 0's where this one did not exist.
---@param windows table[]
---@param common table?
function run_state.set_windows(accelerator, windows, common)
  for i, handle in ipairs(averaging.of(accelerator)) do
    local states = {}
    for _, of_rank in ipairs(windows) do states[#states + 1] = of_rank[i] or nil end
    handle:load_window(states, common and common[i] or nil)
  end
end

--- Return an accelerator's own counters.
function run_state.own(accelerator)
  local trackers = rawget(accelerator, "_trackers")
  return {
    step = accelerator.step, micro_step = accelerator._micro_step, sync_gradients = accelerator.sync_gradients,
    logged_step = trackers and trackers.logged_step or nil, virtual_shards = accelerator.virtual_shards,
    share = accelerator.share,
  }
end

--- Restore the counters that `own` returned.
---@param own table
---@param purge_step? integer|false in place of the step that was logged last
function run_state.set_own(accelerator, own, purge_step)
  accelerator._gradients.step, accelerator._gradients.micro_step = own.step, own.micro_step
  accelerator.sync_gradients = own.sync_gradients
  accelerator._trackers:resume(own.logged_step, purge_step)
end

return run_state
