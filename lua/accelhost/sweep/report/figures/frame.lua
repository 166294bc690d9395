--- A picture with its axes, title and note, at home in any width without a script.
--
-- The inside is an SVG of 1000 by 1000 units that is stretched to its place; lines keep their width, dots are lines of
-- no length with round ends, and so neither is distorted. Labels are HTML next to it, in the size of the page's text.
-- Positions are numbers from 0 to 1, to the right and upwards.
local columns_of = require("accelhost.util.columns").of
local markup = require "accelhost.sweep.report.markup"

local frame = {}

local tag, text = markup.tag, markup.text

local function percent(fraction) return ("%.4g%%"):format(fraction * 100) end

--- A path of the picture; without points nothing.
---@param class string
---@param data string|string[] SVG's path commands
function frame.path(class, data)
  if type(data) == "table" then data = table.concat(data) end
  return data ~= "" and ('<path class="%s" d="%s"/>'):format(class, data) or ""
end

--- A dot at thousandths, y from below.
---@param x integer
---@param y integer
function frame.dot(x, y) return ("M%d %dh0"):format(x, 1000 - y) end

--- Lines across the picture at ticks.
---@param x_ticks table[]
---@param y_ticks table[]
---@return string
function frame.grid(x_ticks, y_ticks)
  local parts = {}
  for _, tick in ipairs(x_ticks) do parts[#parts + 1] = ("M%d 0v1000"):format(tick.at * 1000) end
  for _, tick in ipairs(y_ticks) do parts[#parts + 1] = ("M0 %dh1000"):format(1000 - tick.at * 1000) end
  return frame.path("grid", parts)
end

--- The SVG. `label` describes the picture in words.
---@param ... string
---@return string
function frame.svg(label, ...)
  return tag("svg", {viewBox = "0 0 1000 1000", preserveAspectRatio = "none",
    role = "img", ["aria-label"] = label}, ...)
end

-- Names of choices share the width, so that none runs into its neighbour.
local function x_labels(ticks, crowded)
  local parts = {}
  for i, tick in ipairs(ticks) do
    local at = tick.at
    local class = at < 0.04 and "first" or at > 0.96 and "last" or nil
    if i % 2 == 0 and #ticks > 4 then class = (class and class .. " " or "") .. "spare" end
    parts[i] = tag("span", {
      class = class, title = crowded and tick.text,
      style = "left:" .. percent(at) .. (crowded and ";max-width:" .. percent(1 / #ticks) or ""),
    }, text(tick.text))
  end
  return tag("div", {class = "x", ["aria-hidden"] = "true"}, table.concat(parts))
end

local function y_labels(ticks)
  local parts, most = {}, 1
  for i, tick in ipairs(ticks) do
    most = math.max(most, math.min(16, columns_of(tick.text)))
    parts[i] = tag("span", {style = "bottom:" .. percent(tick.at), title = #tick.text > 16 and tick.text},
      text(tick.text))
  end
  return tag("div", {class = "y", ["aria-hidden"] = "true", style = ("width:%dch"):format(most + 1)},
    table.concat(parts))
end

--- A picture with axes.
---@param options table {kind, label, x_ticks, y_ticks, x_name, y_name, crowded, data, height, width}
---@param ... string the paths
---@return string
function frame.plot(options, ...)
  local area = tag("div", {
    class = "area", ["data-kind"] = options.kind, ["data-at"] = options.at,
    style = options.height and ("height:%drem"):format(options.height),
  }, frame.svg(options.label, options.bare and "" or frame.grid(options.crowded and {} or options.x_ticks,
    options.y_ticks), ...))
  return tag("div", {class = "plot"},
    options.y_name and tag("div", {class = "name"}, text(options.y_name)) or "",
    y_labels(options.y_ticks), tag("div", {class = "inner"}, area, x_labels(options.x_ticks, options.crowded)),
    options.x_name and tag("div", {class = "name under"}, text(options.x_name)) or "")
end

--- The attributes of a part that may be wider than the page, so that keys scroll it.
function frame.wide(label) return {class = "wide", tabindex = "0", role = "region", ["aria-label"] = label} end

--- Return a section of the page with a heading, a note and its content.
---@param id string
---@param note string
---@param ... string
---@return string
function frame.section(id, title, note, ...)
  return tag("section", {id = id}, tag("h2", nil, text(title)),
    note ~= "" and tag("p", {class = "note"}, text(note)) or "",
    ...)
end

return frame
