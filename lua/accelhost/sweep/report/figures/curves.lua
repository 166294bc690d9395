--- The learning curves of all trials: their reports by step.
local frame = require "accelhost.sweep.report.figures.frame"
local scale = require "accelhost.sweep.report.scale"
local summary = require "accelhost.sweep.report.summary"
local view = require "accelhost.sweep.report.view"

local MOST, POINTS = 300, 100

-- Reports with finite steps and values, evenly thinned; the last one stays.
local function points_of(reports)
  local list, step = {}, math.max(1, (#reports - 1) / (POINTS - 1))
  for i = 0, math.min(#reports, POINTS) - 1 do
    local report = reports[math.floor(i * step + 0.5) + 1]
    if summary.is_finite(report.value) and summary.is_finite(report.step) then list[#list + 1] = report end
  end
  return list
end

local function path_of(points, x_axis, y_axis)
  local parts, flat = {}, {}
  for i, point in ipairs(points) do
    local x, y = scale.thousandth(x_axis.place(point.step)), scale.thousandth(y_axis.place(point.value) or 0)
    parts[i] = ("%s%d %d"):format(i == 1 and "M" or "L", x, 1000 - y)
    flat[2 * i - 1], flat[2 * i] = x, y
  end
  if #points == 1 then parts[2] = "h0" end
  return table.concat(parts), flat
end

local function axes_of(curves, sign)
  local values, first, last = {}, math.huge, -math.huge
  for _, curve in ipairs(curves) do
    for _, point in ipairs(curve.points) do
      values[#values + 1] = point.value
      first, last = math.min(first, point.step), math.max(last, point.step)
    end
  end
  local low, high, outside, log = summary.bounds(values, sign)
  return scale.of_range(first, last, false, 6), scale.of_range(low, high, log, 6), outside
end

local classes = {complete = "curve done", failed = "curve failed"}

--- The section, nil when nothing was reported twice. Leaves the drawn curves' points, for the page's script, in
--- `self.curves`.
return function(self)
  local with_curve, curves = {}, {}
  for _, row in ipairs(self.rows) do
    if row.trial.reports and #row.trial.reports > 1 then with_curve[#with_curve + 1] = row end
  end
  local drawn = view.thinned(with_curve, MOST)
  for _, row in ipairs(drawn) do
    local points = points_of(row.trial.reports)
    if #points > 0 then curves[#curves + 1] = {row = row, points = points} end
  end
  if #curves == 0 then return nil end
  local x_axis, y_axis, outside = axes_of(curves, self.found.sign)
  local lines, best = {["curve done"] = {}, ["curve failed"] = {}, ["curve stopped"] = {}}, ""
  self.curves = {}
  for i, curve in ipairs(curves) do
    local data, flat = path_of(curve.points, x_axis, y_axis)
    self.curves[i] = {curve.row.index, flat}
    if curve.row == self.best then best = data
    else table.insert(lines[classes[curve.row.trial.state] or "curve stopped"], data) end
  end
  local metric = self.study.metric
  local note = "Reports of the trials, by step; trials that were stopped or paused are faint."
    .. view.left_out(#drawn, #with_curve, "trials") .. (outside > 0 and " Values far off are at the edge." or "")
  return frame.section("curves", "Learning curves", note, frame.plot({
    kind = "curves", label = ("Learning curves of %d trials: %s by step."):format(#curves, metric),
    x_ticks = x_axis.ticks,
    y_ticks = y_axis.ticks, x_name = "step", y_name = view.axis_name(metric, y_axis), height = 19,
  }, frame.path("curve stopped", lines["curve stopped"]), frame.path("curve failed", lines["curve failed"]),
    frame.path("curve done", lines["curve done"]), frame.path("curve best", best)))
end
