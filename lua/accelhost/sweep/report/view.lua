--- The data of a study's pictures: a row for each trial with its positions along the axes, and a selection of rows
--- where there are more than can be distinguished.
local scale = require "accelhost.sweep.report.scale"
local summary = require "accelhost.sweep.report.summary"

local view = {}

local is_finite = summary.is_finite

-- A common axis for the values of trials that ended, and the last ones of the others.
local function value_scale(rows, sign)
  local values = {}
  for _, row in ipairs(rows) do values[#values + 1] = row.value end
  local low, high, _, log = summary.bounds(values, sign)
  return low and scale.of_range(low, high, log, 5)
end

-- All spans of time in order, each in the first slot that is free when it begins, unless it has a slot.
local function spans_of(rows, now)
  local spans, free = {}, {}
  for _, row in ipairs(rows) do
    for _, span in ipairs(summary.spans(row.trial)) do
      local till = span.ended or (row.trial.state == "running" and now) or nil
      if till then
        spans[#spans + 1] = {row = row, from = span.started, till = till, state = span.state, slot = row.trial.slot}
      end
    end
  end
  table.sort(spans, function(a, b)
    if a.from ~= b.from then return a.from < b.from end
    return a.row.index < b.row.index
  end)
  for _, span in ipairs(spans) do
    if not span.slot then
      span.slot = 0
      while free[span.slot] and free[span.slot] > span.from + 1e-3 do span.slot = span.slot + 1 end
    end
    free[span.slot] = span.till
  end
  return spans
end

local function row_of(self, trial, now)
  local row = {trial = trial, places = {}}
  row.value = trial.value
  if trial.state ~= "complete" then row.value = summary.last_report(trial) end
  if not is_finite(row.value) then row.value = nil end
  for i, axis in ipairs(self.axes) do
    local place = axis.place(trial.params[axis.name])
    row.places[i] = place and scale.thousandth(place)
  end
  row.seconds = summary.seconds(trial, now)
  return row
end

-- The best ones first, then evenly many of the others, so that at most `most` are drawn.
local function thinned(rows, most)
  if #rows <= most then return rows end
  local picked, list, best = {}, {}, math.floor(most / 4)
  local step = (#rows - 1) / (most - best - 1)
  for i = 0, most - best - 1 do picked[rows[math.floor(i * step + 0.5) + 1]] = true end
  for _, row in ipairs(rows) do
    if row.rank and row.rank <= best then picked[row] = true end
  end
  for _, row in ipairs(rows) do
    if picked[row] then list[#list + 1] = row end
  end
  return list
end
view.thinned = thinned

--- A note on omitted items; "" when none are omitted.
---@param drawn integer
---@param all integer
function view.left_out(drawn, all, what)
  return drawn < all and (" Drawn are %d of %d %s: the best, and evenly many of the others."):format(drawn, all, what)
    or ""
end

--- Describe the trials that are drawn faint.
function view.unranked(self)
  return self.found.infeasible[1] and "that did not run to the end, or that break a constraint"
    or "that did not run to the end"
end

--- Make a view of a study.
---@param now number seconds since 1970
---@return table {study, found, axes, rows, spans, value, outside, best}
function view.of(study, now)
  local self = {study = study, found = summary.of(study, now), axes = {}, rows = {}, by_trial = {}, now = now}
  for i, parameter in ipairs(study.space) do
    local axis = scale.of(parameter, study.trials)
    axis.name, axis.parameter, axis.index = parameter.name, parameter, i
    self.axes[i] = axis
  end
  for i, trial in ipairs(study.trials) do
    local row = row_of(self, trial, now)
    row.index, self.rows[i], self.by_trial[trial] = i, row, row
  end
  local count = #self.found.ranked
  for rank, trial in ipairs(self.found.ranked) do
    local row = self.by_trial[trial]
    row.rank, row.shade = rank, math.floor((rank - 1) * 5 / count)
  end
  self.value, self.outside = value_scale(self.rows, self.found.sign), 0
  for _, row in ipairs(self.rows) do
    local place = self.value and row.value and self.value.place(row.value)
    -- A value that has no logarithm is off the axis, too.
    if not place and self.value and row.value then place = -1 end
    row.y = place and scale.thousandth(place)
    if place and (place > 1 + 1e-9 or place < -1e-9) then self.outside = self.outside + 1 end
  end
  self.spans = spans_of(self.rows, now)
  self.best = self.found.best and self.by_trial[self.found.best]
  return self
end

--- The label of an axis of values.
---@param metric string
---@param axis table
function view.axis_name(metric, axis) return metric .. (axis.log and " (logarithmic)" or "") end

--- The rows of trials that have a value.
function view.with_value(self)
  local rows = {}
  for _, row in ipairs(self.rows) do
    if row.y then rows[#rows + 1] = row end
  end
  return rows
end

--- A note on values outside of the axis; "" when there are none.
function view.outside_words(self)
  if self.outside == 0 then return "" end
  return (" %s off the axis %s at its edge."):format(self.outside == 1 and "One value" or self.outside .. " values",
    self.outside == 1 and "is" or "are")
end

return view
