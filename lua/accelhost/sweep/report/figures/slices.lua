--- The objective against each parameter alone.
local frame = require "accelhost.sweep.report.figures.frame"
local markup = require "accelhost.sweep.report.markup"
local view = require "accelhost.sweep.report.view"

local tag = markup.tag

local MOST = 1500

local function slice(self, axis, rows)
  local shades, faint, best, count = {{}, {}, {}, {}, {}}, {}, "", 0
  for _, row in ipairs(rows) do
    local x = row.places[axis.index]
    if x and row.y then
      local dot = frame.dot(x, row.y)
      count = count + 1
      if row == self.best then best = dot
      elseif row.rank then table.insert(shades[row.shade + 1], dot)
      else faint[#faint + 1] = dot end
    end
  end
  if count == 0 then return nil end
  local parts = {frame.path("dots faint", faint)}
  for shade = 4, 0, -1 do parts[#parts + 1] = frame.path("dots q" .. shade, shades[shade + 1]) end
  parts[#parts + 1] = frame.path("dots best", best)
  local label = ("%s against %s, %d trials."):format(self.study.metric, axis.name, count)
  return tag("div", {class = "slice"}, tag("h3", nil, markup.text(axis.name)), frame.plot({
    kind = "slice", at = axis.index, label = label, x_ticks = axis.ticks, y_ticks = self.value.ticks,
    crowded = axis.kind == "categorical", height = 11,
  }, table.concat(parts)))
end

--- The section, nil without values.
return function(self)
  if not self.value then return nil end
  local with_value, parts = view.with_value(self), {}
  local drawn = view.thinned(with_value, MOST)
  for _, row in ipairs(drawn) do row.sliced = true end
  for _, axis in ipairs(self.axes) do parts[#parts + 1] = slice(self, axis, drawn) end
  if #parts == 0 then return nil end
  return frame.section("slices", "Slices", ("%s against each parameter; faint dots are trials %s.%s"):format(
    self.study.metric, view.unranked(self), view.left_out(#drawn, #with_value, "trials")),
    tag("div", {class = "slices"}, table.concat(parts)))
end
