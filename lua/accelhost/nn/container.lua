--- Modules that hold modules (or parameters).
--
-- Lists count their items from 1: `#list`, `ipairs(list)`, `table.insert(list, m)` and `list[2] = m` work as in Lua.
-- The keys in a state_dict count from 0, as in PyTorch.

local arguments = require "accelhost.util.arguments"
local fused = require "accelhost.nn.fused"
local ordered = require "accelhost.nn.items"
local module = require "accelhost.nn.module"
local parameter = require "accelhost.nn.parameter"

local fail, describe = arguments.fail, arguments.describe
local Module, is_module = module.Module, module.is_module
local check_array, fill, settle = ordered.check_array, ordered.fill, ordered.settle
local container = {}

-- Lists of modules.

local List = ordered.Items:extend "List"
List._accepts, List._wanted, List._item_kind = is_module, "a module", "module"

function List:_children()
  local names, modules = ordered.all_names(self), {}
  for i = 1, #self do modules[i] = self[i] end
  return names, modules
end

--- Runs its items one after the other.
--
--   nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
--   nn.Sequential{{"fc", nn.Linear(784, 10)}, {"act", nn.ReLU()}}      -- named
--
-- seq[1] is the first item; its weight has the state_dict key "0.weight" (or "fc.weight"). An item that is assigned to
-- a name (seq.act = nn.ReLU()) or registered by add_module runs after those before it.
---@param ... Module the items, or one table of them, or of {name, item}
local Sequential = List:extend "Sequential"
Sequential._keeps_names = true
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
  if count ~= #self._seen then count = settle(self) end
  while i <= count do
    local made, together = fused.run(self, i, input)
    if together == 0 then
      local item = rawget(self, i)
      if item ~= nil then
        made, together = item(input), 1
      else
        made, count = input, settle(self) -- a hole is closed: the next item is here now
      end
    end
    input, i = made, i + together
  end
  return input
end

--- A list of modules, registered in order; the loop over it is yours.
--
--   local layers = nn.ModuleList{nn.Linear(4, 8), nn.Linear(8, 8)}
--   for _, layer in ipairs(layers) do x = layer(x) end
--
-- An item that is assigned to a name or registered by add_module is an item of the list too.
---@param modules? Module[] none without
local ModuleList = List:extend "ModuleList"
container.ModuleList = ModuleList

function ModuleList:init(modules, ...)
  if select("#", ...) > 0 then
    fail("ModuleList: expected one table of modules, got %d arguments: write ModuleList{a, b}", select("#", ...) + 1)
  end
  if modules ~= nil and (type(modules) ~= "table" or getmetatable(modules) ~= nil and not is_module(modules)) then
    fail("ModuleList: expected a table of modules, got %s", describe(modules))
  end
  fill(self, modules or {})
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
    names = arguments.sorted_keys(items)
    for i, name in ipairs(names) do values[i] = items[name] end
  end
  return names, values
end

--- Base class of ModuleDict and ParameterDict. A subclass defines the module's list that holds its items (_list), the
-- test for an item (_accepts) and the item's name in messages (_wanted).
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
---@param default? any
---@return any
function Dict:get(key, default)
  if self._kind[key] == nil then return default end
  return self._fields[key]
end

--- Remove an item and return it.
---@return any
function Dict:pop(key)
  local value = self._fields[key]
  if self._kind[key] == nil then fail("pop: %s has no '%s'", self._name, tostring(key)) end
  self[key] = nil
  return value
end

--- Remove all items.
function Dict:clear()
  for _, key in ipairs(self:keys()) do self[key] = nil end
end

--- Is there an item of this name?
function Dict:contains(key)
  return self._kind[key] ~= nil
end

--- The number of entries (`#dict` counts none, since they have names).
---@return integer
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
---@param parameters? Tensor[] none without
local ParameterList = ordered.Items:extend "ParameterList"
ParameterList._accepts, ParameterList._wanted = parameter.is_parameter, "an nn.Parameter"
ParameterList._item_kind = "parameter"
container.ParameterList = ParameterList

function ParameterList:init(parameters)
  if parameters ~= nil then arguments.check("ParameterList", "items", "table", parameters) end
  fill(self, parameters or {})
end

-- Register the items as this module's own parameters, under their names.
function ParameterList:_sync()
  for _, name in ipairs(self._parameters) do self._fields[name], self._kind[name] = nil, nil end
  local names = ordered.all_names(self)
  for i, name in ipairs(names) do self._fields[name], self._kind[name] = self[i], "parameter" end
  rawset(self, "_parameters", names)
end

-- Index the items first: the copies that `_sync` stored in `_fields` may be older.
function ParameterList._make_index(made)
  local index = Module._make_index(made)
  return function(self, key)
    if self._kind[key] == "parameter" then return self:_item(key) end
    return index(self, key)
  end
end
ParameterList.__index = ParameterList._make_index(ParameterList)

function ParameterList:forward() -- luacheck: ignore
  fail("a ParameterList cannot be called: loop over it with ipairs")
end

return container
