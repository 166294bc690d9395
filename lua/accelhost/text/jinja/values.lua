--- Values of templates, as Python has them: strings, numbers and booleans are Lua's; None, undefined names, lists and
--- dictionaries (whose keys have an order) are objects of this module.
local C = require "accelhost._C"
local lexer = require "accelhost.text.jinja.lexer"

local values = {NONE = {kind = "none"}}

local DEEPEST = 64

--- A name without a value; `name` is for messages.
function values.undefined(name) return {kind = "undefined", name = name} end

---@param items any[]
---@return table
function values.list(items) return {kind = "list", items = items} end

--- A dictionary without keys.
function values.dict() return {kind = "dict", keys = {}, map = {}} end

---@param dict table
function values.set(dict, key, value)
  if dict.map[key] == nil then dict.keys[#dict.keys + 1] = key end
  dict.map[key] = value
end

--- The kind of a value: string, number, boolean, none, undefined, list, dict, function.
---@return string
function values.kind(value) return type(value) == "table" and value.kind or type(value) end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

--- A Lua value as a template's: a table with a first item, or one marked by json.array, is a list, others are
--- dictionaries with their keys sorted.
---@param depth? integer
function values.import(value, depth)
  depth = depth or 0
  if depth > DEEPEST then lexer.fail(0, "a value nested more than %d deep", DEEPEST) end
  local kind = type(value)
  if value == nil or value == C.json.null then return values.NONE end
  if kind == "string" or kind == "number" or kind == "boolean" then return value end
  if kind ~= "table" then lexer.fail(0, "a %s is no value of templates", kind) end
  if value[1] ~= nil or getmetatable(value) ~= nil and next(value) == nil then
    local items = {}
    for i, item in ipairs(value) do items[i] = values.import(item, depth + 1) end
    return values.list(items)
  end
  local dict = values.dict()
  for _, key in ipairs(sorted_keys(value)) do values.set(dict, key, values.import(value[key], depth + 1)) end
  return dict
end

--- Is the value true in a condition?
function values.truth(value)
  local kind = values.kind(value)
  if kind == "list" then return #value.items > 0 end
  if kind == "dict" then return #value.keys > 0 end
  return not (value == false or value == 0 or value == "" or kind == "none" or kind == "undefined")
end

local function number_text(number)
  if number % 1 == 0 and math.abs(number) < 2 ^ 53 then return ("%d"):format(number) end
  for digits = 1, 17 do
    local text = ("%." .. digits .. "g"):format(number)
    if tonumber(text) == number then return text end
  end
end

local quoted = {["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ["\\"] = "\\\\"}

-- A string as Python's repr writes it.
local function quote(text)
  local mark = text:find("'", 1, true) and not text:find('"', 1, true) and '"' or "'"
  return mark .. text:gsub("[\n\t\r\\]", quoted):gsub(mark == "'" and "'" or "\0", "\\'") .. mark
end

-- The text of a value inside of a list.
local function inner(value)
  return type(value) == "string" and quote(value) or values.text(value)
end

--- The text of a value, as Python's str.
function values.text(value)
  local kind = values.kind(value)
  if kind == "string" then return value end
  if kind == "number" then return number_text(value) end
  if kind == "boolean" then return value and "True" or "False" end
  if kind == "none" then return "None" end
  if kind == "undefined" then return "" end
  local parts = {}
  if kind == "list" then
    for i, item in ipairs(value.items) do parts[i] = inner(item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  if kind ~= "dict" then lexer.fail(0, "a %s has no text", kind) end
  for i, key in ipairs(value.keys) do parts[i] = inner(key) .. ": " .. inner(value.map[key]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local json_escapes = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b",
  ["\f"] = "\\f"}

local function json_string(text)
  return '"' .. text:gsub('[%c"\\]', function(c)
    return json_escapes[c] or c ~= "\127" and ("\\u%04x"):format(c:byte()) or nil
  end) .. '"'
end

--- A value as json.dumps(value, ensure_ascii=False, indent=indent) writes it.
---@param indent? integer
---@param level? integer
function values.json(value, indent, level)
  local kind = values.kind(value)
  if kind == "string" then return json_string(value) end
  if kind == "number" then return number_text(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "none" then return "null" end
  if kind ~= "list" and kind ~= "dict" then lexer.fail(0, "tojson: an %s value", kind) end
  level = (level or 0) + 1
  local parts, open, close = {}, kind == "list" and "[" or "{", kind == "list" and "]" or "}"
  for i, item in ipairs(value.items or value.keys) do
    parts[i] = kind == "list" and values.json(item, indent, level)
      or json_string(values.text(item)) .. ": " .. values.json(value.map[item], indent, level)
  end
  if #parts == 0 then return open .. close end
  if not indent then return open .. table.concat(parts, ", ") .. close end
  local line = "\n" .. (" "):rep(indent * level)
  return open .. line .. table.concat(parts, "," .. line) .. "\n" .. (" "):rep(indent * (level - 1)) .. close
end

--- Are two values equal?
function values.equal(a, b)
  local kind = values.kind(a)
  if kind ~= values.kind(b) then return false end
  if kind == "none" or kind == "undefined" then return true end
  if kind == "list" then
    for i = 1, math.max(#a.items, #b.items) do
      if a.items[i] == nil or b.items[i] == nil or not values.equal(a.items[i], b.items[i]) then return false end
    end
    return true
  end
  if kind == "dict" then
    if #a.keys ~= #b.keys then return false end
    for _, key in ipairs(a.keys) do
      if b.map[key] == nil or not values.equal(a.map[key], b.map[key]) then return false end
    end
    return true
  end
  return a == b
end

--- The characters of a text.
function values.characters(text)
  local list = {}
  for c in text:gmatch "[%z\1-\127\194-\255][\128-\191]*" do list[#list + 1] = c end
  return list
end

--- The items of a value in a loop: of a list, the keys of a dictionary, the characters of a string.
---@return any[]
function values.items(value, line)
  local kind = values.kind(value)
  if kind == "list" then return value.items end
  if kind == "dict" then return value.keys end
  if kind == "string" then return values.characters(value) end
  if kind == "undefined" then return {} end
  lexer.fail(line, "expected a list, got %s", kind == "none" and "None" or "a " .. kind)
end

--- Does `container` contain `value`?
function values.contains(value, container, line)
  local kind = values.kind(container)
  if kind == "string" then
    if type(value) ~= "string" then lexer.fail(line, "'in': expected a string, got a %s", values.kind(value)) end
    return container:find(value, 1, true) ~= nil
  end
  if kind == "dict" then return container.map[value] ~= nil end
  for _, item in ipairs(values.items(container, line)) do
    if values.equal(item, value) then return true end
  end
  return false
end

return values
