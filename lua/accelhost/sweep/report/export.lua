--- A study in the forms of other programs: CSV, JSON, YAML, Lua.
local csv = require "accelhost.util.csv"
local json = require "accelhost.util.json"
local params = require "accelhost.util.params"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"

local export = {}

local function cell(value) return csv.cell(type(value) == "table" and show.value(value) or value) end

local function line(values, count)
  local parts = {}
  for i = 1, count do parts[i] = cell(values[i]) end
  return table.concat(parts, ",") .. "\r\n"
end

-- Columns before and after the parameters; the second is the field of a trial.
local before = {{"number", "number"}, {"state", "state"}, {"value", "value"}}
local after = {
  {"started", "started"}, {"ended", "ended"}, {"seconds", "seconds"}, {"attempt", "attempt"},
  {"replicate", "replicate"},
  {"bracket", "bracket"}, {"rung", "rung"}, {"directory", "directory"}, {"error", "error"}, {"violation", "violation"},
}

local function columns_of(study)
  local columns = {}
  for _, pair in ipairs(before) do columns[#columns + 1] = {name = pair[1], field = pair[2]} end
  for i, name in ipairs(study.metrics or {}) do columns[#columns + 1] = {name = "values." .. name, place = i} end
  for _, parameter in ipairs(study.space) do
    columns[#columns + 1] = {name = "params." .. parameter.name, parameter = parameter.name}
  end
  for _, pair in ipairs(after) do columns[#columns + 1] = {name = pair[1], field = pair[2]} end
  return columns
end

--- A row for each trial, with the names in the first: number, state, value, params.NAME ..., times (seconds since
--- 1970), and the whole error.
function export.csv(study)
  local columns, names, lines = columns_of(study), {}, {}
  for i, column in ipairs(columns) do names[i] = column.name end
  lines[1] = line(names, #columns)
  for _, trial in ipairs(study.trials) do
    local values = {}
    for i, column in ipairs(columns) do
      if column.parameter then values[i] = trial.params[column.parameter]
      elseif column.place then values[i] = trial.values and trial.values[column.place]
      elseif column.field == "seconds" then values[i] = summary.seconds(trial)
      else values[i] = trial[column.field] end
    end
    lines[#lines + 1] = line(values, #columns)
  end
  return table.concat(lines)
end

--- A row for each report: trial, step, value.
function export.reports_csv(study)
  local lines = {line({"trial", "step", "value"}, 3)}
  for _, trial in ipairs(study.trials) do
    for _, report in ipairs(trial.reports or {}) do
      lines[#lines + 1] = line({trial.number, report.step, report.value}, 3)
    end
  end
  return table.concat(lines)
end

-- JSON has no values that are not finite: they are written as strings.
local function plain(value)
  if type(value) == "number" and not summary.is_finite(value) then
    return value ~= value and "nan" or value > 0 and "inf" or "-inf"
  end
  if type(value) == "string" then return (printable.utf8(value):gsub("%z", "?")) end
  if type(value) ~= "table" or value == json.null then return value end
  local made = {}
  for key, item in pairs(value) do made[plain(key)] = plain(item) end
  return made
end

local study_fields = {
  "name", "direction", "metric", "metrics", "directions", "sampler", "pruner", "seed", "started", "command",
  "constraints",
}
local trial_fields = {
  "number", "state", "value", "values", "params", "reports", "started", "ended", "attempt", "replicate", "bracket",
  "rung", "directory", "error", "metrics", "violation",
}

local function picked(from, fields)
  local made = {}
  for _, field in ipairs(fields) do made[field] = plain(from[field]) end
  return made
end

--- The whole study, reports too. Values that are not finite are the texts "nan", "inf" and "-inf".
function export.json(study)
  local made = picked(study, study_fields)
  made.space, made.trials = json.array(plain(study.space)), json.array {}
  for i, trial in ipairs(study.trials) do
    made.trials[i] = picked(trial, trial_fields)
    made.trials[i].reports = json.array(made.trials[i].reports or {})
  end
  return json.encode(made, 1) .. "\n"
end

--- Parameters by dotted names as YAML, nested: the input of `accelhost launch --params`.
---@return string
function export.yaml(settings) return params.yaml(params.nest(plain(settings))) end

--- Parameters by dotted names as the text of a Lua table, nested.
function export.lua(settings) return params.lua(params.nest(plain(settings))) .. "\n" end

return export
