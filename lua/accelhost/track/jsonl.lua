--- JSONLTracker: values as one JSON object a line.
local C = require "accelhost._C"
local TableTracker = require "accelhost.track.table_tracker"

local format = {}

local infinite = {["NaN"] = 0 / 0, ["Infinity"] = math.huge, ["-Infinity"] = -math.huge}

-- JSON has no words for these numbers.
local function encode(value)
  if value ~= value then return '"NaN"' end
  if value == math.huge then return '"Infinity"' end
  if value == -math.huge then return '"-Infinity"' end
  return C.json.encode(value)
end

--- A row as a line.
---@param row table {step, wall_time, names, values}
function format.line(row)
  local parts = {}
  if row.step then parts[1] = '"step": ' .. encode(row.step) end
  parts[#parts + 1] = '"wall_time": ' .. ("%.6f"):format(row.wall_time)
  for _, name in ipairs(row.names) do
    parts[#parts + 1] = ("%s: %s"):format(C.json.encode(name), encode(row.values[name]))
  end
  return "{" .. table.concat(parts, ", ") .. "}\n"
end

local function read_row(line)
  local fine, object = pcall(C.json.decode, line)
  if not fine or type(object) ~= "table" then return nil end
  local row = {step = object.step, wall_time = object.wall_time, names = {}, values = {}, line = line}
  for name, value in next, object do
    if type(name) == "string" and name ~= "step" and name ~= "wall_time" then
      row.names[#row.names + 1] = name
      row.values[name] = infinite[value] or value
    end
  end
  table.sort(row.names)
  return row
end

--- The rows of a text, and whether all of it is rows.
---@return table[]
---@return boolean
function format.read(text)
  local rows, clean = {}, true
  for line, ending in text:gmatch "([^\n]*)(\n?)" do
    local row = ending ~= "" and read_row(line)
    if row then
      rows[#rows + 1] = row
    elseif line ~= "" or ending ~= "" then
      clean = false
    end
  end
  return rows, clean
end

--- Rows that were read as a text again.
---@param rows table[]
function format.write(rows)
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = row.line .. "\n" end
  return table.concat(lines)
end

local JSONLTracker = TableTracker.define("JSONLTracker", "jsonl", format)

--- log_with = "jsonl": each call of log is one line of LOGGING_DIR/PROJECT/metrics.jsonl, an object of `step`,
-- `wall_time` (seconds since 1970) and the values; NaN and infinities are the texts "NaN", "Infinity" and "-Infinity".
-- The configuration is config.json next to it. A run that is resumed sets purge_step in init_kwargs: rows from it on
-- go.
--
--   local folder = os.tmpname() .. ".runs"
--   local own = accelhost.Accelerator{log_with = "jsonl", project_dir = folder}
--   own:init_trackers "mnist"
--   own:log({loss = 0.25}, {step = 1, log_kwargs = {jsonl = {walltime = 12}}})
--   io.lines(folder .. "/mnist/metrics.jsonl")()  --> {"step": 1, "wall_time": 12.000000, "loss": 0.25}
---@param run_name string the project
---@param options? table purge_step
function JSONLTracker:init(run_name, logging_dir, options)
  TableTracker.init(self, run_name, logging_dir, options)
end

return JSONLTracker
