--- Parameters that a run gets from outside: the file that `--params` names (ACCELHOST_PARAMS), or the sweep that the
--- run is a trial of. Scripts see them by accelhost.args and accelhost.parse_args, between defaults and command line.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local later = require "accelhost.util.later"
local link = later "accelhost.util.link"

local params = {}

local fail = arguments.raise

-- A table in Lua's words, as `accelhost sweep best` prints it: with `return` in front or without, and nothing in reach.
local function read_lua(path, text)
  if text:find "^\27" then fail("%s: expected a table in Lua's words, got bytecode", path) end
  local chunk = loadstring("return " .. text, "@" .. path)
  local reason
  if not chunk then chunk, reason = loadstring(text, "@" .. path) end
  if not chunk then fail("%s", reason) end
  local fine, value = pcall(setfenv(chunk, {}))
  if not fine then fail("%s", value) end
  return value
end

local readers = {
  lua = read_lua,
  json = function(_, text) return C.json.decode(text) end,
  yaml = function(_, text) return (C.yaml.decode(text)) end,
}
readers.yml = readers.yaml

--- Read a file of parameters: YAML, JSON or a Lua table, by its name.
---@return table
function params.read(path)
  local reader = readers[path:match "%.([^./]+)$" or ""]
  if not reader then fail("%s: expected a .yaml, .json or .lua file of parameters", path) end
  local file, reason = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then fail("cannot read %s", reason or ("'%s': it is a folder"):format(path)) end
  local fine, value = pcall(reader, path, text)
  if not fine then fail("%s%s", tostring(value):find(path, 1, true) and "" or path .. ": ", tostring(value)) end
  if type(value) ~= "table" or value[1] ~= nil then fail("%s: expected names and values", path) end
  return value
end

local function sorted(values)
  local keys = {}
  for key in next, values do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function is_map(value) return type(value) == "table" and value[1] == nil and next(value) ~= nil end

--- Nested tables by dotted names; lists stay values.
---@param values table
---@return table<string, any>
function params.flatten(values)
  local flat = {}
  local function add(prefix, map)
    for key, value in next, map do
      local name = prefix .. tostring(key)
      if is_map(value) then add(name .. ".", value) else flat[name] = value end
    end
  end
  add("", values)
  return flat
end

--- Values by dotted names as nested tables.
---@param flat table<string, any>
function params.nest(flat)
  local result = {}
  for name, value in next, flat do
    local at = result
    for part in name:gmatch "([^.]+)%." do
      at[part] = at[part] or {}
      at = at[part]
    end
    at[name:match "[^.]+$"] = value
  end
  return result
end

-- Words that YAML 1.1 would read as something else than a text.
local spoken = {}
for word in ("y n yes no on off true false null"):gmatch "%a+" do spoken[word] = true end

local function plain_name(name)
  return name:find "^[%a_][%w_]*$" and not spoken[name:lower()] and name or C.json.encode(name)
end

-- JSON is YAML, but for exponents: YAML 1.1 wants a point before them and a sign in them.
local function yaml_value(value)
  if type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = yaml_value(item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  local text = C.json.encode(value)
  local head, sign, power = text:match "^(%-?[%d.]+)e([+-]?)(%d+)$"
  if not head then return text end
  return (head:find "%." and head or head .. ".0") .. "e" .. (sign == "-" and "-" or "+") .. power
end

local function append_yaml(lines, indent, map)
  for _, key in ipairs(sorted(map)) do
    local value = map[key]
    if is_map(value) then
      lines[#lines + 1] = indent .. plain_name(key) .. ":"
      append_yaml(lines, indent .. "  ", value)
    else
      lines[#lines + 1] = ("%s%s: %s"):format(indent, plain_name(key), yaml_value(value))
    end
  end
end

--- Parameters as YAML that `--params` reads; numbers read back unchanged.
---@param values table nested
function params.yaml(values)
  local lines = {}
  append_yaml(lines, "", values)
  return #lines > 0 and table.concat(lines, "\n") .. "\n" or "{}\n"
end

local reserved = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until
  while]]):gmatch "%a+" do
  reserved[word] = true
end

-- A string as Lua source without control characters: %q leaves U+0080 to U+009F and bytes that are not UTF-8.
local function quoted(text)
  local source = ("%q"):format(text)
  local bytes = C.events.is_utf8(text) and "\194[\128-\159]" or "[\128-\255]"
  return (source:gsub(bytes, function(found)
    return (found:gsub(".", function(byte) return ("\\%d"):format(byte:byte()) end))
  end))
end

local function lua_text(value, indent)
  if type(value) == "string" then return quoted(value) end
  if type(value) ~= "table" then return C.json.encode(value) end
  local parts, inner = {}, indent .. "  "
  if not is_map(value) then
    for i, item in ipairs(value) do parts[i] = lua_text(item, indent) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  for i, key in ipairs(sorted(value)) do
    local name = key:find "^[%a_][%w_]*$" and not reserved[key] and key or "[" .. quoted(key) .. "]"
    parts[i] = ("%s%s = %s"):format(inner, name, lua_text(value[key], inner))
  end
  return "{\n" .. table.concat(parts, ",\n") .. ",\n" .. indent .. "}"
end

--- Parameters as a Lua table.
---@param values table nested
---@return string
function params.lua(values) return lua_text(values, "") end

local trial -- the sweep's settings, false: none

--- The trial that this run is, as the sweep described it: {number, replicate, attempt, metric, waits, directory}; nil
--- when it is none.
---@return table?
function params.trial()
  if trial == nil then
    local text = os.getenv "ACCELHOST_TRIAL"
    -- Programs that a trial starts have its variables, and are no part of it.
    local facts = text and text ~= "" and C.json.decode(text)
    trial = facts and link.is_open(facts) and facts or false
  end
  return trial or nil
end

--- Send the sweep a message about this trial; nothing happens without one. Only the first rank's message counts.
---@param message table
function params.send(message)
  local facts = params.trial()
  if facts and C.comm.rank() == 0 then link.send(facts, C.json.encode(message)) end
end

local given, source

--- The parameters of this run by dotted names, and their source; nil when there are none.
---@return table<string, any>?
---@return string?
function params.given()
  if given == nil then
    local path = os.getenv "ACCELHOST_PARAMS"
    local ours = (os.getenv "ACCELHOST_TRIAL" or "") == "" or params.trial()
    given = ours and path and path ~= "" and params.flatten(params.read(path)) or false
    source = params.trial() and "the sweep" or path
  end
  return given or nil, source
end

--- Warn, once for all ranks, that the script has run without the parameters passed to it, because it never read them.
--- A sweep reports it itself.
function params.report_unread()
  if params.taken or params.trial() or C.comm.rank() > 0 then return end
  local values, path = params.given()
  if not values then return end
  io.stdout:flush()
  io.stderr:write(("warning: the script never read the parameters of '%s': accelhost.args{...} or "
    .. "accelhost.parse_args{...} does\n"):format(path))
end

--- Record that the script has read its parameters, and report it to the sweep.
function params.mark_read()
  params.taken = true
  params.send {kind = "read"}
end

return params
