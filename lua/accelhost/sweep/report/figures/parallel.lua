--- Parallel coordinates: an axis for each parameter and one for the objective, a line for each trial.
local columns = require "accelhost.util.columns"
local frame = require "accelhost.sweep.report.figures.frame"
local markup = require "accelhost.sweep.report.markup"
local show = require "accelhost.sweep.report.show"
local view = require "accelhost.sweep.report.view"

local tag, text = markup.tag, markup.text

local MOST = 1000

-- Below the axes, where lines pass a parameter that was not active.
local INACTIVE = -60

local function line_of(row, count)
  local parts = {}
  for i = 1, count + 1 do
    local y = i <= count and (row.places[i] or INACTIVE) or row.y
    parts[i] = ("%s%d %d"):format(i == 1 and "M" or "L", math.floor((i - 1) / count * 1000 + 0.5), 1000 - y)
  end
  return table.concat(parts)
end

local function lines_of(self, drawn)
  local shades, faint, best = {{}, {}, {}, {}, {}}, {}, ""
  for _, row in ipairs(drawn) do
    local line = line_of(row, #self.axes)
    if row == self.best then best = line
    elseif row.rank then table.insert(shades[row.shade + 1], line)
    else faint[#faint + 1] = line end
  end
  local parts = {frame.path("strand faint", faint)}
  for shade = 4, 0, -1 do parts[#parts + 1] = frame.path("strand q" .. shade, shades[shade + 1]) end
  parts[#parts + 1] = frame.path("strand best", best)
  return table.concat(parts)
end

local function axis_of(place, name, ticks, detail, inactive)
  local labels = {}
  -- Names of one group differ at their ends, which therefore have a separate line.
  local prefix, rest = name:match "^(.+%.)([^.]+)$"
  rest = rest or name
  for i, tick in ipairs(ticks) do
    labels[i] = tag("span", {style = ("bottom:%.4g%%"):format(tick.at * 100), title = tick.text},
      text(columns.cut(tick.text, 14)))
  end
  if inactive then labels[#labels + 1] = tag("span", {style = ("bottom:%.4g%%"):format(INACTIVE / 10)}, "inactive") end
  return tag("div", {class = "axis", style = ("left:%.4g%%"):format(place * 100), ["aria-hidden"] = "true"},
    tag("b", {title = name .. detail}, prefix and tag("small", nil, text(prefix)) or "", text(rest)),
    table.concat(labels))
end

-- At most this many names of choices are drawn at an axis.
local function few(ticks, most)
  if #ticks <= most then return ticks end
  local list, step = {}, math.ceil(#ticks / most)
  for i = 1, #ticks, step do list[#list + 1] = ticks[i] end
  return list
end

--- The section, nil when there is nothing to compare.
return function(self)
  local count = #self.axes
  local with_value = view.with_value(self)
  if count == 0 or #with_value == 0 then return nil end
  local drawn, marks, stems = view.thinned(with_value, MOST), {}, {}
  local inactive = {}
  for _, row in ipairs(drawn) do
    row.strand = true
    for i = 1, count do inactive[i] = inactive[i] or not row.places[i] end
  end
  for i, axis in ipairs(self.axes) do
    marks[i] = axis_of((i - 1) / count, axis.name, few(axis.ticks, 12), axis.log and " (logarithmic)" or "",
      inactive[i])
    stems[i] = ("M%d 0v1000"):format((i - 1) / count * 1000)
  end
  marks[count + 1] = axis_of(1, self.study.metric, self.value.ticks, self.value.log and " (logarithmic)" or "")
  stems[count + 1] = "M1000 0v1000"
  local label = ("Parallel coordinates of %s over %s and %s."):format(show.count(#with_value, "trial"),
    show.count(count, "parameter"), self.study.metric)
  local note = "A line is a trial, the stronger the better; those " .. view.unranked(self)
    .. " are faint, with their last value; the best one has a separate colour."
    .. view.left_out(#drawn, #with_value, "trials")
  return frame.section("parallel", "Parallel coordinates", note,
    tag("p", {class = "note script"}, "Drag along an axis to keep the trials of a part of it, in the table as well; "
      .. "tap it to let them go."),
    tag("div", frame.wide("Parallel coordinates"),
      tag("div", {class = "parallel", style = ("min-width:%drem"):format(7 * (count + 1))},
        tag("div", {class = "area", ["data-kind"] = "parallel"},
          frame.svg(label, lines_of(self, drawn), frame.path("stem", stems)), table.concat(marks)))))
end
