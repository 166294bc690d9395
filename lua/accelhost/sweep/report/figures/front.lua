--- Trials of several metrics as dots, each further metric over the first one, and their Pareto front.
local frame = require "accelhost.sweep.report.figures.frame"
local scale = require "accelhost.sweep.report.scale"
local show = require "accelhost.sweep.report.show"
local view = require "accelhost.sweep.report.view"

local MOST = 4000

-- An axis of the values of a metric.
local function axis_of(trials, place)
  local low, high = math.huge, -math.huge
  for _, trial in ipairs(trials) do
    low, high = math.min(low, trial.values[place]), math.max(high, trial.values[place])
  end
  local room = high > low and (high - low) * 0.03 or math.abs(low) * 0.1 + 1e-9
  return scale.of_range(low - room, high + room, false, 5)
end

local function picture(self, trials, place)
  local metrics, front = self.study.metrics, self.found.front
  local x_axis, y_axis = axis_of(trials, 1), axis_of(trials, place)
  local is_on_front, others, best, line = {}, {}, {}, {}
  for _, trial in ipairs(front) do is_on_front[trial] = true end
  local function at(trial)
    return scale.thousandth(x_axis.place(trial.values[1])), scale.thousandth(y_axis.place(trial.values[place]))
  end
  for _, row in ipairs(view.thinned(self.rows, MOST)) do
    if row.trial.values and not is_on_front[row.trial] then others[#others + 1] = frame.dot(at(row.trial)) end
  end
  for i, trial in ipairs(front) do
    local x, y = at(trial)
    best[i] = frame.dot(x, y)
    -- The front of two metrics is a curve; of more metrics, their dots are not one.
    if #metrics == 2 then line[i] = ("%s%d %d"):format(i == 1 and "M" or "L", x, 1000 - y) end
  end
  return frame.plot({
    label = ("%s over %s of %s; %d are on the Pareto front."):format(metrics[place], metrics[1],
      show.count(#trials, "trial"), #front),
    x_ticks = x_axis.ticks, y_ticks = y_axis.ticks, x_name = metrics[1], y_name = metrics[place], height = 17,
  }, frame.path("dots done", others), frame.path("so-far", line), frame.path("dots best", best))
end

--- The section, nil for a study with one metric or without a trial that has ended.
return function(self)
  if not self.found.front or #self.found.front == 0 then return nil end
  local pictures = {}
  for place = 2, #self.study.metrics do pictures[#pictures + 1] = picture(self, self.found.ranked, place) end
  return frame.section("front", "Pareto front", "Each dot is a trial. No trial is better than those of the front in "
    .. "one metric and as good in the others. The next sections are of " .. self.study.metrics[1] .. ".",
    table.concat(pictures, "\n"))
end
