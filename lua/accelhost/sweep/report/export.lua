--- A study in the forms of other programs: CSV, JSON, YAML, Lua.
local arguments = require "accelhost.util.arguments"
local json = require "accelhost.util.json"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"

local export = {}

-- All digits that a double has, no more than it needs.
local function exact(value)
  if value % 1 == 0 and math.abs(value) < 2 ^ 53 then return ("%d"):format(value) end
  for digits = 15, 17 do
    local text = ("%%.%dg"):format(digits):format(value)
    if tonumber(text) == value then return text end
  end
  return ("%.17g"):format(value)
end

-- RFC 4180: quoted where a comma, a quote or an end of line is inside.
local function cell(value)
  if value == nil then return "" end
  local text = type(value) == "number" and exact(value) or type(value) == "table" and show.value(value)
    or tostring(value)
  return text:find '[",\r\n]' and '"' .. text:gsub('"', '""') .. '"' or text
end

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
  {"bracket", "bracket"}, {"rung", "rung"}, {"directory", "directory"}, {"error", "error"},
}

local function columns_of(study)
  local columns = {}
  for _, pair in ipairs(before) do columns[#columns + 1] = {name = pair[1], field = pair[2]} end
  for _, parameter in ipairs(study.space) do
    columns[#columns + 1] = {name = "params." .. parameter.name, parameter = parameter.name}
  end
  for _, pair in ipairs(after) do columns[#columns + 1] = {name = pair[1], field = pair[2]} end
  return columns
end

--- A row for each trial, with the names in the first: number, state, value, params.NAME ..., times (seconds since
--- 1970), and the whole error.
---@param study table
---@return string
function export.csv(study)
  local columns, names, lines = columns_of(study), {}, {}
  for i, column in ipairs(columns) do names[i] = column.name end
  lines[1] = line(names, #columns)
  for _, trial in ipairs(study.trials) do
    local values = {}
    for i, column in ipairs(columns) do
      if column.parameter then values[i] = trial.params[column.parameter]
      elseif column.field == "seconds" then values[i] = summary.seconds(trial)
      else values[i] = trial[column.field] end
    end
    lines[#lines + 1] = line(values, #columns)
  end
  return table.concat(lines)
end

--- A row for each report: trial, step, value.
---@param study table
---@return string
function export.reports_csv(study)
  local lines = {line({"trial", "step", "value"}, 3)}
  for _, trial in ipairs(study.trials) do
    for _, report in ipairs(trial.reports or {}) do
      lines[#lines + 1] = line({trial.number, report.step, report.value}, 3)
    end
  end
  return table.concat(lines)
end

-- JSON has no word for what is not finite: a text stands for it.
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

local study_fields = {"name", "direction", "metric", "sampler", "pruner", "seed", "started", "command"}
local trial_fields = {
  "number", "state", "value", "params", "reports", "started", "ended", "attempt", "replicate", "bracket", "rung",
  "directory", "error", "metrics",
}

local function picked(from, fields)
  local made = {}
  for _, field in ipairs(fields) do made[field] = plain(from[field]) end
  return made
end

--- The whole study, reports too. Values that are not finite are the texts "nan", "inf" and "-inf".
---@param study table
---@return string
function export.json(study)
  local made = picked(study, study_fields)
  made.space, made.trials = json.array(plain(study.space)), json.array {}
  for i, trial in ipairs(study.trials) do
    made.trials[i] = picked(trial, trial_fields)
    made.trials[i].reports = json.array(made.trials[i].reports or {})
  end
  return json.encode(made, 1) .. "\n"
end

-- A number that YAML 1.1 reads as one: with a point before an exponent, and a sign in it.
local function yaml_number(value)
  if value ~= value then return ".nan" end
  if value == math.huge or value == -math.huge then return value > 0 and ".inf" or "-.inf" end
  local text = exact(value)
  local head, sign, power = text:match "^(.-)e([+-]?)(%d+)$"
  if not head then return text end
  return (head:find("%.") and head or head .. ".0") .. "e" .. (sign == "-" and "-" or "+") .. power
end

local function yaml_value(value)
  if type(value) == "number" then return yaml_number(value) end
  if type(value) == "boolean" then return tostring(value) end
  if type(value) == "table" and value[1] ~= nil then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = yaml_value(item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  return json.encode(plain(value))
end

-- What YAML 1.1 would read as something else than a text.
local spoken = {}
for word in ("y n yes no on off true false null"):gmatch "%a+" do spoken[word] = true end

--- Parameters as YAML, by their dotted names: what `accelhost launch --params` takes.
---@param params table<string, any>
---@return string
function export.yaml(params)
  local lines = {}
  for i, name in ipairs(arguments.sorted_keys(params)) do
    local key = name:find "^[%a_][%w_.-]*$" and not spoken[name:lower()] and name or json.encode(plain(name))
    lines[i] = ("%s: %s\n"):format(key, yaml_value(params[name]))
  end
  return table.concat(lines)
end

local function lua_value(value)
  if type(value) == "number" then
    if value ~= value then return "0 / 0" end
    if value == math.huge then return "math.huge" end
    return value == -math.huge and "-math.huge" or exact(value)
  end
  if type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = lua_value(item) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return type(value) == "string" and (("%q"):format(value):gsub("\\\n", "\\n")) or tostring(value)
end

-- The words that Lua keeps for itself.
local words = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true "
  .. "until while"):gmatch "%a+" do
  words[word] = true
end

--- Parameters as the text of a Lua table; dotted names in brackets.
---@param params table<string, any>
---@return string
function export.lua(params)
  local lines = {}
  for i, name in ipairs(arguments.sorted_keys(params)) do
    local key = name:find "^[%a_][%w_]*$" and not words[name] and name or ("[%q]"):format(name)
    lines[i] = ("  %s = %s,\n"):format(key, lua_value(params[name]))
  end
  return "{\n" .. table.concat(lines) .. "}\n"
end

return export
