--- Arguments of library functions: positional in PyTorch's order, or named in one trailing table; and the one way in
--- which the library raises.
--
-- A signature is made once, next to the function it belongs to:
--
--   local read = arguments.signature("Linear",
--     {"in_features: size", "out_features: size", {"bias: flag", true}, {"dtype: dtype"}})
--   local in_features, out_features, bias, dtype = read(...)
--
-- A plain string is required; {name, default, text} is optional (the default may be absent: nil), and the text is the
-- reference's where a comment has none. The text after the colon defines the allowed values: kinds of
-- accelhost.util.kinds, or words in quotes, with | between alternatives.
local C = require "accelhost._C"
local kinds = require "accelhost.util.kinds"

local arguments = {}

--- Raise an error that points to the script line that called the library, and names the modules that are running.
---@param ... any values for the format
function arguments.fail(format, ...)
  C.system.raise(select("#", ...) > 0 and format:format(...) or format)
end

local fail = arguments.fail

--- Raise an error without a place: of a command or a file, which no line of the script has called.
---@param ... any values for the format
function arguments.raise(format, ...) error(format:format(...), 0) end

--- Sizes as messages show them: "(2, 3)", "(2,)".
function arguments.sizes_text(sizes)
  return "(" .. table.concat(sizes, ", ") .. (#sizes == 1 and ",)" or ")")
end

--- A tensor's shape as messages show it.
---@return string
function arguments.shape_text(tensor) return arguments.sizes_text(tensor:shape()) end

--- Describe a value, for messages: "a number", "a Linear", "nil".
function arguments.describe(value)
  local kind = type(value)
  if kind == "nil" then return "nil" end
  if kind == "string" then return ("'%s'"):format(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "number" then return "number " .. tostring(value) end
  if C.is_tensor(value) then return "a tensor of shape " .. arguments.shape_text(value) end
  if kind == "table" or kind == "userdata" then
    local class = getmetatable(value)
    if kind == "table" and type(rawget(value, "_name")) == "string" and rawget(value, "_class") == value then
      return "the class " .. value._name
    end
    local name = type(class) == "table" and class._name
    if type(name) == "string" then return "a " .. name end
  end
  return "a " .. kind
end

local describe = arguments.describe

--- " (did you mean 'lr'?)" when a known name is near, else "".
---@param known string[]
function arguments.did_you_mean(name, known)
  local near = C.system.nearest(name, known)
  return near and (" (did you mean '%s'?)"):format(near) or ""
end

--- A table of named options: no array part, only string keys. A userdata, a module or an object is none.
---@return boolean
function arguments.is_options(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil or value[1] ~= nil then return false end
  local key = next(value)
  return key == nil or type(key) == "string"
end

local function is_among(name, known)
  for i = 1, #known do
    if known[i] == name then return true end
  end
  return false
end

--- Raise unless every key of `options` is in `known` (an array of names).
---@param options table
---@param known string[]
function arguments.check_names(what, options, known)
  if type(options) ~= "table" then fail("%s: expected a table of options, got %s", what, describe(options)) end
  local unknown
  for name in pairs(options) do
    if not is_among(name, known) then unknown = true end
  end
  for _, name in ipairs(unknown and arguments.sorted_keys(options) or {}) do
    if not is_among(name, known) then
      fail("%s: unknown option '%s' (known: %s)%s", what, tostring(name), table.concat(known, ", "),
        arguments.did_you_mean(tostring(name), known))
    end
  end
end

--- A plain table's own copy, one level deep; anything else is given back.
function arguments.copy(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = item end
  return copy
end

-- The order of types: numbers first, then strings, then the others.
local ranks = {number = 1, string = 2}

local function before(a, b)
  local x, y = ranks[type(a)] or 3, ranks[type(b)] or 3
  if x == y and x < 3 then return a < b end
  return x < y
end

--- A table's keys in one order everywhere: numbers first, then strings, each sorted. LuaJIT's order is by the hashes of
--- its strings, and those depend on the compilations and collections until then: output that a user, a file or
--- another rank sees may not depend on the order of `pairs`.
---@param value table
---@return (number|string)[]
function arguments.sorted_keys(value)
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, before)
  return keys
end

local function wrong(what, name, kind, value)
  if kind.words and type(value) == "string" then
    fail("%s: unknown %s '%s' (known: %s)%s", what, name, value, table.concat(kind.words, ", "),
      arguments.did_you_mean(value, kind.words))
  end
  local _, key = kind.test(value)
  local got = key ~= nil and ("a table whose item %s is %s"):format(tostring(key), describe(value[key]))
    or describe(value)
  fail("%s: %s: expected %s, got %s%s", what, name, kind.text, got, kind.hint and kind.hint(value) or "")
end

--- Raise unless `value` is of a kind ("size", "number|tensor", "'mean'|'sum'").
---@param name string the argument
---@return any value
function arguments.check(what, name, kind, value)
  kind = kinds.get(kind)
  if not kind.test(value) then wrong(what, name, kind, value) end
  return value
end

local function read_parameter(parameter)
  local optional = type(parameter) == "table"
  local text = optional and parameter[1] or parameter
  local name, kind = text:match "^([%w_]+):%s*(.+)$"
  local row = {name = name or text, kind = kind and kinds.get(kind), required = not optional}
  if optional then row.default, row.text = parameter[2], parameter[3] end
  return row
end

local parsed = {}

-- The rows of a signature, {name, kind, required, default}, made when it is first used: most functions of a file that
-- is loaded are never called.
local function rows_of(parameters)
  local rows = parsed[parameters]
  if not rows then
    rows = {names = {}}
    for i = 1, #parameters do
      rows[i] = read_parameter(parameters[i])
      rows.names[i] = rows[i].name
    end
    parsed[parameters] = rows
  end
  return rows
end

local made = {}

--- The parameters of each signature made so far, by function: {name, kind, required, default}. The specs call every
--- function with wrong arguments from it.
---@type table<string, table[]>
arguments.signatures = setmetatable({}, {__index = function(_, what)
  return made[what] and rows_of(made[what])
end})

-- Does the table set a required parameter behind position `given` by name?
local function names_required(options, rows, given)
  for i = given + 1, #rows do
    if rows[i].required and options[rows[i].name] ~= nil then return true end
  end
  return false
end

-- Is the last value, at position `given`, a table of named options? Not when the parameter at its position accepts such
-- a table, unless required parameters follow and the table names one of them. An empty table at the position of a
-- required parameter without a kind is that argument.
local function is_named(value, rows, given)
  if not arguments.is_options(value) then return false end
  local row = rows[given]
  if not row or names_required(value, rows, given) then return true end
  if row.kind then return not row.kind.test(value) end
  return next(value) ~= nil or not row.required
end

--- Make a reader for one signature. It returns the values in the order of the signature.
---@param parameters (string|table)[] "name: kind" (required) or {"name: kind", default}; not to be
--- changed afterwards
---@return fun(...): any
function arguments.signature(what, parameters)
  made[what] = parameters
  return function(...)
    local rows, given = rows_of(parameters), select("#", ...)
    local count, values = #rows, {...}
    local options = values[given]
    if given > 0 and is_named(options, rows, given) then
      arguments.check_names(what, options, rows.names)
      values[given] = nil
      given = given - 1
    else
      options = nil
    end
    if given > count then
      fail("%s: expected at most %d argument%s (%s), got %d", what, count, count == 1 and "" or "s",
        table.concat(rows.names, ", "), given)
    end
    for i = 1, count do
      local row, value = rows[i], values[i]
      local named = options and options[row.name]
      if named ~= nil then
        if value ~= nil then fail("%s: '%s' is given twice, by place and by name", what, row.name) end
        value = named
        values[i] = value
      end
      if value == nil then
        if row.required then fail("%s: '%s' is missing", what, row.name) end
        values[i] = row.default
      elseif row.kind and not row.kind.test(value) then
        wrong(what, row.name, row.kind, value)
      end
    end
    return unpack(values, 1, count)
  end
end

--- Make a function that reads its arguments by a signature and calls the body with their values.
---@param parameters (string|table)[] as of a signature
---@param body function
---@return fun(...): any
function arguments.checked(what, parameters, body)
  local read = arguments.signature(what, parameters)
  return function(...) return body(read(...)) end
end

--- The same; the body's first argument is the name of the function, for messages.
---@param parameters (string|table)[] as of a signature
---@param body function
---@return fun(...): any
function arguments.named(what, parameters, body)
  local read = arguments.signature(what, parameters)
  return function(...) return body(what, read(...)) end
end

--- The same for a method: the body's first argument is the object.
---@param parameters (string|table)[] as of a signature
---@param body function
---@return fun(self: any, ...): any
function arguments.method(what, parameters, body)
  local read = arguments.signature(what, parameters)
  return function(self, ...) return body(self, read(...)) end
end

--- Make a reader for one signature that stores the values as fields: set(object, ...).
---@param parameters (string|table)[] as of a signature
---@return fun(object: table, ...)
function arguments.setter(what, parameters)
  local read = arguments.signature(what, parameters)
  return function(object, ...)
    local values = {read(...)}
    for i, row in ipairs(rows_of(parameters)) do object[row.name] = values[i] end
  end
end

return arguments
