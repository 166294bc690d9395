--- Bounds of a metric.
local Course = require "accelhost.sweep.pruners.course"
local BasePruner = require "accelhost.sweep.pruners.pruner"
local arguments = require "accelhost.util.arguments"

local ThresholdPruner = BasePruner:extend "ThresholdPruner"

local read = arguments.signature("ThresholdPruner", {
  {"lower: number"}, {"upper: number"}, {"n_warmup_steps: size", 0}, {"interval_steps: count", 1},
})
--- Stops a trial whose metric is not a number, below `lower` or above `upper`.
--
--   local pruner = accelhost.sweep.ThresholdPruner{upper = 10}   -- pruner = {"threshold", upper = 10}
---@param lower? number of the reported metric, also where it is maximised
---@param n_warmup_steps? integer default 0: the first step that is checked
---@param interval_steps? integer default 1: number of steps between two checks from there on
function ThresholdPruner:init(...)
  self.lower, self.upper, self.n_warmup_steps, self.interval_steps = read(...)
  if not self.lower and not self.upper then arguments.fail("%s: lower or upper is missing", self._name) end
  if (self.lower or -math.huge) > (self.upper or math.huge) then
    arguments.fail("%s: lower %s is above upper %s", self._name, self.lower, self.upper)
  end
  self.course = Course()
end

function ThresholdPruner:record(trial, step, loss) self.course:add(trial.number, step, loss) end

function ThresholdPruner:judge(trial, step, loss)
  local course = self.course.trials[trial.number]
  if not Course.is_due(course, step, self.n_warmup_steps, self.interval_steps) then return "continue" end
  local value = self.direction == "maximize" and -loss or loss
  local inside = value >= (self.lower or -math.huge) and value <= (self.upper or math.huge)
  return inside and "continue" or "stop"
end

function ThresholdPruner:finish(trial, loss) self.course:remove(trial.number) end

return ThresholdPruner
