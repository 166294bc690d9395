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
local later = require "accelhost.util.later"
local params = later "accelhost.util.params"

local options = {}

local function type_of(row)
  return row.type or type(row[2])
end

local function usage_error(text)
  io.stdout:flush()
  io.stderr:write(("%s: %s\nTry --help.\n"):format(arg and arg[0] or "script", text))
  os.exit(2)
end

-- Return an option with its value, and its description: with the choices where they are too many for a flag.
local function help_row(row, limit)
  local kind, flag, text = type_of(row), "--" .. row[1], row[3] or ""
  local choices = row.choices and table.concat(row.choices, "|")
  if choices and #flag + #choices + 3 <= limit then
    flag = flag .. " " .. choices
  elseif kind ~= "boolean" then
    flag = flag .. " " .. (row.metavar or kind == "list" and "A,B,..." or kind:upper():sub(1, 6))
  end
  if choices and not flag:find("|", 1, true) then
    text = ("%s%s%s"):format(text, text ~= "" and ": " or "", table.concat(row.choices, ", "))
  end
  if (kind ~= "boolean" or row.negatable) and row[2] ~= nil then
    local default = kind == "list" and table.concat(row[2], ",") or tostring(row[2]):gsub("\n", "\\n")
    text = ("%s%s(default %s)"):format(text, text ~= "" and " " or "", default)
  end
  return {flag, text}
end

local function help_text(spec)
  local page, rows = require "accelhost.util.page"(), {}
  page:line(("usage: accelhost %s [options]"):format(arg and arg[0] or "script.lua"))
  page:line()
  if spec.description then
    page:wrap(spec.description, 0)
    page:line()
  end
  page:line "options:"
  for i, row in ipairs(spec) do rows[i] = help_row(row, page.limit) end
  rows[#rows + 1] = {"--help", "this text"}
  page:rows(rows, 2)
  return table.concat(page.lines, "\n")
end

local function find(spec, name)
  local known = {"help"}
  for _, row in ipairs(spec) do
    if row[1] == name then return row end
    if row.negatable and "no_" .. row[1] == name then return row, true end
    known[#known + 1] = row[1]
  end
  if name == "num_processes" then
    usage_error("unknown option '--num_processes' (launch's options are written before the script: accelhost launch "
      .. "--num_processes N " .. (arg and arg[0] or "script") .. ")")
  end
  local near = C.system.nearest(name, known)
  usage_error(("unknown option '--%s'"):format(name) .. (near and (" (did you mean '--%s'?)"):format(near) or ""))
end

-- Return the reason why a value is none of an option's, nil when it is one.
local function reason_against(row, value)
  local kind = type_of(row)
  if kind == "list" then
    if type(value) ~= "table" then return "a list" end
    for _, item in ipairs(value) do
      if type(item) ~= type(row[2][1]) then return ("a list of %ss"):format(type(row[2][1])) end
    end
  elseif type(value) ~= kind or (row.integer and value % 1 ~= 0) then
    return row.integer and "an integer" or kind == "boolean" and "true or false" or "a " .. kind
  elseif row.minimum and value < row.minimum then
    return "at least " .. row.minimum
  elseif row.choices then
    for _, choice in ipairs(row.choices) do
      if choice == value then return nil end
    end
    return "one of " .. table.concat(row.choices, ", ")
  end
end

local booleans = {["true"] = true, ["false"] = false}

-- The value of a word of the command line; the word where it has none.
local function parse_word(row, text)
  local kind = type_of(row)
  if kind == "number" then return tonumber(text) or text end
  if kind == "boolean" and booleans[text] ~= nil then return booleans[text] end
  if kind ~= "list" then return text end
  local list = {}
  for item in text:gmatch "[^,]+" do
    list[#list + 1] = parse_word({row[1], row[2][1]}, item)
  end
  return list
end

local function convert(row, text)
  local value = parse_word(row, text)
  local reason = reason_against(row, value)
  if reason then
    usage_error(("--%s: expected %s, got %s"):format(row[1], reason,
      reason:find "^at least" and text or "'" .. text .. "'"))
  end
  return value
end

-- Report values from outside that do not fit, to the sweep or the user of --params.
local function refuse(text)
  params.send {kind = "refuse", text = text}
  usage_error(text)
end

-- The rows' names, for messages.
local function names_of(spec)
  local names = {}
  for i, row in ipairs(spec) do names[i] = row[1] end
  return names
end

-- Values from a file or a sweep; `words` has the options that the command line sets.
local function take_given(spec, values, words)
  local fine, given, source = pcall(params.given)
  if not fine then usage_error(given) end
  local names = names_of(spec)
  for _, name in ipairs(given and arguments.sorted_keys(given) or {}) do
    local row
    for _, other in ipairs(spec) do
      if other[1] == name then row = other end
    end
    if not row then
      refuse(("%s sets '%s', which is none of the script's options (%s)%s"):format(source, name,
        table.concat(names, ", "), arguments.did_you_mean(name, names)))
    end
    local value = given[name]
    if row.type == "list" and type(value) ~= "table" then value = {value} end
    local reason = reason_against(row, value)
    if reason then
      refuse(("%s sets %s = %s, but the script expects %s"):format(source, name, arguments.describe(value), reason))
    end
    if words[name] and params.trial() then
      refuse(("--%s is set on the command line, and the sweep chooses it too"):format(name))
    end
    if not words[name] then values[name] = value end
  end
end

-- Replicates of a configuration differ by their seeds: the script's own option, else the library's.
local function take_seed(spec, values, words)
  local trial = params.trial()
  local replicate = trial and trial.replicate or 0
  if replicate == 0 then return end
  for _, row in ipairs(spec) do
    if row[1] == "seed" and type(row[2]) == "number" then
      if not words.seed and not (params.given() or {}).seed then values.seed = row[2] + replicate end
      return
    end
  end
  C.random.manual_seed(replicate)
end

local row_names = {"type", "choices", "integer", "minimum", "metavar", "negatable"}

local function check_rows(spec)
  arguments.check("parse_args", "spec", "table", spec)
  for key in pairs(spec) do
    if type(key) == "string" and key ~= "description" then
      arguments.fail("parse_args: expected rows {name, default, help} and 'description', got '%s' "
        .. "(accelhost.args accepts defaults by name: {%s = ...})", key, key)
    end
  end
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

-- Fill in the options that the command line does not set: from a file or a sweep, when these are the script's own
-- options, else defaults.
local function complete(spec, values, given_names)
  if given_names then
    local given = {}
    if os.getenv "ACCELHOST_PARAMS" then
      take_given(spec, given, given_names)
      params.mark_read()
    end
    if os.getenv "ACCELHOST_TRIAL" then take_seed(spec, given, given_names) end
    for name, value in pairs(given) do values[name] = value end
  end
  for _, row in ipairs(spec) do
    if values[row[1]] == nil then values[row[1]] = row[2] end
  end
  return values
end

--- Read the script's options. Prints help and ends with 0 on --help; ends with 2 on a wrong option. An option that
--- neither the command line nor `accelhost launch --params FILE` nor a sweep sets has its default.
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
  local own = words == nil or words == arg
  words = words or arg or {}
  local values, given_names = {}, {}
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
    local row, negated = find(spec, (name:gsub("-", "_")))
    given_names[row[1]] = true
    if type_of(row) == "boolean" and not (inline and row.negatable and not negated) then
      if inline then usage_error(("--%s has no value"):format(name)) end
      values[row[1]] = not negated
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
  return complete(spec, values, own and given_names)
end

return options
