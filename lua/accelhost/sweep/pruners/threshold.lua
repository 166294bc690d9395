--- Stops a trial whose metric is not a number, below `lower` or above `upper`: from `n_warmup_steps` on, looked at
--- every `interval_steps`. The bounds are those of the metric as it is reported, also where it is maximised.
local Course = require "accelhost.sweep.pruners.course"
local Pruner = require "accelhost.sweep.pruners.pruner"
local arguments = require "accelhost.util.arguments"

local ThresholdPruner = Pruner:extend "ThresholdPruner"

ThresholdPruner.option_rows = {
  {"lower", "number"}, {"upper", "number"}, {"n_warmup_steps", "size", 0}, {"interval_steps", "count", 1},
}

function ThresholdPruner:init(options)
  Pruner.init(self, options)
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

function ThresholdPruner:finish(trial, loss) self.course:take(trial.number) end

return ThresholdPruner
