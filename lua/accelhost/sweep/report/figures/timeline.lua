--- The trials of each slot over time.
local frame = require "accelhost.sweep.report.figures.frame"
local markup = require "accelhost.sweep.report.markup"
local plot_ticks = require "accelhost.plot.ticks"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"

local tag = markup.tag

-- Boxes of one state in one slot that touch become one, so that there are never more than can be seen.
local function boxes_of(spans, slots)
  local open, order, parts, height = {}, {}, {}, 1000 / slots
  local function close(box)
    local wide = math.max(0.5, box.till - box.from)
    parts[box.state] = parts[box.state] or {}
    table.insert(parts[box.state], ("M%.4g %.4gh%.4gv%.4gh%.4gz"):format(box.from, box.slot * height + height * 0.1,
      wide, height * 0.8, -wide))
  end
  for _, span in ipairs(spans) do
    local key = span.state .. span.slot
    local box = open[key]
    if box and span.left - box.from < 1 then
      box.till = math.max(box.till, span.right)
    else
      if box then close(box) else order[#order + 1] = key end
      -- A line of the page's colour parts neighbours that are wide enough.
      local till = span.right - span.left > 3 and span.right - 0.8 or span.right
      open[key] = {from = span.left, till = till, state = span.state, slot = span.slot}
    end
  end
  for _, key in ipairs(order) do close(open[key]) end
  return parts
end

--- The section, nil when no times are known. Leaves the places of the spans in them, `left` and `right`, and the number
--- of slots in `self.slots`.
return function(self)
  local spans, first, last, slots = self.spans, math.huge, -math.huge, 1
  if #spans == 0 then return nil end
  for _, span in ipairs(spans) do
    first, last, slots = math.min(first, span.from), math.max(last, span.till), math.max(slots, span.slot + 1)
  end
  local length = math.max(last - first, 1e-3)
  for _, span in ipairs(spans) do
    span.left, span.right = (span.from - first) / length * 1000, (span.till - first) / length * 1000
  end
  self.slots = slots
  local boxes = boxes_of(spans, slots)
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
  local label = ("Timeline of %s in %s."):format(show.count(#self.rows, "trial"), show.count(slots, "slot"))
  return frame.section("timeline", "Timeline", "Trials by time.", tag("p", {class = "keys"}, table.concat(keys)),
    frame.plot({
    kind = "timeline", label = label, x_ticks = x_ticks,
    y_ticks = y_ticks, bare = true, height = math.max(5, math.min(20, 1.6 * slots)),
  }, table.concat(paths)))
end
