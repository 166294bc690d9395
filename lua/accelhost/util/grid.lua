--- Rows of texts as lines with columns.
local columns = require "accelhost.util.columns"

local grid = {}

local function widths_of(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, columns.of(text)) end
  end
  return widths
end

-- Columns from the left that fit, two blanks between them; the first always does.
local function fitting(widths, options)
  local used = 0
  for i, width in ipairs(widths) do
    local begin = used + (i > 1 and 2 or 0)
    used = begin + width
    if used > options.width and i > 1 then
      return options.cut and i == #widths and begin + 8 <= options.width and i or i - 1
    end
  end
  return #widths
end

--- The lines, as wide as the widest texts need; columns that do not fit are left out from the right.
---@param rows string[][] the first is the heading
---@param options {width?: integer, right?: table<integer, boolean>, cut?: boolean} width: of the lines, nil: any;
---right: right-aligned columns; cut: the last column is cut rather than left out
---@return string[] lines
---@return integer left_out number of columns
function grid.lines(rows, options)
  local widths = widths_of(rows)
  local count = options.width and fitting(widths, options) or #widths
  local lines = {}
  for r, row in ipairs(rows) do
    local parts = {}
    for i = 1, count do parts[i] = columns.pad(row[i], widths[i], options.right and options.right[i]) end
    local line = table.concat(parts, "  "):gsub("%s+$", "")
    lines[r] = options.width and columns.cut(line, options.width) or line
  end
  return lines, #widths - count
end

return grid
