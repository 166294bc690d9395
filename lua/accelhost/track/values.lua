-- The values that a script logs: numbers, booleans, texts, tensors of one element, and tables of them by name.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local values = {}

-- A tensor as the number or boolean that it holds; anything else unchanged.
local function plain(what, key, value)
  if not C.is_tensor(value) then return value end
  if value:numel() ~= 1 then
    fail("%s: '%s': expected a tensor of one element, got shape %s", what, key, arguments.shape_text(value))
  end
  return value:item()
end

--- Raise unless a text is UTF-8: readers would refuse the whole file.
---@return string text
function values.text(what, text)
  if not C.events.is_utf8(text) then fail("%s: expected a text in UTF-8, got %q", what, text) end
  return text
end

local simple = {number = true, string = true, boolean = true}

--- A number out of a number, a boolean or a tensor of one element.
---@param what string for messages: the function or the tracker
---@return number
function values.number(what, key, value)
  value = plain(what, key, value)
  if type(value) == "boolean" then return value and 1 or 0 end
  if type(value) ~= "number" then
    fail("%s: '%s': expected a number or a tensor of one element, got %s", what, key, describe(value))
  end
  return value
end

--- A number, boolean or text.
---@return number|string|boolean
function values.simple(what, key, value)
  value = plain(what, key, value)
  if not simple[type(value)] then
    fail("%s: '%s': expected a number, a boolean, a text or a tensor of one element, got %s", what, key,
      describe(value))
  end
  if type(value) == "string" then values.text(("%s: '%s'"):format(what, key), value) end
  return value
end

--- The names of a table of values, in order.
---@return string[]
function values.names(what, given)
  if type(given) ~= "table" or getmetatable(given) ~= nil then
    fail("%s: expected a table of values by name, got %s", what, describe(given))
  end
  local names = arguments.sorted_keys(given)
  for _, name in ipairs(names) do
    if type(name) ~= "string" then
      fail("%s: expected a table of values by name, got the key %s", what, describe(name))
    end
    values.text(what, name)
  end
  return names
end

--- Values by name, where a table of values becomes as many names: {loss = {train = 1}} is "loss/train".
---@return string[] names in order
---@return table<string, number|string|boolean> values
function values.flat(what, given)
  local names, found = {}, {}
  local function add(name, value)
    if found[name] ~= nil then fail("%s: '%s' is given twice", what, name) end
    names[#names + 1], found[name] = name, values.simple(what, name, value)
  end
  for _, name in ipairs(values.names(what, given)) do
    local value = given[name]
    if type(value) == "table" and getmetatable(value) == nil then
      for _, inner in ipairs(values.names(("%s: '%s'"):format(what, name), value)) do
        add(name .. "/" .. inner, value[inner])
      end
    else
      add(name, value)
    end
  end
  return names, found
end

return values
