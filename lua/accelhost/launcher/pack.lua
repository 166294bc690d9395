--- A value with all that it refers to as plain data, for another process of this program (unpack.lua turns it back).
--
-- A value with an identity is an entry of a flat list and is referred to by its number there, so that shared values
-- stay shared and circles need no special case. A slot represents a value: the value itself for numbers,
-- texts and booleans, {number of the entry}, or {} for nil. An entry begins with its kind:
--
--   {"name", way}                         a value of the library or a module (names.lua)
--   {"given", number}                     a class that the other process has sent before, by its number there
--   {"table", metatable slot, k, v, ...}  k and v slots
--   {"sized", class slot, k, v, ...}      an object whose class is class.sized
--   {"class", name, parent slot, k, v, ...}
--   {"function", bytecode, {cells}, environment slot}   cells: numbers of variables that functions share
--   {"environment", {name = slot}}        globals that are not everybody's
--   {"tensor", number of its values, requires_grad, is_parameter, device, gradient slot, view}
--   {"generator", state slot, device}, {"default generator"}
--
-- Work is queued, without recursion: a list of a million links is no deeper than one of two.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local code = require "accelhost.launcher.code"
local names = require "accelhost.launcher.names"
local parameter = require "accelhost.nn.parameter"
local serialize = require "accelhost.util.serialize"

local pack = {}

-- Places: a chain of {above, kind, key}, described if something cannot be serialized.

local heads = {
  upvalue = function(key) return ("upvalue '%s'"):format(key) end,
  global = function(key) return ("global '%s'"):format(key) end,
  metatable = function() return "the metatable" end,
  key = function() return "a key" end,
}

local tails = {
  field = serialize.key_text,
  grad = function() return ".grad" end,
}

-- Return the texts of a place, and of the value of which it is a part: "upvalue 'options'.log", " of train".
local function place_parts(place)
  if type(place) == "string" then return place, "" end
  local above, kind, key = unpack(place, 1, 3)
  local head, rest = place_parts(above)
  if tails[kind] then return head .. tails[kind](key), rest end
  return heads[kind](key), (" of %s%s"):format(head, rest)
end

local function place_text(place) return table.concat({place_parts(place)}) end

local function refuse(self, place, what)
  arguments.fail("%s: %s: %s cannot be serialized", self.what, place_text(place), what)
end

-- Entries.

local function slot(self, value, place)
  if value == nil then return {} end
  if serialize.kind(value) == "scalar" then return value end
  local number = self.numbers[value]
  if not number then
    number = #self.entries + 1
    self.numbers[value], self.entries[number] = number, false
    self.queued = self.queued + 1
    self.queue[self.queued] = {value, place, number}
  end
  return {number}
end

local function add_fields(self, entry, fields, place, skip)
  for key, item in next, fields do
    if not (skip and skip(key, item)) then
      entry[#entry + 1] = slot(self, key, {place, "key"})
      entry[#entry + 1] = slot(self, item, {place, "field", key})
    end
  end
  return entry
end

local function is_proxy_of_globals(environment)
  local meta = debug.getmetatable(environment)
  return environment == _G or (type(meta) == "table" and rawget(meta, "__newindex") == _G)
end

-- Return the table, and its fields so far, for the globals that a function reads: the other process's globals, or a
-- separate environment.
local function place_for_globals(self, environment)
  if is_proxy_of_globals(environment) then return self.globals, {} end
  local found = self.environments[environment]
  if not found then
    found = {#self.entries + 1, {}}
    self.environments[environment] = found
    self.entries[found[1]] = {"environment", found[2]}
  end
  return found[2], {found[1]}
end

local function pack_globals(self, fn, place)
  local environment = getfenv(fn)
  local globals, environment_slot = place_for_globals(self, environment)
  for _, name in ipairs(code.globals(fn)) do
    local there, value = pcall(function() return environment[name] end)
    if there and value ~= nil and globals[name] == nil then
      -- A name available at the prompt is created on first access.
      if rawget(_G, name) == nil then self.index = names.index() end
      local way = self.index[value]
      if not (way and way[1] == "_G") then globals[name] = slot(self, value, {place, "global", name}) end
    end
  end
  return environment_slot
end

local function pack_function(self, fn, place)
  if debug.getinfo(fn, "S").what == "C" then refuse(self, place, "a function written in C") end
  if names.is_library_function(fn) then
    refuse(self, place, ("a function that the library made while it ran (%s)"):format(debug.getinfo(fn, "S").short_src))
  end
  local cells, at = {}, 1
  while true do
    local name, value = debug.getupvalue(fn, at)
    if not name then break end
    local id = debug.upvalueid(fn, at)
    local cell = self.cells[id]
    if not cell then
      cell = #self.variables + 1
      self.cells[id], self.variables[cell] = cell, {}
      self.variables[cell] = slot(self, value, {place, "upvalue", name})
    end
    cells[at], at = cell, at + 1
  end
  return {"function", string.dump(fn), cells, pack_globals(self, fn, place)}
end

local function pack_tensor(self, tensor, place)
  if not tensor.is_leaf and self.detaches then
    tensor = tensor:detach()
  elseif not tensor.is_leaf then
    refuse(self, place, "a tensor that was computed from others with a gradient (detach() returns one without)")
  end
  local entry = {"tensor", #self.tensors + 1, tensor.requires_grad, parameter.is_parameter(tensor), tensor.device, {}}
  self.tensors[entry[2]] = tensor
  self.tensor_entries[entry[2]] = entry
  local gradient = tensor.requires_grad and tensor.grad
  if gradient then entry[6] = slot(self, gradient:detach(), {place, "grad"}) end
  return entry
end

-- Return the path to a value that every process has, if there is one.
local function way_to(self, value)
  local way = self.index[value]
  if way or not (type(value) == "function" and names.is_library_function(value) or names.is_library_class(value)) then
    return way
  end
  self.hidden = self.hidden or names.hidden(self.index)
  return self.hidden[value]
end

-- The fields that class.new sets on a class are not the script's.
local function pack_class(self, cls, place)
  for _, item in next, cls do
    if type(item) == "function" and names.is_library_function(item) and rawget(cls, "__index") ~= item
      and not way_to(self, item) then
      refuse(self, place, ("the class %s, which the library made while it ran,"):format(cls._name))
    end
  end
  local parent = rawget(cls, "_parent")
  local fresh = class.new(cls._name, parent)
  local function skip(key, item)
    return key == "_name" or key == "_parent" or key == "_class" or key == "_below" or rawget(fresh, key) == item
      or (key == "__index" and (item == cls or type(item) == "function" and names.is_library_function(item)))
  end
  return add_fields(self, {"class", cls._name, slot(self, parent, {place, "field", "_parent"})}, cls, place, skip)
end

local function pack_table(self, value, place)
  local meta = debug.getmetatable(value)
  if meta ~= nil and class.of(value) and class.of(value)._name == "Accelerator" then
    local library = package.loaded.accelhost
    if library and rawget(library, "accelerator") == value then return {"name", {"accelhost", "accelerator"}} end
    refuse(self, place, "an Accelerator (make it inside of the function)")
  end
  local name = type(meta) == "table" and rawget(meta, "_name")
  if type(name) == "string" and name:find "^prepared " then
    refuse(self, place, ("a %s (prepare it inside of the function)"):format(name))
  end
  local entry = {"table", slot(self, meta, {place, "metatable"})}
  if type(meta) == "table" and rawget(meta, "__mode") then return entry end -- data about this process's objects
  return add_fields(self, entry, value, place)
end

local function pack_userdata(self, value, place)
  if C.random.is_generator(value) then
    if tostring(value) == tostring(C.random.default()) then return {"default generator"} end
    return {"generator", slot(self, value:get_state(), place), value.device}
  end
  local meta = debug.getmetatable(value)
  local fields = type(meta) == "table" and rawget(meta, "__index")
  if type(fields) == "table" and class.of(value) then
    local entry = {"sized", slot(self, class.of(value), {place, "metatable"})}
    return add_fields(self, entry, fields, place)
  end
  refuse(self, place, io.type(value) and "a file" or arguments.describe(value))
end

local function pack_entry(self, value, place, number)
  local way, kind = way_to(self, value), type(value)
  if self.given[value] then return {"given", self.given[value]} end
  if way then return {"name", way} end
  if kind == "function" then return pack_function(self, value, place) end
  if C.is_tensor(value) then return pack_tensor(self, value, place) end
  if kind == "userdata" then return pack_userdata(self, value, place) end
  if kind ~= "table" then refuse(self, place, kind == "thread" and "a coroutine" or "a " .. kind) end
  if rawget(value, "_class") == value then
    self.classes[number] = value
    return pack_class(self, value, place)
  end
  return pack_table(self, value, place)
end

-- Tensors that are views of one storage are packed as that storage and their offsets in it.

local function by_memory(tensors)
  local groups, order = {}, {}
  for number, tensor in ipairs(tensors) do
    local group, start
    if tensor.device == "cpu" and tensor:numel() > 0 then
      start = tensor.data:as_strided({1}, {1}, 0):data_ptr()
      groups[start] = groups[start] or {}
      group = groups[start][tensor.dtype]
    end
    if not group then
      group = {}
      order[#order + 1] = group
    end
    if start then groups[start][tensor.dtype] = group end
    group[#group + 1] = number
  end
  return order
end

local function extent_of(tensor)
  local last, sizes, strides = tensor:storage_offset(), tensor:shape(), tensor:stride()
  for dim = 1, #sizes do last = last + (sizes[dim] - 1) * strides[dim] end
  return last + 1
end

local function plain(numbers)
  local list = {}
  for i = 1, #numbers do list[i] = numbers[i] end
  return list
end

local function pack_shared(self, group, values)
  local extent, views = 0, {}
  for _, number in ipairs(group) do
    local tensor = self.tensors[number]
    extent = math.max(extent, extent_of(tensor))
    views[number] = {plain(tensor:shape()), plain(tensor:stride()), tensor:storage_offset()}
  end
  local first = self.tensors[group[1]]
  values[#values + 1] = first.data:as_strided({extent}, {1}, 0)
  for number, view in pairs(views) do
    self.tensor_entries[number][2], self.tensor_entries[number][7] = #values, view
  end
end

local function values_of(self)
  local values = {}
  for _, group in ipairs(by_memory(self.tensors)) do
    local tensor = self.tensors[group[1]]
    if #group > 1 then
      pack_shared(self, group, values)
    elseif tensor.device == "meta" then
      values[#values + 1] = {tensor.dtype, plain(tensor:shape())}
      self.tensor_entries[group[1]][2] = #values
    else
      values[#values + 1] = tensor.data:to "cpu"
      self.tensor_entries[group[1]][2] = #values
    end
  end
  return values
end

--- A list of values, nils included, as plain data. Raises, with the path to it, if one cannot be serialized: files,
--- coroutines, C functions, tensors with a history.
---@param what string the function that sends, for messages
---@param values table<integer, any>
---@param titles string[] how each value is called
---@param given? table<table, integer> classes that were received from the process to which this is sent
---@param detaches? boolean tensors go without their history
---@return table # for the codec (tensors, texts, numbers, booleans and tables of them)
---@return table<integer, table> classes by the number under which they go
function pack.values(what, values, count, titles, given, detaches)
  local self = {
    given = given or {}, classes = {}, detaches = detaches,
    what = what, index = names.index(), entries = {}, numbers = {}, queue = {}, queued = 0, cells = {}, variables = {},
    environments = {}, globals = {}, tensors = {}, tensor_entries = {},
  }
  local slots = {}
  for i = 1, count do slots[i] = slot(self, values[i], titles[i]) end
  local at = 1
  while self.queue[at] do
    local value, place, number = unpack(self.queue[at])
    self.queue[at] = nil
    self.entries[number] = pack_entry(self, value, place, number)
    at = at + 1
  end
  return {entries = self.entries, variables = self.variables, globals = self.globals, values = values_of(self),
    slots = slots}, self.classes
end

return pack
