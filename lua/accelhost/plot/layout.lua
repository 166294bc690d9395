-- Compute a scene of curves: items and their positions, in the units of the renderer (cells of a terminal, pixels).
--
-- A scene is {width, height, items}, drawn in their order; an item has a `kind`:
--   line  {points = {x, y, x, y, ...}, role, run}   role "axis" (with `side` "left" or "below" for a tick of it),
--                                                   "grid", "curve", "raw" or "key" (of the legend)
--   text  {x, y, text, align, role, run}            align "left", "middle" or "right" of x; y is the line's middle;
--                                                   role "title", "tick", "legend", "mark" or "note"
--   box   {x, y, width, height, role}               role "page"
local columns_of = require("accelhost.util.columns").of
local columns = require "accelhost.util.columns"
local series = require "accelhost.plot.series"
local ticks = require "accelhost.plot.ticks"

local layout = {}

local function add(scene, kind, item)
  item.kind = kind
  scene.items[#scene.items + 1] = item
end

--- The letter of a run, drawn at the end of its curve.
---@param place integer
function layout.letter(place)
  local letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
  place = (place - 1) % #letters + 1
  return letters:sub(place, place)
end

-- A range of values with some room at both ends.
local function widen(low, high, fraction)
  if low == high then
    local room = low == 0 and 1 or math.abs(low) * 0.1
    return low - room, high + room
  end
  local room = (high - low) * fraction
  return low - room, high + room
end

-- The shortest form of a text that fits, from its end: folders matter less than names.
local function fit(text, most)
  if columns_of(text) <= most then return text end
  local cut = text
  while columns_of(cut) > math.max(1, most - 1) do cut = cut:gsub("^[^\128-\191][\128-\191]*", "") end
  return "…" .. cut
end

-- The names of the runs, in lines as wide as the page. Returns where they end.
local function add_legend(scene, style, runs)
  local x, y = style.margin, style.margin + style.line / 2
  for place, run in ipairs(runs) do
    local name = fit(run.short, math.floor((style.width - 2 * style.margin) / style.char) - 6)
    local needed = (columns_of(name) + 6) * style.char
    if x > style.margin and x + needed > style.width - style.margin then x, y = style.margin, y + style.line end
    if style.marks then
      add(scene, "text", {x = x, y = y, text = layout.letter(place), align = "left", role = "mark", run = place})
    end
    local from = x + (style.marks and 2 or 0) * style.char
    add(scene, "line", {points = {from, y, from + 2 * style.char, y}, role = "key", run = place})
    add(scene, "text", {x = from + 3 * style.char, y = y, text = name, align = "left", role = "legend", run = place})
    x = x + needed + (style.marks and 2 or 0) * style.char
  end
  return y + style.line / 2 + style.space
end

-- Points of a curve, cut into lines where a value is no number; where many share a column of the page only the first,
-- lowest, highest and last stay.
local function lines_of(xs, ys, map_x, map_y, per_unit)
  local lines, points = {}, {}
  local column, first, low, high, last
  local function put(point)
    if point then points[#points + 1], points[#points + 2] = point[1], point[2] end
  end
  local function flush()
    if not column then return end
    put(first)
    if low[3] < high[3] then put(low ~= first and low) put(high ~= first and high)
    else put(high ~= first and high) put(low ~= first and low ~= high and low) end
    if last ~= first and last ~= low and last ~= high then put(last) end
    column = nil
  end
  local function finish()
    flush()
    if #points > 0 then lines[#lines + 1] = points end
    points = {}
  end
  for i = 1, #ys do
    if ys[i] - ys[i] ~= 0 or xs[i] - xs[i] ~= 0 then
      finish()
    else
      local point = {map_x(xs[i]), map_y(ys[i]), i}
      local own = math.floor(point[1] * per_unit)
      if own ~= column then
        flush()
        column, first, low, high = own, point, point, point
      end
      if point[2] < low[2] then low = point end
      if point[2] > high[2] then high = point end
      last = point
    end
  end
  finish()
  return lines
end

-- A mapping of values to places.
local function mapping(low, high, from, to)
  local scale = high > low and (to - from) / (high - low) or 0
  return function(value) return from + (value - low) * scale end
end

local function add_y_axis(scene, style, area, list, map_y)
  for _, tick in ipairs(list) do
    local y = map_y(tick.at)
    if style.grid then add(scene, "line", {points = {area.left, y, area.right, y}, role = "grid"}) end
    add(scene, "line", {points = {area.left - style.tick, y, area.left, y}, role = "axis", side = "left"})
    local x = area.left - style.tick - style.gap
    add(scene, "text", {x = x, y = y, text = tick.text, align = "right", role = "tick"})
  end
  add(scene, "line", {points = {area.left, area.top, area.left, area.bottom}, role = "axis"})
end

local function add_x_axis(scene, style, area, list, map_x, name)
  local free = area.right - columns_of(name) * style.char - style.char
  local used = area.left - math.huge
  add(scene, "line", {points = {area.left, area.bottom, area.right, area.bottom}, role = "axis"})
  for _, tick in ipairs(list) do
    local x, half = map_x(tick.at), columns_of(tick.text) * style.char / 2
    add(scene, "line", {points = {x, area.bottom, x, area.bottom + style.tick}, role = "axis", side = "below"})
    if x - half > used + style.char and x + half < free then
      add(scene, "text", {x = x, y = area.bottom + style.below, text = tick.text, align = "middle", role = "tick"})
      used = x + half
    end
  end
  add(scene, "text", {x = area.right, y = area.bottom + style.below, text = name, align = "right", role = "note"})
end

-- The letters at the ends of the curves, one below the other where they would meet.
local function add_marks(scene, style, area, ends)
  table.sort(ends, function(a, b) return a.y < b.y end)
  local taken = -math.huge
  for i, one in ipairs(ends) do
    local most = area.bottom - (#ends - i) * style.line
    local y = math.min(math.max(one.y, taken + style.line), most)
    add(scene, "text", {x = area.right + style.gap, y = y, text = layout.letter(one.run), align = "left", role = "mark",
      run = one.run})
    taken = y
  end
end

local function add_curves(scene, style, area, curves, map_x, map_y)
  local ends = {}
  for _, role in ipairs {"raw", "curve"} do
    for _, curve in ipairs(curves) do
      local ys = role == "curve" and curve.y or style.faint and curve.raw
      for _, points in ipairs(ys and lines_of(curve.x, ys, map_x, map_y, style.fine) or {}) do
        add(scene, "line", {points = points, role = role, run = curve.run})
        if role == "curve" then ends[curve] = points[#points] end
      end
    end
  end
  local list = {}
  for _, curve in ipairs(curves) do
    if ends[curve] then list[#list + 1] = {run = curve.run, y = ends[curve]} end
  end
  if style.marks then add_marks(scene, style, area, list) end
end

local function texts_width(list, style)
  local most = 0
  for _, tick in ipairs(list) do most = math.max(most, columns_of(tick.text)) end
  return most * style.char
end

local function axis_ticks(axis) return axis == "time" and ticks.time or ticks.linear end

-- One plot in the rectangle at x, y.
local function add_panel(scene, style, panel, x, y, width, height)
  local title = columns.cut(panel.key, math.floor(width / style.char))
  add(scene, "text", {x = x, y = y + style.line / 2, text = title, align = "left", role = "title"})
  local xs, ys = {}, {}
  for i, curve in ipairs(panel.curves) do
    xs[i] = curve.x
    ys[#ys + 1] = curve.y
    if style.faint and curve.raw then ys[#ys + 1] = curve.raw end
  end
  local x_low, x_high = series.range(xs)
  local y_low, y_high = series.range(ys)
  if not x_low or not y_low then
    local why = panel.log and "no value is above 0" or "no value is a finite number"
    add(scene, "text", {x = x + 2 * style.char, y = y + 2 * style.line, text = why, align = "left", role = "note"})
    return
  end
  if x_low == x_high then x_low, x_high = widen(x_low, x_high, 0) end
  y_low, y_high = widen(y_low, y_high, 0.04)
  local area = {top = y + style.line * style.title, bottom = y + height - style.foot}
  local y_ticks = (panel.log and ticks.log or ticks.linear)(y_low, y_high,
    math.max(2, math.floor((area.bottom - area.top) / style.y_room)))
  area.left = x + texts_width(y_ticks, style) + style.gap + style.tick
  area.right = x + width - (style.marks and style.char + 2 * style.gap or style.char)
  local x_most = math.max(1, math.floor((area.right - area.left) / style.x_room))
  local x_ticks = axis_ticks(panel.axis)(x_low, x_high, x_most)
  local map_x = mapping(x_low, x_high, area.left + style.inset, area.right - style.inset)
  local map_y = mapping(y_low, y_high, area.bottom - style.inset_y, area.top + style.inset_y)
  add_y_axis(scene, style, area, y_ticks, map_y)
  add_x_axis(scene, style, area, x_ticks, map_x, panel.axis)
  add_curves(scene, style, area, panel.curves, map_x, map_y)
end

--- The scene of some plots.
---@param runs table[] {short: its name}
---@param panels table[] {key, curves, axis, log}
---@param style table sizes, see accelhost.plot.styles
function layout.scene(runs, panels, style)
  local scene = {width = style.width, height = 0, items = {}}
  local page = {x = 0, y = 0, width = style.width, role = "page"}
  add(scene, "box", page)
  local top = #runs > 1 and add_legend(scene, style, runs) or style.margin
  local across = math.max(1, math.min(#panels, math.floor(style.width / style.least)))
  local width = (style.width - style.margin * 2 - style.between * (across - 1)) / across
  for i, panel in ipairs(panels) do
    local column, row = (i - 1) % across, math.floor((i - 1) / across)
    add_panel(scene, style, panel, style.margin + column * (width + style.between),
      top + row * (style.panel + style.space), width, style.panel)
  end
  local rows = math.ceil(#panels / across)
  scene.height = top + rows * style.panel + (rows - 1) * style.space + style.margin
  page.height = scene.height
  return scene
end

return layout
