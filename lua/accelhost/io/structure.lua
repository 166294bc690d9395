--- Nested tables of tensors, numbers, texts and booleans, split for a file that holds named tensors, and rebuilt from
--- it.
--
-- The tensors are named by their path ("model.fc.weight"); the rest is JSON in which a tensor is written as
-- {"$tensor": name}. Tables whose keys are not all texts, nor 1..n, are {"$table": [[key, value], ...]}; numbers that
-- JSON has not are {"$number": "nan"}, a value that is no table is {"$value": 3}. A key that begins with "$" is written
-- with one more.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local serialize = require "accelhost.util.serialize"

local fail, describe = arguments.fail, arguments.describe

local structure = {}

local NUMBERS = {["nan"] = 0 / 0, ["inf"] = math.huge, ["-inf"] = -math.huge}

local function number_name(value)
  return value ~= value and "nan" or value == math.huge and "inf" or value == -math.huge and "-inf" or nil
end

-- Is every key of this kind?
local function all_keys(value, kind)
  for key in next, value do
    if type(key) ~= kind then return false end
  end
  return true
end

--- Has a table the keys 1..n, at least one, and no others?
---@param value table
---@return boolean
function structure.is_array(value)
  local count, found = #value, 0 -- `#` may count holes
  for key in next, value do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > count then return false end
    found = found + 1
  end
  return count > 0 and found == count
end

--- The keys of a table, those of one type in a row, each type in its order.
---@param value table
function structure.sorted_keys(value)
  local keys = {}
  for key in next, value do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) < type(b) end
    if type(a) == "boolean" then return a and not b end
    return a < b
  end)
  return keys
end

-- The tensors and keys that are collected on the way down.
local Parts = {}
Parts.__index = Parts

--- Raise an error about a value that a file cannot hold.
---@param path string the path that leads to the value, "" for the value itself
function structure.refuse(what, path, value)
  fail("%s: %s is %s; a file holds tensors, numbers, texts, booleans and tables of them%s", what,
    path == "" and "the value" or "'" .. path .. "'", describe(value),
    type(value) == "table" and type(value.state_dict) == "function" and " (save its state_dict())" or "")
end

--- Note a tensor, once; returns its representation.
function Parts:tensor(value, path)
  local name = self.name_of[value]
  if not name then
    name = path == "" and "tensor" or path
    while self.taken[name] do name = name .. "'" end
    self.taken[name], self.name_of[value] = true, name
    self.names[#self.names + 1], self.tensors[#self.tensors + 1] = name, value
  end
  return {["$tensor"] = name}
end

--- The representation of a table.
function Parts:table(value, path)
  if self.open[value] then fail("%s: '%s' holds itself", self.what, path) end
  self.open[value] = true
  local function below(key)
    return self:value(value[key], path == "" and tostring(key) or path .. "." .. tostring(key))
  end
  local result = {}
  if structure.is_array(value) then
    for i = 1, #value do result[i] = below(i) end
  elseif all_keys(value, "string") then
    for _, key in ipairs(structure.sorted_keys(value)) do result[(key:gsub("^%$", "$$"))] = below(key) end
  else
    local pairs_of = {}
    for i, key in ipairs(structure.sorted_keys(value)) do
      if serialize.kind(key) ~= "scalar" then structure.refuse(self.what, path, key) end
      pairs_of[i] = {self:value(key, path), below(key)}
    end
    result = {["$table"] = pairs_of}
  end
  self.open[value] = nil
  return result
end

--- The representation of any value at this path.
function Parts:value(value, path)
  local kind = serialize.kind(value)
  if not kind then structure.refuse(self.what, path, value) end
  if kind ~= "scalar" then return self[kind](self, value, path) end
  local name = type(value) == "number" and number_name(value)
  return name and {["$number"] = name} or value
end

--- Split a value into tensors and structure.
---@return string[] names, table[] tensors, string|nil text the JSON; nil for a plain table of tensors by name
function structure.split(what, value)
  local parts = setmetatable({what = what, names = {}, tensors = {}, name_of = {}, taken = {}, open = {}}, Parts)
  if serialize.kind(value) == "table" and next(value) ~= nil and all_keys(value, "string") then
    local plain = true
    for _, item in next, value do plain = plain and C.is_tensor(item) end
    if plain then
      for i, name in ipairs(structure.sorted_keys(value)) do parts.names[i], parts.tensors[i] = name, value[name] end
      return parts.names, parts.tensors, nil
    end
  end
  local tree = parts:value(value, "")
  local fine, text = pcall(C.json.encode, type(tree) == "table" and tree or {["$value"] = tree})
  if not fine then fail("%s: %s", what, tostring(text):match("encode: value%.?([^\n]*)") or tostring(text)) end
  return parts.names, parts.tensors, text
end

local function join(node, tensors)
  if type(node) ~= "table" then return node end
  local name = node["$tensor"]
  if name ~= nil then
    return tensors[name] or fail("load: the file's structure names a tensor '%s', which is missing", tostring(name))
  end
  if node["$number"] ~= nil then return NUMBERS[node["$number"]] end
  if node["$value"] ~= nil then return node["$value"] end
  local result = {}
  if type(node["$table"]) == "table" then
    for _, pair in ipairs(node["$table"]) do
      local key = type(pair) == "table" and join(pair[1], tensors)
      if key == nil or key ~= key or type(key) == "table" then fail("load: the file's structure has a damaged key") end
      result[key] = join(pair[2], tensors)
    end
    return result
  end
  for key, value in next, node do
    result[type(key) == "string" and key:gsub("^%$%$", "$") or key] = join(value, tensors)
  end
  return result
end

--- Build a value from tensors and structure.
---@param text string|nil as `split` returned it
---@param tensors table<string, table>
function structure.join(text, tensors)
  if not text then return tensors end
  local fine, tree = pcall(C.json.decode, text)
  if not fine then
    fail("load: the file's structure is damaged: %s", tostring(tree):match("decode: ([^\n]*)") or tostring(tree))
  end
  return join(tree, tensors)
end

return structure
