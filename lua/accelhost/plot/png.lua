-- A scene as a PNG file, painted by the plugin.
local C = require "accelhost._C"
local looks = require "accelhost.plot.looks"

local aligns = {left = 0, middle = 0.5, right = 1}

-- "#1f77b4" as three shares.
local function colored(item, color, alpha)
  item.red, item.green, item.blue = color:match "^#(..)(..)(..)$"
  for _, name in ipairs {"red", "green", "blue"} do item[name] = tonumber(item[name], 16) / 255 end
  item.alpha = alpha or 1
  return item
end

local painted = {}

painted.line = function(item)
  local look = looks.line(item)
  return colored({kind = "line", points = item.points, width = look.width}, look.color, look.opacity)
end

painted.text = function(item)
  local look = looks.text(item)
  return colored({
    kind = "text", x = item.x, y = item.y + look.size * 0.35, text = item.text, size = look.size, bold = look.bold,
    align = aligns[item.align],
  }, look.color)
end

painted.box = function(item)
  return colored({kind = "box", x = item.x, y = item.y, width = item.width, height = item.height}, looks.page)
end

--- The bytes of the file.
---@return string
return function(scene)
  local items = {}
  for i, item in ipairs(scene.items) do items[i] = painted[item.kind](item) end
  return C.plot.png {width = scene.width, height = scene.height, items = items}
end
