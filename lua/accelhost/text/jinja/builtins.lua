--- Filters, tests, methods and functions of templates: those that the published chat templates use.
local lexer = require "accelhost.text.jinja.lexer"
local values = require "accelhost.text.jinja.values"

local builtins = {filters = {}, tests = {}, methods = {}, functions = {}}
local filters, tests, methods = builtins.filters, builtins.tests, builtins.methods

local LONGEST = 2 ^ 24

local function string_of(value, what, line)
  if type(value) ~= "string" then lexer.fail(line, "%s: expected a string, got a %s", what, values.kind(value)) end
  return value
end

-- A set of characters as a Lua pattern; Python's space without one.
local function character_set(characters)
  return characters and characters ~= values.NONE and "[" .. characters:gsub("%W", "%%%0") .. "]" or "%s"
end

local function strip_left(text, characters) return (text:gsub("^" .. character_set(characters) .. "+", "")) end

local function strip_right(text, characters)
  local set, stop = character_set(characters), #text
  while stop > 0 and text:sub(stop, stop):find(set) do stop = stop - 1 end
  return text:sub(1, stop)
end

local function strip(text, characters) return strip_right(strip_left(text, characters), characters) end

local function replace(text, old, new, count)
  local out, at, left = {}, 1, count or math.huge
  if old == "" then return text end
  while left > 0 do
    local first, last = text:find(old, at, true)
    if not first then break end
    out[#out + 1] = text:sub(at, first - 1) .. new
    at, left = last + 1, left - 1
  end
  return table.concat(out) .. text:sub(at)
end

local function split(text, separator, most)
  local parts, at, left = {}, 1, most and most >= 0 and most or math.huge
  if separator == nil or separator == values.NONE then
    for word in text:gmatch "%S+" do parts[#parts + 1] = word end
    return values.list(parts)
  end
  while left > 0 do
    local first, last = text:find(separator, at, true)
    if not first then break end
    parts[#parts + 1] = text:sub(at, first - 1)
    at, left = last + 1, left - 1
  end
  parts[#parts + 1] = text:sub(at)
  return values.list(parts)
end

local function title(text)
  return (text:gsub("%a+", function(word) return word:sub(1, 1):upper() .. word:sub(2):lower() end))
end

local function capitalize(text) return text:sub(1, 1):upper() .. text:sub(2):lower() end

-- Methods.

-- Does the text begin (or end) with the affix, or with one of a list?
local function has_affix(text, affix, cut)
  for _, one in ipairs(values.kind(affix) == "list" and affix.items or {affix}) do
    if cut(text, one) == one then return true end
  end
  return false
end

methods.string = {
  strip = strip, lstrip = strip_left, rstrip = strip_right, replace = replace, split = split, title = title,
  capitalize = capitalize, upper = string.upper, lower = string.lower,
  startswith = function(text, affix) return has_affix(text, affix, function(a, b) return a:sub(1, #b) end) end,
  endswith = function(text, affix)
    return has_affix(text, affix, function(a, b) return #b > #a and "" or a:sub(#a - #b + 1) end)
  end,
  find = function(text, part) return (text:find(part, 1, true) or 0) - 1 end,
  join = function(text, list) return filters.join(list, text) end,
}

local function dict_items(dict)
  local items = {}
  for i, key in ipairs(dict.keys) do items[i] = values.list {key, dict.map[key]} end
  return values.list(items)
end

methods.dict = {
  items = dict_items,
  keys = function(dict) return values.list(dict.keys) end,
  values = function(dict)
    local items = {}
    for i, key in ipairs(dict.keys) do items[i] = dict.map[key] end
    return values.list(items)
  end,
  get = function(dict, key, other)
    local value = dict.map[key]
    if value == nil then value = other end
    return value == nil and values.NONE or value
  end,
}

-- Filters: the value, then the arguments; named ones are a table at the end, before the line.

local function length(value, line)
  if type(value) == "string" then return #values.characters(value) end
  return #values.items(value, line)
end

filters.length = function(value, line) return length(value, type(line) == "number" and line or 0) end
filters.count = filters.length
filters.trim = function(value, characters) return strip(values.text(value), characters) end
filters.upper = function(value) return values.text(value):upper() end
filters.lower = function(value) return values.text(value):lower() end
filters.title = function(value) return title(values.text(value)) end
filters.capitalize = function(value) return capitalize(values.text(value)) end
filters.string = values.text
filters.safe = function(value) return value end
filters.items = function(value) return values.kind(value) == "dict" and dict_items(value) or values.list {} end
filters.list = function(value) return values.list(values.items(value, 0)) end
filters.first = function(value) return values.items(value, 0)[1] or values.undefined "first" end
filters.last = function(value)
  local items = values.items(value, 0)
  return items[#items] or values.undefined "last"
end
filters.int = function(value) return math.floor(tonumber(values.text(value)) or 0) end
filters.float = function(value) return tonumber(values.text(value)) or 0 end
filters.abs = function(value) return math.abs(value) end
filters.replace = function(value, old, new, count) return replace(values.text(value), old, new, count) end

filters.default = function(value, other, also_false)
  local kind = values.kind(value)
  if kind == "undefined" or also_false and not values.truth(value) then return other == nil and "" or other end
  return value
end
filters.d = filters.default

filters.tojson = function(value, indent) return values.json(value, indent ~= values.NONE and indent or nil) end
builtins.named = {tojson = {"indent"}, default = {"default_value", "boolean"}, join = {"d", "attribute"},
  map = {"attribute"}, indent = {"width", "first", "blank"}}

filters.join = function(value, separator)
  local parts = {}
  for i, item in ipairs(values.items(value, 0)) do parts[i] = values.text(item) end
  return table.concat(parts, separator or "")
end

filters.reverse = function(value)
  local items, out = values.items(value, 0), {}
  for i = #items, 1, -1 do out[#out + 1] = items[i] end
  return type(value) == "string" and table.concat(out) or values.list(out)
end

filters.indent = function(value, width, first)
  local blanks = (" "):rep(width or 4)
  local text = values.text(value):gsub("\n([^\n])", "\n" .. blanks .. "%1")
  return first and blanks .. text or text
end

local function field(value, name)
  local found = values.kind(value) == "dict" and value.map[name]
  return found == nil and values.undefined(name) or found or false
end

filters.map = function(value, name, ...)
  local out = {}
  for i, item in ipairs(values.items(value, 0)) do
    if filters[name] then out[i] = filters[name](item, ...) else out[i] = field(item, name) end
  end
  return values.list(out)
end

-- Items for which a test of them, or of a field, is `wanted`.
local function selected(value, wanted, name, test, ...)
  local out = {}
  for _, item in ipairs(values.items(value, 0)) do
    local subject = name and field(item, name) or item
    local found = values.truth(subject)
    if test then
      if not tests[test] then lexer.fail(0, "the test '%s' is not supported", test) end
      found = tests[test](subject, ...)
    end
    if found == wanted then out[#out + 1] = item end
  end
  return values.list(out)
end

filters.select = function(value, test, ...) return selected(value, true, nil, test, ...) end
filters.reject = function(value, test, ...) return selected(value, false, nil, test, ...) end
filters.selectattr = function(value, name, test, ...) return selected(value, true, name, test, ...) end
filters.rejectattr = function(value, name, test, ...) return selected(value, false, name, test, ...) end

-- Tests.

for _, kind in ipairs {"string", "number", "boolean", "none", "undefined"} do
  tests[kind] = function(value) return values.kind(value) == kind end
end
tests.defined = function(value) return values.kind(value) ~= "undefined" end
tests.mapping = function(value) return values.kind(value) == "dict" end
tests.sequence = function(value)
  local kind = values.kind(value)
  return kind == "list" or kind == "dict" or kind == "string"
end
tests.iterable = function(value) return tests.sequence(value) or values.kind(value) == "undefined" end
tests.callable = function(value) return values.kind(value) == "function" end
tests.integer = function(value) return type(value) == "number" and value % 1 == 0 end
tests.float = function(value) return type(value) == "number" and value % 1 ~= 0 end
tests["true"] = function(value) return value == true end
tests["false"] = function(value) return value == false end
tests.odd = function(value) return value % 2 == 1 end
tests.even = function(value) return value % 2 == 0 end
tests.divisibleby = function(value, by) return value % by == 0 end
tests.equalto, tests.eq, tests["=="] = values.equal, values.equal, values.equal
tests.ne = function(value, other) return not values.equal(value, other) end
tests["in"] = function(value, container) return values.contains(value, container, 0) end

-- Functions.

builtins.functions.range = function(first, last, step)
  local items = {}
  if last == nil then first, last = 0, first end
  step = step or 1
  if step == 0 or (last - first) / step > LONGEST then lexer.fail(0, "range: too many items") end
  for i = first, last - (step > 0 and 1 or -1), step do items[#items + 1] = i end
  return values.list(items)
end

builtins.functions.raise_exception = function(message) lexer.fail(-1, "%s", values.text(message)) end
builtins.functions.strftime_now = function(format) return os.date(string_of(format, "strftime_now", 0)) end

return builtins
