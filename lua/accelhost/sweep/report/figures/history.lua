--- The objective of each trial by number, and the best so far.
local frame = require "accelhost.sweep.report.figures.frame"
local scale = require "accelhost.sweep.report.scale"
local show = require "accelhost.sweep.report.show"
local view = require "accelhost.sweep.report.view"

local MOST = 4000

local function best_line(self, axis)
  local parts, last = {}, nil
  local sign = self.found.sign
  for _, row in ipairs(self.rows) do
    if row.rank and row.y and (not last or sign * row.value < sign * last) then
      local x, y = scale.thousandth(axis.place(row.trial.number)), 1000 - row.y
      parts[#parts + 1] = last and ("H%dV%d"):format(x, y) or ("M%d %d"):format(x, y)
      last = row.value
    end
  end
  if last then parts[#parts + 1] = "H1000" end
  return frame.path("so-far", parts)
end

--- The section, nil when no trial has a value.
return function(self)
  local with_value = view.with_value(self)
  if #with_value == 0 then return nil end
  local drawn = view.thinned(with_value, MOST)
  local axis = scale.of_range(0, math.max(1, self.rows[#self.rows].trial.number), false, 6)
  local complete, others, best = {}, {}, ""
  for _, row in ipairs(self.rows) do row.history_x = scale.thousandth(axis.place(row.trial.number)) end
  for _, row in ipairs(drawn) do
    local dot = frame.dot(row.history_x, row.y)
    if row == self.best then best = dot
    elseif row.rank then complete[#complete + 1] = dot
    else others[#others + 1] = dot end
  end
  local metric = self.study.metric
  local label = ("%s of %s by number; the best so far ends at %s."):format(metric, show.count(#with_value, "trial"),
    show.number(self.best and self.best.value))
  local note = "Each dot is a trial, the line is the best so far; faint dots are the last values of trials "
    .. view.unranked(self) .. "." .. view.left_out(#drawn, #with_value, "trials") .. view.outside_words(self)
  return frame.section("history", "History", note, frame.plot({
    kind = "history", label = label, x_ticks = axis.ticks, y_ticks = self.value.ticks, x_name = "trial",
    y_name = view.axis_name(metric, self.value), height = 17,
  }, frame.path("dots faint", others), frame.path("dots done", complete), best_line(self, axis),
    frame.path("dots best", best)))
end
