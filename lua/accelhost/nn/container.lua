--- Modules that hold modules (or parameters).
--
-- Lists count their items from 1: `#list`, `ipairs(list)`, `table.insert(list, m)` and `list[2] = m` do what they do in
-- Lua. The keys in a state_dict count from 0, as in PyTorch.

-- Sequential, ModuleList and ParameterList keep their items in the raw array part of the instance. The array itself is
-- the registry: it is read whenever the tree is walked.
local arguments = require "accelhost.util.arguments"
local fused = require "accelhost.nn.fused"
local module = require "accelhost.nn.module"
local parameter = require "accelhost.nn.parameter"

local fail, describe = arguments.fail, arguments.describe
local Module, is_module = module.Module, module.is_module
local container = {}

-- Lists of modules.

local List = Module:extend "List"
List._is_array = true -- its items change without notice: see nn.module.changes

List.__newindex = function(self, key, value)
  if type(key) ~= "number" then return Module._assign(self, key, value) end
  if not is_module(value) then
    fail("%s: item %s: expected a module, got %s", self._name, tostring(key), describe(value))
  end
  if key ~= #self + 1 then
    fail("%s: item %s does not exist, there are %d; append with table.insert", self._name, tostring(key), #self)
  end
  rawset(self, key, value)
end

local function check_items(self)
  for i = 1, #self do
    if not is_module(self[i]) then fail("%s: item %d is %s, not a module", self._name, i, describe(self[i])) end
  end
end

function List:_children()
  check_items(self)
  local names, modules = {}, {}
  for i = 1, #self do
    names[i], modules[i] = self._names[i] or tostring(i - 1), self[i]
  end
  local more_names, more = Module._children(self)
  for i = 1, #more do
    names[#names + 1], modules[#modules + 1] = more_names[i], more[i]
  end
  return names, modules
end

function List:_pairs()
  return ipairs(self)
end

function List:_item(key)
  if type(key) == "number" and key < 1 then
    fail("%s: items count from 1, there is no item %s", self._name, tostring(key))
  end
  local names = rawget(self, "_names")
  for i = 1, names and #self or 0 do
    if names[i] == key then return self[i] end
  end
end

--- How many items there are; `#list` says the same.
---@return integer
function List:len()
  return #self
end

--- Put a module at the end.
---@param item Module
---@return Module self
function List:append(item)
  self[#self + 1] = item
  return self
end

-- Names go with their items when one of `count` comes in (by = 1) or goes (by = -1) at a place.
local function shift_names(self, place, count, by)
  local names, moved = self._names, {}
  for i = 1, count do
    if i < place or (by == 1 or i > place) then moved[i < place and i or i + by] = names[i] end
  end
  rawset(self, "_names", moved)
end

local read_insert = arguments.signature("insert", {"index: count", "module: module"})

--- Put a module before the one at a place, counted from 1; `len() + 1` is the end.
---@param index integer
---@param module Module
---@return Module self
function List:insert(...)
  local index, item = read_insert(...)
  if index > #self + 1 then fail("insert: %s has %d items, there is no place %d", self._name, #self, index) end
  shift_names(self, index, #self, 1)
  table.insert(self, index, item)
  return self
end

--- Take a module out and return it.
---@param index integer? its place, counted from 1; default: the last
---@return Module
function List:pop(index)
  index = index or #self
  if type(index) ~= "number" or not is_module(rawget(self, index)) then
    fail("pop: %s has %d items, there is none at %s", self._name, #self, describe(index))
  end
  shift_names(self, index, #self, -1)
  return table.remove(self, index)
end

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

local function fill(self, items)
  check_array(self._name, items)
  rawset(self, "_names", {})
  for i, item in ipairs(items) do
    if type(item) == "table" and getmetatable(item) == nil and type(item[1]) == "string" and is_module(item[2]) then
      self._names[i] = item[1]
      item = item[2]
    end
    if not is_module(item) then
      fail("%s: item %d: expected a module, got %s%s", self._name, i, describe(item),
        type(item) == "function" and "; wrap it in a module whose forward calls it" or "")
    end
    rawset(self, i, item)
  end
  return self
end

--- Runs its items one after the other.
--
--   nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
--   nn.Sequential{{"fc", nn.Linear(784, 10)}, {"act", nn.ReLU()}}      -- named
--
-- seq[1] is the first item; its weight has the state_dict key "0.weight" (or "fc.weight").
---@param ... Module the items, or one table of them, or of {name, item}
---@class Sequential: Module
local Sequential = List:extend "Sequential"
container.Sequential = Sequential

function Sequential:init(...)
  local first = ...
  if select("#", ...) == 1 and type(first) == "table" and getmetatable(first) == nil then
    fill(self, first)
  else
    for i = 1, select("#", ...) do
      if (select(i, ...)) == nil then fail("Sequential: item %d is nil", i) end
    end
    fill(self, {...})
  end
end

function Sequential:forward(input)
  local i, count = 1, #self
  while i <= count do
    local made, together = fused.run(self, i, input)
    if together == 0 then made, together = self[i](input), 1 end
    input, i = made, i + together
  end
  return input
end

--- A list of modules, registered in order; the loop over it is yours.
--
--   local layers = nn.ModuleList{nn.Linear(4, 8), nn.Linear(8, 8)}
--   for _, layer in ipairs(layers) do x = layer(x) end
--
-- layers:extend{...} puts the items of a table at the end.
---@param items? Module[] none without
---@class ModuleList: Module
local ModuleList = List:extend "ModuleList"
container.ModuleList = ModuleList

function ModuleList:init(items, ...)
  if select("#", ...) > 0 then
    fail("ModuleList: expected one table of modules, got %d arguments: write ModuleList{a, b}", select("#", ...) + 1)
  end
  if items ~= nil and (type(items) ~= "table" or getmetatable(items) ~= nil and not is_module(items)) then
    fail("ModuleList: expected a table of modules, got %s", describe(items))
  end
  fill(self, items or {})
end

--- Append all modules of an array; with a name, make a subclass as every module class does.
---@param items Module[]|string
function ModuleList:extend(items)
  if type(items) == "string" then return Module.extend(self, items) end
  arguments.check("ModuleList.extend", "items", "modules", items)
  for _, item in ipairs(items) do self:append(item) end
  return self
end

function ModuleList:forward()
  fail("a ModuleList cannot be called: loop over it with ipairs, or use nn.Sequential")
end

--- Runs of equal items are printed once: "(0-2): 3 x Linear(...)".
function ModuleList:_child_lines()
  local lines, first = {}, 1
  local names, modules = self:_children()
  for i = 1, #modules do
    local text = tostring(modules[i])
    if i == #modules or tostring(modules[i + 1]) ~= text then
      local label = first == i and "(" .. names[i] .. "): "
        or ("(%s-%s): %d x "):format(names[first], names[i], i - first + 1)
      lines[#lines + 1] = label .. (text:gsub("\n", "\n  "))
      first = i + 1
    end
  end
  return lines
end

-- Modules by name.

--- Name, value pairs of {{"a", x}, {"b", y}} in that order, or of {a = x, b = y} sorted by name.
local function named_items(what, items)
  local names, values = {}, {}
  if items[1] ~= nil then
    check_array(what, items)
    for i, item in ipairs(items) do
      if type(item) ~= "table" or type(item[1]) ~= "string" then
        fail("%s: item %d: expected {name, value}, got %s", what, i, describe(item))
      end
      names[i], values[i] = item[1], item[2]
    end
  else
    for name in pairs(items) do names[#names + 1] = name end
    table.sort(names)
    for i, name in ipairs(names) do values[i] = items[name] end
  end
  return names, values
end

--- What ModuleDict and ParameterDict share. A class says which of a module's lists holds its items (_list), what an
-- item is (_accepts) and how messages call it (_wanted).
local Dict = Module:extend "Dict"

function Dict:init(items)
  if items ~= nil then self:update(items) end
end

--- Add items: {{name, value}, ...} keeps the order, {name = value} is sorted by name.
---@param items table
function Dict:update(items)
  if type(items) ~= "table" then fail("%s: expected a table, got %s", self._name, describe(items)) end
  local names, values = named_items(self._name, items)
  for i, key in ipairs(names) do
    if not self._accepts(values[i]) then
      fail("%s: '%s': expected %s, got %s", self._name, key, self._wanted, describe(values[i]))
    end
    self[key] = values[i]
  end
end

--- Names in order.
---@return string[]
function Dict:keys()
  local names = {}
  for i, key in ipairs(self[self._list]) do names[i] = key end
  return names
end

--- for name, value in dict:items() do ... end
function Dict:items()
  local names, i = self:keys(), 0
  return function()
    i = i + 1
    if names[i] then return names[i], self._fields[names[i]] end
  end
end

Dict._pairs = Dict.items

--- Values in order of their names' registration.
function Dict:values()
  local values = {}
  for i, key in ipairs(self[self._list]) do values[i] = self._fields[key] end
  return values
end

--- The item of a name, or `default` (nil).
---@param key string
---@param default? any
---@return any
function Dict:get(key, default)
  if self._kind[key] == nil then return default end
  return self._fields[key]
end

--- Take an item out and return it.
---@param key string
---@return any
function Dict:pop(key)
  local value = self._fields[key]
  if self._kind[key] == nil then fail("pop: %s has no '%s'", self._name, tostring(key)) end
  self[key] = nil
  return value
end

--- Take all items out.
function Dict:clear()
  for _, key in ipairs(self:keys()) do self[key] = nil end
end

--- Is there an item of this name?
---@param key string
---@return boolean
function Dict:contains(key)
  return self._kind[key] ~= nil
end

function Dict:len()
  return #self[self._list]
end

function Dict:forward() -- luacheck: ignore
  fail("a %s cannot be called: call one of its items", self._name)
end

local function named_class(name, list, accepts, wanted)
  local Class = Dict:extend(name)
  Class._list, Class._accepts, Class._wanted = list, accepts, wanted
  container[name] = Class
end

--- Modules by name: nn.ModuleDict{{"relu", nn.ReLU()}, {"gelu", nn.GELU()}}; dict.relu, dict["gelu"].
--
--   local acts = nn.ModuleDict{{"relu", nn.ReLU()}, {"gelu", nn.GELU()}}
--   acts.relu(a)  --> tensor([1., 2., 3.])
---@param items? table {{name, item}, ...} keeps the order, {name = item} is sorted by name
named_class("ModuleDict", "_modules", is_module, "a module")

--- Parameters by name.
--
--   nn.ParameterDict{{"scale", nn.Parameter(accelhost.ones(2))}}.scale:size(0)  --> 2
---@param items? table {{name, item}, ...} keeps the order, {name = item} is sorted by name
named_class("ParameterDict", "_parameters", parameter.is_parameter, "an nn.Parameter")

-- Lists of parameters.

--- Parameters in order: nn.ParameterList{nn.Parameter(a), nn.Parameter(b)}; list[1], ipairs(list).
--
--   #nn.ParameterList{nn.Parameter(accelhost.ones(2)), nn.Parameter(accelhost.zeros(2))}  --> 2
---@param items? Tensor[] parameters; none without
---@class ParameterList: Module
local ParameterList = Module:extend "ParameterList"
ParameterList._is_array = true
container.ParameterList = ParameterList

ParameterList.__newindex = function(self, key, value)
  if type(key) ~= "number" then return Module._assign(self, key, value) end
  rawset(self, key, value)
end

ParameterList._pairs = List._pairs

function ParameterList:init(items)
  if items ~= nil then arguments.check("ParameterList", "items", "table", items) end
  check_array("ParameterList", items or {})
  for i, item in ipairs(items or {}) do rawset(self, i, item) end
  self:_sync()
end

--- Put a parameter at the end.
---@param item Tensor
---@return ParameterList self
function ParameterList:append(item)
  rawset(self, #self + 1, item)
  return self
end

--- Append all parameters of an array; with a name, make a subclass as every module class does.
---@param items table[]|string
function ParameterList:extend(items)
  if type(items) == "string" then return Module.extend(self, items) end
  arguments.check("ParameterList.extend", "items", "list", items)
  for _, item in ipairs(items) do self:append(item) end
  return self
end

function ParameterList:len()
  return #self
end

--- Register the array's items under "0", "1", ...
function ParameterList:_sync()
  local names = {}
  for i = 1, #self do
    if not parameter.is_parameter(self[i]) then
      fail("ParameterList: item %d: expected an nn.Parameter, got %s", i, describe(self[i]))
    end
    names[i] = tostring(i - 1)
    self._fields[names[i]] = self[i]
    self._kind[names[i]] = "parameter"
  end
  rawset(self, "_parameters", names)
end

function ParameterList:forward() -- luacheck: ignore
  fail("a ParameterList cannot be called: loop over it with ipairs")
end

return container
