-- A scene as text: lines in Braille, two by four dots a cell, axes in box-drawing characters.
local columns_of = require("accelhost.util.columns").of

local CHARACTER = "[^\128-\191][\128-\191]*"
local COLORS = {"36", "33", "35", "32", "34", "31"} -- of runs
local DOTS = {{1, 2, 4, 64}, {8, 16, 32, 128}} -- of a cell, by column and row

local function new_page(scene)
  local page = {}
  for row = 1, math.ceil(scene.height) do page[row] = {} end
  return page
end

local function cell_at(page, column, row)
  local line = page[row + 1]
  if not line or column < 0 then return nil end
  local cell = line[column + 1]
  if not cell then
    cell = {}
    line[column + 1] = cell
  end
  return cell
end

local function set_dot(page, x, y, run)
  local cell = cell_at(page, math.floor(x / 2), math.floor(y / 4))
  if not cell or cell.text then return end
  local bit = DOTS[x % 2 + 1][y % 4 + 1]
  local bits = cell.bits or 0
  if math.floor(bits / bit) % 2 == 0 then cell.bits = bits + bit end
  cell.run = run
end

-- The dots between two, by Bresenham's rule.
local function draw_line(page, x, y, x2, y2, run)
  local dx, dy = math.abs(x2 - x), -math.abs(y2 - y)
  local step_x, step_y, off = x < x2 and 1 or -1, y < y2 and 1 or -1, dx + dy
  while true do
    set_dot(page, x, y, run)
    if x == x2 and y == y2 then return end
    local twice = 2 * off
    if twice >= dy then off, x = off + dy, x + step_x end
    if twice <= dx then off, y = off + dx, y + step_y end
  end
end

local function draw_curve(page, item)
  local points = item.points
  local x, y = math.floor(points[1] * 2), math.floor(points[2] * 4)
  set_dot(page, x, y, item.run)
  for i = 3, #points, 2 do
    local x2, y2 = math.floor(points[i] * 2), math.floor(points[i + 1] * 4)
    draw_line(page, x, y, x2, y2, item.run)
    x, y = x2, y2
  end
end

-- Box characters by the sides of a cell that an axis crosses: 1 left, 2 right, 4 up, 8 down.
local BOXES = {
  [1] = "─", [2] = "─", [3] = "─", [4] = "│", [5] = "┘", [6] = "└", [7] = "┴", [8] = "│", [9] = "┐", [10] = "┌",
  [11] = "┬", [12] = "│", [13] = "┤", [14] = "├", [15] = "┼",
}

local function join(page, column, row, side)
  local cell = cell_at(page, column, row)
  if not cell then return end
  local sides = cell.sides or 0
  if math.floor(sides / side) % 2 == 0 then cell.sides = sides + side end
end

local SIDES = {left = 1, below = 8}

-- An axis, or a tick on it, which has no length here.
local function draw_axis(page, item)
  local x, y, x2, y2 = unpack(item.points)
  local from, to, top, bottom = math.floor(x), math.floor(x2), math.floor(y), math.floor(y2)
  if item.side then return join(page, from, top, SIDES[item.side]) end
  for column = from, y == y2 and to or from - 1 do
    if column > from then join(page, column, top, 1) end
    if column < to then join(page, column, top, 2) end
  end
  for row = top, x == x2 and bottom or top - 1 do
    if row > top then join(page, from, row, 4) end
    if row < bottom then join(page, from, row, 8) end
  end
end

local function draw_text(page, item)
  local width = columns_of(item.text)
  local column = math.floor(item.x)
  if item.align == "right" then column = math.floor(item.x + 0.5) - width end
  if item.align == "middle" then column = math.floor(item.x - width / 2 + 0.5) end
  for character in item.text:gmatch(CHARACTER) do
    local cell = cell_at(page, column, math.floor(item.y))
    local wide = columns_of(character)
    if cell then cell.text, cell.run, cell.bold = character, item.run, item.role == "title" end
    for extra = 1, wide - 1 do
      local next_cell = cell_at(page, column + extra, math.floor(item.y))
      if next_cell then next_cell.text = "" end
    end
    column = column + wide
  end
end

local draw = {
  text = function(page, item) draw_text(page, item) end,
  box = function() end,
  line = function(page, item)
    if item.role == "axis" then return draw_axis(page, item) end
    if item.role == "key" then
      for column = math.floor(item.points[1]), math.floor(item.points[3]) - 1 do
        local cell = cell_at(page, column, math.floor(item.points[2]))
        cell.text, cell.run = "─", item.run
      end
      return nil
    end
    return draw_curve(page, item)
  end,
}

local function braille(bits)
  return string.char(0xe2, 0xa0 + math.floor(bits / 64), 0x80 + bits % 64)
end

local function style_of(cell, colored)
  if not colored then return "" end
  if cell.bold then return "\27[1m" end
  return cell.run and (cell.text or cell.bits) and ("\27[%sm"):format(COLORS[(cell.run - 1) % #COLORS + 1]) or ""
end

local function line_text(line, colored)
  local parts, last, style = {}, 0, ""
  for column in pairs(line) do last = math.max(last, column) end
  for column = 1, last do
    local cell = line[column] or {}
    local own = style_of(cell, colored)
    if own ~= style then
      if style ~= "" then parts[#parts + 1] = "\27[0m" end
      parts[#parts + 1] = own
      style = own
    end
    parts[#parts + 1] = cell.text or cell.bits and braille(cell.bits) or cell.sides and BOXES[cell.sides] or " "
  end
  if style ~= "" then parts[#parts + 1] = "\27[0m" end
  return (table.concat(parts):gsub(" +$", ""))
end

--- The scene as lines of text.
---@param colored boolean a colour for each run
return function(scene, colored)
  local page, lines = new_page(scene), {}
  for _, item in ipairs(scene.items) do draw[item.kind](page, item) end
  for row, line in ipairs(page) do lines[row] = line_text(line, colored) end
  return table.concat(lines, "\n") .. "\n"
end
