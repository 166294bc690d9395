--- The kernel's logo: two chevrons, which point forward, on a round square.
local C = require "accelhost._C"

local logo = {}

local SIDE, ROUND, WIDTH = 64, 14, 8
local chevrons = {{16, 16, 32, 32}, {32, 32, 16, 48}, {32, 16, 48, 32}, {48, 32, 32, 48}}
local background, foreground = {31, 79, 160}, {255, 255, 255}

--- Return the logo as SVG.
function logo.svg()
  local lines = {}
  for i, s in ipairs(chevrons) do lines[i] = ("M%d %dL%d %d"):format(unpack(s)) end
  return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><rect width="%d" height="%d" rx="%d" '
    .. 'fill="#%02x%02x%02x"/><path d="%s" stroke="#fff" stroke-width="%d" stroke-linecap="round" fill="none"/>'
    .. "</svg>\n")
    :format(SIDE, SIDE, SIDE, SIDE, ROUND, background[1], background[2], background[3], table.concat(lines), WIDTH)
end

-- The distance of a point from a line.
local function distance(x, y, line)
  local dx, dy = line[3] - line[1], line[4] - line[2]
  local t = math.max(0, math.min(1, ((x - line[1]) * dx + (y - line[2]) * dy) / (dx * dx + dy * dy)))
  return math.sqrt((x - line[1] - t * dx) ^ 2 + (y - line[2] - t * dy) ^ 2)
end

-- Parts of a pixel at x, y that the square and the chevrons cover, from 0 to 1.
local function covered(x, y, scale)
  local qx, qy = math.abs(x - SIDE / 2) - SIDE / 2 + ROUND, math.abs(y - SIDE / 2) - SIDE / 2 + ROUND
  local outside = math.sqrt(math.max(qx, 0) ^ 2 + math.max(qy, 0) ^ 2) + math.min(math.max(qx, qy), 0) - ROUND
  local nearest = math.huge
  for _, line in ipairs(chevrons) do nearest = math.min(nearest, distance(x, y, line) - WIDTH / 2) end
  local function part(signed) return math.max(0, math.min(1, 0.5 - signed / scale)) end
  return part(outside), part(nearest)
end

--- Return the logo as PNG; nil where the program has no codec.
---@param size integer pixels
---@return string?
function logo.png(size)
  local accelhost = require "accelhost"
  local channels, scale = {{}, {}, {}, {}}, SIDE / size
  for row = 1, size do
    for c = 1, 4 do channels[c][row] = {} end
    for column = 1, size do
      local square, mark = covered((column - 0.5) * scale, (row - 0.5) * scale, scale)
      for c = 1, 3 do
        channels[c][row][column] = math.floor(background[c] + (foreground[c] - background[c]) * mark + 0.5)
      end
      channels[4][row][column] = math.floor(255 * square + 0.5)
    end
  end
  local fine, bytes = pcall(C.data.encode_png, accelhost.tensor(channels):to "uint8")
  return fine and bytes or nil
end

return logo
