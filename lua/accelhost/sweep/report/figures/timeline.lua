--- Which slot ran which trial when.
local frame = require "accelhost.sweep.report.figures.frame"
local markup = require "accelhost.sweep.report.markup"
local plot_ticks = require "accelhost.plot.ticks"
local summary = require "accelhost.sweep.report.summary"

local tag = markup.tag

-- Boxes of one state in one slot that touch become one, so that there are never more than can be seen.
local function boxes_of(rows, x_of, slots)
  local open, order, parts, height = {}, {}, {}, 1000 / slots
  local function close(box)
    local state, slot = box.state, box.slot
    parts[state] = parts[state] or {}
    table.insert(parts[state], ("M%.4g %.4gh%.4gv%.4gh%.4gz"):format(box.from, slot * height + height * 0.1,
      math.max(0.5, box.till - box.from), height * 0.8, -math.max(0.5, box.till - box.from)))
  end
  for _, row in ipairs(rows) do
    local state, from, till = row.trial.state, x_of(row.trial.started), x_of(row.till)
    local key = state .. row.slot
    local box = open[key]
    if box and from - box.from < 1 then
      box.till = math.max(box.till, till)
    else
      if box then close(box) else order[#order + 1] = key end
      -- A line of the page's colour parts neighbours that are wide enough.
      open[key] = {from = from, till = till - from > 3 and till - 0.8 or till, state = state, slot = row.slot}
    end
  end
  for _, key in ipairs(order) do close(open[key]) end
  return parts
end

--- The section, nil when no times are known.
---@param self table from accelhost.sweep.report.view
---@return string?
return function(self)
  local rows, first, last, slots = self.timed, math.huge, -math.huge, 1
  if #rows == 0 then return nil end
  for _, row in ipairs(rows) do
    first, last = math.min(first, row.trial.started), math.max(last, row.till)
    slots = math.max(slots, row.slot + 1)
  end
  local length = math.max(last - first, 1e-3)
  local boxes = boxes_of(rows, function(time) return (time - first) / length * 1000 end, slots)
  local paths, keys, x_ticks, y_ticks = {}, {}, {}, {}
  for _, state in ipairs(summary.states) do
    if boxes[state] then
      paths[#paths + 1] = frame.path("box " .. state, boxes[state])
      keys[#keys + 1] = tag("span", {class = "key " .. state}, state)
    end
  end
  for i, tick in ipairs(plot_ticks.time(0, length, 6)) do x_ticks[i] = {at = tick.at / length, text = tick.text} end
  for slot = 0, slots - 1, math.ceil(slots / 16) do
    y_ticks[#y_ticks + 1] = {at = 1 - (slot + 0.5) / slots, text = ("slot %d"):format(slot)}
  end
  self.timeline = {first = first, length = length, slots = slots}
  return frame.section("timeline", "Timeline", "What ran when.", tag("p", {class = "keys"}, table.concat(keys)),
    frame.plot({
    kind = "timeline", label = ("Timeline of %d trials in %d slots."):format(#rows, slots), x_ticks = x_ticks,
    y_ticks = y_ticks, bare = true, height = math.max(5, math.min(20, 1.6 * slots)),
  }, table.concat(paths)))
end
