--- The ordered items of a container, for Sequential, ModuleList and ParameterList.
--
-- The items are the array part of the instance, so that `#list`, `ipairs`, `unpack`, `table.insert` and `table.remove`
-- work as on any Lua table. Assignments to that part are not seen when they happen: `_seen` has the items at the last
-- comparison, and `settle` compares. `_names` has, by place, the names other than the default one (the place, from 0).
local arguments = require "accelhost.util.arguments"
local module = require "accelhost.nn.module"

local fail, describe = arguments.fail, arguments.describe
local Module = module.Module

-- A class sets _accepts(value) and _wanted (the item in messages).
local Items = Module:extend "Items"
Items._is_array = true -- its items change without notice: see nn.module.changes

local make_blank = Module._blank

function Items._blank(made)
  local self = make_blank(made)
  rawset(self, "_names", {})
  rawset(self, "_seen", {})
  return self
end

-- Changes made by Lua itself.

local function is_unchanged(self, seen)
  local count = #self
  if count ~= #seen then return false end
  for i = 1, count do
    if rawget(self, i) ~= seen[i] then return false end
  end
  return true
end

-- The places at which each former item that was moved or removed was stored, in order.
local function former_places(self, seen)
  local places = {}
  for i, item in ipairs(seen) do
    if rawget(self, i) ~= item then
      places[item] = places[item] or {}
      table.insert(places[item], i)
    end
  end
  return places
end

-- The names after a change: an item that moved keeps its name, a new one has the name of the item that it replaced. A
-- permutation (list[1], list[2] = list[2], list[1]) is two replacements, as in PyTorch.
local function moved_names(self, seen, extent)
  local places, names, fresh, new = former_places(self, seen), {}, {}, extent ~= #seen
  for i = 1, extent do
    local item = rawget(self, i)
    local from = places[item] and table.remove(places[item], 1)
    if item ~= nil and item == seen[i] then
      names[i] = self._names[i]
    elseif from then
      names[i] = self._names[from]
    else
      fresh[#fresh + 1], new = i, true
    end
  end
  if not new then return self._names end
  for _, i in ipairs(fresh) do
    local former = seen[i]
    local removed = former ~= nil and places[former] and #places[former] > 0
    if rawget(self, i) ~= nil and removed then names[i] = self._names[i] end
  end
  return names
end

-- Close the holes that `list[i] = nil` leaves; names follow.
local function close_holes(self, names, extent)
  local items, kept, count = {}, {}, 0
  for i = 1, extent do
    local item = rawget(self, i)
    if item ~= nil then
      count = count + 1
      items[count], kept[count] = item, names[i]
    end
  end
  for i = 1, extent do rawset(self, i, items[i]) end
  return kept, items
end

--- Update names and positions after assignments to the array part; raise for an item of another kind.
---@return integer count the number of items
local function settle(self)
  local seen = self._seen
  if is_unchanged(self, seen) then return #seen end
  local extent = math.max(#self, #seen)
  local names, items = close_holes(self, moved_names(self, seen, extent), extent)
  for i, item in ipairs(items) do
    if not self._accepts(item) then
      fail("%s: item %d is %s, not %s", self._name, i, describe(item), self._wanted)
    end
  end
  rawset(self, "_names", names)
  rawset(self, "_seen", items)
  return #items
end

-- Names and places.

local function name_at(self, place)
  return self._names[place] or tostring(place - 1)
end

-- The place of the item with a name, if there is one.
local function place_of(self, name)
  if type(name) ~= "string" then return nil end
  local count, names = settle(self), self._names
  local number = name:find "^%d+$" and tonumber(name)
  if number and number < count and name_at(self, number + 1) == name then return number + 1 end
  if next(names) == nil then return nil end
  for i = 1, count do
    if names[i] == name then return i end
  end
end

local function set_name(self, place, name)
  self._names[place] = name ~= tostring(place - 1) and name or nil
end

-- An array of all names; or nil and a message: two items of one name would be one entry of a state_dict.
local function read_names(self)
  local names, places = {}, {}
  for i = 1, settle(self) do
    local name = name_at(self, i)
    if places[name] then
      return nil, ("%s: items %d and %d would both be named '%s': register the one without a name by "
        .. "add_module(name, item)"):format(self._name, places[name], i, name)
    end
    names[i], places[name] = name, i
  end
  return names
end

local function all_names(self)
  local names, message = read_names(self)
  return names or fail("%s", message)
end

local function remove(self, place)
  local count = settle(self)
  local item = self[place]
  for i = place, count do
    rawset(self, i, rawget(self, i + 1))
    self._seen[i], self._names[i] = self._seen[i + 1], self._names[i + 1]
  end
  return item
end

-- Insert an item at a place; a name that is nil is the default one.
local function insert(self, place, item, name)
  local count = settle(self)
  if not self._accepts(item) then
    fail("%s: item %d: expected %s, got %s%s", self._name, place, self._wanted, describe(item),
      type(item) == "function" and "; wrap it in a module whose forward calls it" or "")
  end
  for i = count, place, -1 do
    rawset(self, i + 1, self[i])
    self._seen[i + 1], self._names[i + 1] = self._seen[i], self._names[i]
  end
  rawset(self, place, item)
  self._seen[place], self._names[place] = item, nil
  if name then set_name(self, place, name) end
  if next(self._names) == nil then return end
  local names, message = read_names(self)
  if not names then
    remove(self, place)
    fail("%s", message)
  end
end

local function replace(self, place, item)
  rawset(self, place, item)
  self._seen[place] = item
end

-- The place of an index counted from 1, or, below 0, from the end; nil where there is no item.
local function place_at(self, index)
  if type(index) ~= "number" then return nil end
  local place = index < 0 and settle(self) + 1 + index or index
  return rawget(self, place) ~= nil and place >= 1 and place or nil
end

-- Access to keys that are not in an instance's table.

local function assign_at(self, index, value)
  local count = settle(self)
  local place = index < 0 and count + 1 + index or index
  if value == nil and rawget(self, place) ~= nil then
    remove(self, place)
    return
  end
  if not self._accepts(value) then
    fail("%s: item %s: expected %s, got %s", self._name, tostring(index), self._wanted, describe(value))
  end
  if place == count + 1 and index > 0 then
    insert(self, place, value)
  elseif place >= 1 and rawget(self, place) ~= nil then
    replace(self, place, value)
  else
    fail("%s: item %s does not exist, there are %d; append with table.insert", self._name, tostring(index), count)
  end
end

Items.__newindex = function(self, key, value)
  if type(key) == "number" then return assign_at(self, key, value) end
  local place = place_of(self, key)
  if self._accepts(value) then
    if place then return replace(self, place, value) end
    self:_check_name(key, self._item_kind)
    self:_drop(key)
    insert(self, #self + 1, value, key)
  elseif not place then
    Module._assign(self, key, value)
  elseif value == nil then
    remove(self, place)
  else
    fail("%s.%s is %s: expected %s or nil, got %s", self._name, key, self._wanted, self._wanted, describe(value))
  end
end

--- The item of a name, or of a negative index, counted from the end.
function Items:_item(key)
  if type(key) ~= "number" then
    local place = place_of(self, key)
    return place and self[place]
  end
  if key >= 1 then return nil end
  local place = place_at(self, key)
  if not place then
    fail("%s: items count from 1, there is no item %s%s", self._name, tostring(key),
      key == 0 and "; the last is item -1" or "")
  end
  return self[place]
end

function Items:_pairs()
  settle(self)
  return ipairs(self)
end

-- Methods for callers.

--- The number of items; `#list` is the same.
---@return integer
function Items:len()
  return settle(self)
end

--- Append an item.
---@param item Module|Tensor a module; of a ParameterList an nn.Parameter
---@return Module self
function Items:append(item)
  insert(self, settle(self) + 1, item)
  return self
end

--- Append all items of an array; with a name, make a subclass as every module class does.
---@param items table[]|string
function Items:extend(items)
  if type(items) == "string" then return Module.extend(self, items) end
  arguments.check(self._name .. ".extend", "items", "table", items)
  for _, item in ipairs(items) do self:append(item) end
  return self
end

--- Insert an item before the one at a place, counted from 1; `len() + 1` is the end.
---@param item Module|Tensor
---@return Module self
Items.insert = arguments.method("insert", {"index: count", "item: any"}, function(self, index, item)
  local count = settle(self)
  if index < 1 or index > count + 1 then
    fail("insert: %s has %d items, there is no place %d", self._name, count, index)
  end
  insert(self, index, item)
  return self
end)

--- Remove an item and return it.
---@param index integer? its place, counted from 1, or from -1 backwards; default: the last
---@return Module|Tensor
function Items:pop(index)
  local count = settle(self)
  local place = place_at(self, index or count)
  if not place then
    fail("pop: %s has %d items, there is none at %s", self._name, count, describe(index or count))
  end
  return remove(self, place)
end

--- A new container of the same class with the items `first` to `last`, both included, as string.sub counts: from 1, or
--- from -1 backwards. The items are shared; those of a Sequential keep their names.
--
--   local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
--   #net:slice(1, 2)  --> 2
---@return Module
Items.slice = arguments.method("slice", {{"first: integer", 1}, {"last: integer", -1}}, function(self, first, last)
  local count, made = settle(self), self._class:_blank()
  if first < 0 then first = count + 1 + first end
  if last < 0 then last = count + 1 + last end
  for i = math.max(first, 1), math.min(last, count) do
    insert(made, #made + 1, self[i], self._keeps_names and name_at(self, i) or nil)
  end
  made.training = self.training
  return made
end)

--- Raise when a table holds more than an array: named items have no order.
local function check_array(what, items)
  local count = 0
  for key in next, items do
    if type(key) ~= "number" then
      fail('%s: items of a table have no order by name: write {{"%s", ...}, ...} instead of {%s = ...}', what,
        tostring(key), tostring(key))
    end
    count = count + 1
  end
  for i = 1, count do
    if items[i] == nil then fail("%s: item %d is nil", what, i) end
  end
end

--- Add the items that a constructor was called with: an array of items, or of {name, item}.
local function fill(self, items)
  if not self._accepts(items) then check_array(self._name, items) end
  for i, item in ipairs(items) do
    local pair = type(item) == "table" and getmetatable(item) == nil and type(item[1]) == "string"
    if pair and self._accepts(item[2]) then
      if place_of(self, item[1]) then fail("%s: two items are named '%s'", self._name, item[1]) end
      self[item[1]] = item[2]
    else
      insert(self, i, item)
    end
  end
end

return {Items = Items, settle = settle, all_names = all_names, fill = fill, check_array = check_array}
