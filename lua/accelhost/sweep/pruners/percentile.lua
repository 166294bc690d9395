--- Pruning by a percentile of other trials' reports.
local Course = require "accelhost.sweep.pruners.course"
local BasePruner = require "accelhost.sweep.pruners.pruner"
local arguments = require "accelhost.util.arguments"

local floor, min = math.floor, math.min

local PercentilePruner = BasePruner:extend "PercentilePruner"

local read = arguments.signature("PercentilePruner", {
  {"percentile: number", 25}, {"n_startup_trials: size", 5}, {"n_warmup_steps: size", 0}, {"interval_steps: count", 1},
  {"n_min_trials: count", 1},
})
--- Stops a trial whose best loss so far is worse than a percentile of complete trials' reports at the same step: with
--- 25 the best quarter continues.
--
--   local pruner = accelhost.sweep.PercentilePruner(25, {n_warmup_steps = 3})   -- {"percentile", n_warmup_steps = 3}
---@param percentile? number from 0 to 100, default 25
---@param n_startup_trials? integer default 5: number of trials that must be complete first
---@param n_warmup_steps? integer default 0: the first step at which trials are judged
---@param interval_steps? integer default 1: number of steps between two judgements from there on
---@param n_min_trials? integer default 1: number of complete ones that must have reported at the step
function PercentilePruner:init(...)
  self.percentile, self.n_startup_trials, self.n_warmup_steps, self.interval_steps, self.n_min_trials = read(...)
  if not (self.percentile >= 0 and self.percentile <= 100) then
    arguments.fail("%s: percentile: expected a number from 0 to 100, got %s", self._name, tostring(self.percentile))
  end
  self:_begin()
end

-- Begin without reports: by step the sorted losses of complete trials and the number of reports.
function PercentilePruner:_begin() self.course, self.complete, self.at_step = Course(), 0, {} end

-- Return the place of `loss` in a sorted list.
local function place_for(list, loss)
  local low, high = 1, #list + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if list[middle] <= loss then low = middle + 1 else high = middle end
  end
  return low
end

-- Between two neighbours in the list, as NumPy's percentile.
local function percentile_of(list, percentile)
  local place = (#list - 1) * percentile / 100
  local below = floor(place)
  local first, second = list[below + 1], list[min(below + 2, #list)]
  if first == second then return first end
  return first + (second - first) * (place - below)
end

function PercentilePruner:record(trial, step, loss) self.course:add(trial.number, step, loss) end

function PercentilePruner:judge(trial, step, loss)
  local course = self.course.trials[trial.number]
  if self.complete < math.max(1, self.n_startup_trials) then return "continue" end
  if not Course.is_due(course, step, self.n_warmup_steps, self.interval_steps) then return "continue" end
  local best = Course.best(course)
  if not best then return "stop" end
  local others = self.at_step[step]
  if not others or others.count < self.n_min_trials or #others == 0 then return "continue" end
  return best > percentile_of(others, self.percentile) and "stop" or "continue"
end

function PercentilePruner:finish(trial, loss)
  local course = self.course:remove(trial.number)
  if trial.state ~= "complete" then return end
  self.complete = self.complete + 1
  for step, reported in pairs(course and course.loss_at or {}) do
    local list = self.at_step[step] or {count = 0}
    self.at_step[step] = list
    list.count = list.count + 1
    if reported == reported then table.insert(list, place_for(list, reported), reported) end
  end
end

return PercentilePruner
