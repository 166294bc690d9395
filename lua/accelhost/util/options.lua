--- Options of a script: typed by their defaults, listed in --help, checked.
---
---   local args = accelhost.parse_args{
---     description = "Trains a network.",
---     {"lr", 1e-3, "learning rate"},
---     {"data", nil, "folder with the data set", type = "string"},
---     {"smoke", false, "a run of a few seconds"},
---     {"optimizer", "adamw", "which optimizer", choices = {"adamw", "sgd"}},
---   }
---   print(args.lr)
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local options = {}

local function type_of(row)
  return row.type or type(row[2])
end

local function usage_error(text)
  io.stdout:flush()
  io.stderr:write(("%s: %s\nTry --help.\n"):format(arg and arg[0] or "script", text))
  os.exit(2)
end

local function help_text(spec)
  local lines = {("usage: accelhost %s [options]"):format(arg and arg[0] or "script.lua"), ""}
  if spec.description then
    lines[#lines + 1] = spec.description
    lines[#lines + 1] = ""
  end
  lines[#lines + 1] = "options:"
  local function add(flag, text)
    lines[#lines + 1] = ("  %-24s %s"):format(flag, text)
  end
  for _, row in ipairs(spec) do
    local kind = type_of(row)
    local flag = "--" .. row[1]
    if row.choices then
      flag = flag .. " " .. table.concat(row.choices, "|")
    elseif kind ~= "boolean" then
      flag = flag .. " " .. (row.metavar or kind:upper():sub(1, 6))
    end
    local default = ""
    if kind ~= "boolean" and row[2] ~= nil then default = (" (default %s)"):format(tostring(row[2])) end
    add(flag, (row[3] or "") .. default)
  end
  add("--help", "this text")
  return table.concat(lines, "\n")
end

local function find(spec, name)
  local known = {"help"}
  for _, row in ipairs(spec) do
    if row[1] == name then return row end
    known[#known + 1] = row[1]
  end
  if name == "num_processes" then
    usage_error("unknown option '--num_processes' (launch's options stand before the script: accelhost launch "
      .. "--num_processes N " .. (arg and arg[0] or "script") .. ")")
  end
  local near = C.system.nearest(name, known)
  usage_error(("unknown option '--%s'"):format(name) .. (near and (" (did you mean '--%s'?)"):format(near) or ""))
end

local function convert(row, text)
  local kind = type_of(row)
  if kind == "number" then
    local number = tonumber(text)
    if not number or (row.integer and number % 1 ~= 0) then
      usage_error(("--%s: expected %s, got '%s'"):format(row[1], row.integer and "an integer" or "a number", text))
    end
    if row.minimum and number < row.minimum then
      usage_error(("--%s: expected at least %s, got %s"):format(row[1], row.minimum, text))
    end
    return number
  end
  if row.choices then
    for _, choice in ipairs(row.choices) do
      if choice == text then return text end
    end
    usage_error(("--%s: expected one of %s, got '%s'"):format(row[1], table.concat(row.choices, ", "), text))
  end
  return text
end

local row_names = {"type", "choices", "integer", "minimum", "metavar"}

local function check_rows(spec)
  arguments.check("parse_args", "spec", "table", spec)
  for i, row in ipairs(spec) do
    if type(row) ~= "table" or type(row[1]) ~= "string" then
      arguments.fail("parse_args: row %d: expected {name, default, help}, got %s", i, arguments.describe(row))
    end
    local named = {}
    for key, value in pairs(row) do
      if type(key) == "string" then named[key] = value end
    end
    arguments.check_names("parse_args: --" .. row[1], named, row_names)
  end
end

--- Read the script's options. Prints help and ends with 0 on --help; ends with 2 on a wrong option.
--
--   local known = {{"lr", 1e-3, "learning rate"}, {"smoke", false, "a short run"}}
--   local args = accelhost.parse_args(known, {"--lr", "0.1"})
--   print(args.lr, args.smoke)  --> 0.1  false
---@names parse_args
---@param spec table rows {name, default, help, type=, choices=, integer=, minimum=}, and `description`
---@param words? string[] default: the script's own arguments
---@return table<string, any> # by name
function options.parse(spec, words)
  check_rows(spec)
  words = words or arg or {}
  local values = {}
  for _, row in ipairs(spec) do values[row[1]] = row[2] end
  local i = 1
  while i <= #words do
    local word = words[i]
    if word == "--help" or word == "-h" then
      print(help_text(spec))
      os.exit(0)
    end
    local name, inline = word:match("^%-%-([^=]+)=(.*)$")
    name = name or word:match("^%-%-(.+)$")
    if not name then usage_error(("unexpected argument '%s'"):format(word)) end
    local row = find(spec, (name:gsub("-", "_")))
    if type_of(row) == "boolean" then
      if inline then usage_error(("--%s takes no value"):format(row[1])) end
      values[row[1]] = true
    else
      local text = inline
      if not text then
        i = i + 1
        text = words[i]
      end
      if not text then usage_error(("--%s expects a value"):format(row[1])) end
      values[row[1]] = convert(row, text)
    end
    i = i + 1
  end
  return values
end

return options
