--- The reports of the running trials, for pruners that compare them.
local class = require "accelhost.util.class"

local Course = class.new "Course"

--- Empty: no trial has reported.
function Course:init() self.trials = {} end

--- Add a report; another one of the same step replaces it.
---@param number integer the trial's
---@param step number
---@param loss number
---@return table # {loss_at = {[step] = loss}, last = greatest step, before = greatest step below or above this one}
function Course:add(number, step, loss)
  local trial = self.trials[number]
  if not trial then
    trial = {loss_at = {}, last = -1, before = -1}
    self.trials[number] = trial
  end
  if step > trial.last then
    trial.before, trial.last = trial.last, step
  else
    trial.before = -1
    for at in pairs(trial.loss_at) do
      if at ~= step and at > trial.before then trial.before = at end
    end
  end
  trial.loss_at[step] = loss
  return trial
end

--- Remove a trial.
---@return table? # its reports
function Course:remove(number)
  local trial = self.trials[number]
  self.trials[number] = nil
  return trial
end

--- Is this report the first one since a step at which trials are judged: `warmup` and every `interval` steps on?
---@param trial table from add
---@param step number
---@param warmup integer
function Course.is_due(trial, step, warmup, interval)
  if step < warmup then return false end
  return trial.before < math.floor((step - warmup) / interval) * interval + warmup
end

--- The least loss of a trial, nil when all are NaN.
---@param trial table from add
---@return number?
function Course.best(trial)
  local best
  for _, loss in pairs(trial.loss_at) do
    if loss == loss and not (best and best <= loss) then best = loss end
  end
  return best
end

return Course
