--- Objectives that are called in the sweep's own process: for functions that run shorter than the start of a process.
local C = require "accelhost._C"
local objective = require "accelhost.sweep.objective"

local inline = {}

-- The value that a report raises to leave the objective.
local leaving = {}

local function trial_info(study, trial)
  return {number = trial.number, seed = study.definition.seed + trial.replicate, attempt = trial.attempt,
    replicate = trial.replicate}
end

-- Report progress and handle signals, between two trials.
local function handle_events(runner)
  runner.observer:update(runner.study, C.system.time())
  for _, event in ipairs(C.job.wait({}, 0)) do
    if event.kind == "signal" then runner:interrupt() end
  end
end

--- Run a trial to its end.
---@param runner Runner
function inline.run(runner, trial)
  local study, answer = runner.study, nil
  local definition = study.definition
  local given = objective.trial(trial_info(study, trial), study.space:expand(trial.params), study.space)
  given._metric = definition.metric
  given._report = function(step, metrics, options)
    answer = runner:report(trial, step, metrics)
    if answer ~= "continue" and not (options and options.stay) then error(leaving, 0) end
    return answer
  end
  local fine, result = xpcall(function() return definition.objective(given) end, function(text)
    return text == leaving and leaving or debug.traceback(tostring(text), 2)
  end)
  if trial.decision then
    runner:leave(trial, trial.decision == "pause" and "paused" or "stopped")
  elseif not fine then
    runner:leave(trial, "failed", result)
  else
    local value, reason = objective.value_of(result, definition.metric, definition.metrics)
    if value then runner:leave(trial, "complete", value) else runner:leave(trial, "refused", reason) end
  end
  handle_events(runner)
end

return inline
