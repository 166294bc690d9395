--- Rows of comma-separated values (RFC 4180): written here, read by C.data.csv_rows.
local C = require "accelhost._C"

local csv = {}

local words = {[math.huge] = "inf", [-math.huge] = "-inf"}

-- All digits that a double needs, and no more.
local function number_text(value)
  if value ~= value then return "nan" end
  if value % 1 == 0 and math.abs(value) < 2 ^ 53 then return ("%d"):format(value) end
  return words[value] or C.json.encode(value)
end

--- Return the text of a cell, quoted where a comma, a quote or an end of line is in it.
---@param value any nil: an empty cell
function csv.cell(value)
  if value == nil then return "" end
  local text = type(value) == "number" and number_text(value) or tostring(value)
  return text:find '[",\r\n]' and '"' .. text:gsub('"', '""') .. '"' or text
end

return csv
