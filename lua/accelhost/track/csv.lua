--- CSVTracker: values as a table of comma-separated columns.
local C = require "accelhost._C"
local csv = require "accelhost.util.csv"
local TableTracker = require "accelhost.track.table_tracker"
local LogFile = require "accelhost.track.log_file"

local cell = csv.cell

local format = {}

local function line_of(cells) return table.concat(cells, ",") .. "\n" end

--- A row as a line, in the order of the columns.
---@param row table {step, wall_time, names, values}
---@param columns string[]
---@return string
function format.line(row, columns)
  local cells = {}
  for i, name in ipairs(columns) do
    cells[i] = name == "step" and cell(row.step) or name == "wall_time" and ("%.6f"):format(row.wall_time)
      or cell(row.values[name])
  end
  return line_of(cells)
end

local words = {["nan"] = 0 / 0, ["inf"] = math.huge, ["-inf"] = -math.huge, ["true"] = true, ["false"] = false}

local function value_of(text)
  if text == "" then return nil end
  local word = words[text:lower()]
  if word ~= nil then return word end
  return tonumber(text) or text
end

local function read_row(columns, cells)
  local row = {names = {}, values = {}, cells = cells}
  for i, name in ipairs(columns) do
    local value = value_of(cells[i] or "")
    if name == "step" or name == "wall_time" then
      row[name] = tonumber(value)
    elseif value ~= nil then
      row.names[#row.names + 1], row.values[name] = name, value
    end
  end
  return row
end

--- The rows of a text (its `columns` are those of the first line), and whether all of it is rows.
---@return table[]
---@return boolean
function format.read(text)
  local lines, clean = C.data.csv_rows(text)
  local rows = {columns = lines[1]}
  for i = 2, #lines do rows[i - 1] = read_row(lines[1], lines[i]) end
  return rows, clean
end

--- Rows that were read as a text again, under the columns that there are now.
---@param rows table[]
function format.write(rows)
  if not rows.columns then return "" end
  local lines = {}
  local function add(given)
    local cells = {}
    for i = 1, #rows.columns do cells[i] = cell(given[i]) end
    lines[#lines + 1] = line_of(cells)
  end
  add(rows.columns)
  for _, row in ipairs(rows) do add(row.cells) end
  return table.concat(lines)
end

local CSVTracker = TableTracker.define("CSVTracker", "csv", format)

--- log_with = "csv": each call of log is one row of LOGGING_DIR/PROJECT/metrics.csv, under columns `step`, `wall_time`
-- (seconds since 1970) and the values' names. A name that is new is a column at the right, for which the file is
-- written again. The configuration is config.json next to it. A run that is resumed sets purge_step in init_kwargs:
-- rows from it on go.
--
--   local folder = os.tmpname() .. ".runs"
--   local own = accelhost.Accelerator{log_with = "csv", project_dir = folder}
--   own:init_trackers "mnist"
--   own:log({loss = 0.25}, {step = 1})
--   io.lines(folder .. "/mnist/metrics.csv")()  --> step,wall_time,loss
---@param run_name string the project
---@param options? table purge_step
function CSVTracker:init(run_name, logging_dir, options)
  TableTracker.init(self, run_name, logging_dir, options)
end

-- Add columns for the names that are new; the file is rewritten before the row is added.
function CSVTracker:_widen(names)
  local columns, known = {"step", "wall_time"}, {step = true, wall_time = true}
  for _, list in ipairs {self.columns or {}, names} do
    for _, name in ipairs(list) do
      if not known[name] then columns[#columns + 1] = name end
      known[name] = true
    end
  end
  if self.columns and #columns == #self.columns then return end
  local rows = format.read(LogFile.content("log: csv", self.path) or "")
  for _, row in ipairs(rows) do
    local cells = {}
    for i, name in ipairs(rows.columns) do cells[name] = row.cells[i] end
    row.cells = {}
    for i, name in ipairs(columns) do row.cells[i] = cells[name] or "" end
  end
  rows.columns = columns
  self.file:close()
  C.io.write_text(self.path, format.write(rows))
  self.file, self.columns = LogFile("log: csv", self.path), columns
  self.tracker = self.file
end

function CSVTracker:_append(row)
  self:_widen(row.names)
  self.file:append(format.line(row, self.columns))
  self.row_count = self.row_count + 1
end

return CSVTracker
