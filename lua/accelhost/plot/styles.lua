-- The sizes by which a scene is laid out, in cells of a terminal or in pixels.
local styles = {}

--- Of a terminal: a cell is 1 by 1 and holds 2 by 4 dots.
---@param width integer columns
---@param height integer lines of a plot
---@param several boolean are there several runs?
function styles.terminal(width, height, several)
  return {
    width = width, panel = height, char = 1, line = 1, margin = 0, between = 3, space = 1, least = 80,
    title = 1, foot = 2, below = 1, tick = 0, gap = 1, inset = 1.25, inset_y = 0.125, y_room = 2, x_room = 10,
    fine = 2, marks = several, grid = false, faint = false,
  }
end

--- Of a picture.
---@param width integer pixels
---@param height integer of a plot
function styles.picture(width, height)
  return {
    width = width, panel = height, char = 6.6, line = 18, margin = 14, between = 24, space = 18, least = 420,
    title = 1.3, foot = 26, below = 15, tick = 4, gap = 5, inset = 3, inset_y = 0, y_room = 38, x_room = 80, fine = 2,
    marks = false, grid = true, faint = true,
  }
end

return styles
