-- A scene as SVG.
local looks = require "accelhost.plot.looks"
local printable = require "accelhost.util.printable"

local function number(value)
  return (("%.2f"):format(value):gsub("%.?0+$", ""))
end

local anchors = {left = "start", middle = "middle", right = "end"}

local draw = {}

draw.line = function(item)
  local points, look = {}, looks.line(item)
  for i = 1, #item.points, 2 do
    points[#points + 1] = number(item.points[i]) .. "," .. number(item.points[i + 1])
  end
  -- A point alone is a dot.
  if #points == 1 then points[2] = points[1] end
  local opacity = look.opacity < 1 and (' stroke-opacity="%g"'):format(look.opacity) or ""
  local round = (item.role == "curve" or item.role == "raw") and ' stroke-linecap="round" stroke-linejoin="round"' or ""
  return ('<polyline points="%s" stroke="%s" stroke-width="%g"%s%s/>'):format(table.concat(points, " "), look.color,
    look.width, opacity, round)
end

draw.text = function(item)
  local look = looks.text(item)
  return ('<text x="%s" y="%s" font-size="%d" fill="%s" text-anchor="%s"%s>%s</text>'):format(number(item.x),
    number(item.y + look.size * 0.35), look.size, look.color, anchors[item.align], look.bold and ' font-weight="bold"'
    or "", printable.markup(item.text))
end

draw.box = function(item)
  return ('<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>'):format(number(item.x), number(item.y),
    number(item.width), number(item.height), looks.page)
end

--- The text of the file.
---@return string
return function(scene)
  local width, height = number(scene.width), number(scene.height)
  local lines = {
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" fill="none" '
      .. 'font-family="sans-serif">'):format(width, height, width, height),
  }
  for _, item in ipairs(scene.items) do lines[#lines + 1] = draw[item.kind](item) end
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end
