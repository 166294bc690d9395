--- Arguments of library functions: positional in PyTorch's order, or named in one trailing table.
--
-- A signature is made once, beside the function it belongs to:
--
--   local read = arguments.signature("Linear", {"in_features", "out_features", {"bias", true}, {"dtype"}})
--   local in_features, out_features, bias, dtype = read(...)
--
-- A plain string is required; {name, default} is optional (the default may be absent: nil).
local C = require "accelhost._C"

local arguments = {}

--- Names what is running now, for messages ("layers.0 (Linear)"), or gives nil; set by accelhost.nn.module.
---@type (fun(): string?)?
arguments.context = nil

--- Raise an error that points to the script line that called the library.
---@param format string
---@param ... any values for the format
function arguments.fail(format, ...)
  local text = select("#", ...) > 0 and format:format(...) or format
  local context = arguments.context and arguments.context()
  local site = C.system.call_site()
  error((site == "?" and "" or site .. ": ") .. (context and "in " .. context .. ": " or "") .. text, 0)
end

--- What a value is, for messages: "a number", "a Linear", "nil".
---@param value any
---@return string
function arguments.describe(value)
  local kind = type(value)
  if kind == "nil" then return "nil" end
  if kind == "string" then return ("'%s'"):format(value) end
  if kind == "number" or kind == "boolean" then return kind .. " " .. tostring(value) end
  if kind == "table" then
    local class = getmetatable(value)
    local name = type(class) == "table" and rawget(class, "_name")
    if name then return "a " .. name end
  end
  return "a " .. kind
end

--- A table of named options: no array part, only string keys. A userdata, a module or an object is none.
---@param value any
---@return boolean
function arguments.is_options(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil or value[1] ~= nil then return false end
  local key = next(value)
  return key == nil or type(key) == "string"
end

--- Raise unless every key of `options` is in `known` (an array of names).
---@param what string the function, for the message
---@param options table
---@param known string[]
function arguments.check_names(what, options, known)
  for name in pairs(options) do
    local found = false
    for i = 1, #known do
      if known[i] == name then
        found = true
        break
      end
    end
    if not found then
      arguments.fail("%s: unknown option '%s' (known: %s)", what, tostring(name), table.concat(known, ", "))
    end
  end
end

--- A table's keys in one order everywhere: numbers first, then strings, each sorted.
---@param value table
---@return (number|string)[]
function arguments.sorted_keys(value)
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == type(b) then return a < b end
    return type(a) == "number"
  end)
  return keys
end

local function name_of(parameter)
  return type(parameter) == "table" and parameter[1] or parameter
end

--- Make a reader for one signature. It returns the values in the order of the signature.
---@param what string the function, for messages
---@param parameters (string|table)[] "name" (required) or {"name", default}
---@return fun(...): any
function arguments.signature(what, parameters)
  local names, defaults, required, count = {}, {}, {}, #parameters
  for i = 1, count do
    local parameter = parameters[i]
    names[i], required[i] = name_of(parameter), type(parameter) == "string"
    if not required[i] then defaults[i] = parameter[2] end
  end
  return function(...)
    local given = select("#", ...)
    local values = {...}
    local options = values[given]
    -- An empty table in the place of a required argument is that argument.
    if given > 0 and arguments.is_options(options) and (next(options) or not required[given]) then
      arguments.check_names(what, options, names)
      values[given] = nil
      given = given - 1
    else
      options = nil
    end
    if given > count then
      arguments.fail("%s: expected at most %d arguments (%s), got %d", what, count, table.concat(names, ", "), given)
    end
    for i = 1, count do
      local named = options and options[names[i]]
      if named ~= nil then
        if values[i] ~= nil then arguments.fail("%s: '%s' is given twice, by place and by name", what, names[i]) end
        values[i] = named
      elseif values[i] == nil then
        if required[i] then arguments.fail("%s: '%s' is missing", what, names[i]) end
        values[i] = defaults[i]
      end
    end
    return unpack(values, 1, count)
  end
end

--- Make a reader for one signature that stores the values as fields: set(object, ...).
---@param what string the function, for messages
---@param parameters (string|table)[] as of a signature
---@return fun(object: table, ...)
function arguments.setter(what, parameters)
  local read = arguments.signature(what, parameters)
  return function(object, ...)
    local values = {read(...)}
    for i, parameter in ipairs(parameters) do object[name_of(parameter)] = values[i] end
  end
end

return arguments
