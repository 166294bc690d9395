--- Rebuild values from the data of pack.lua. The data is from a process of this same program by a private way: the code
--- in it is run.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local names = require "accelhost.launcher.names"
local parameter = require "accelhost.nn.parameter"

local function value_of(self, slot)
  if type(slot) ~= "table" then return slot end
  return self.made[slot[1]]
end

local function tensor_of(self, entry)
  local values, view = self.data.values[entry[2]], entry[7]
  if type(values) == "table" then values = C.empty(values[2], {dtype = values[1], device = "meta"}) end
  if view then values = values:as_strided(view[1], view[2], view[3]) end
  if entry[5] ~= "cpu" and entry[5] ~= "meta" then values = values:to(entry[5]) end
  if entry[4] then return parameter.new(values, entry[3]) end
  -- Each tensor is a new object, and one whose memory was not shared may be requested twice.
  if entry[3] then values.requires_grad = true end
  return values
end

local build

local makers = {
  name = function(_, entry) return names.find(entry[2]) end,
  given = function(self, entry) return self.given[entry[2]] end,
  table = function() return {} end,
  environment = function() return setmetatable({}, {__index = _G}) end,
  ["function"] = function(_, entry) return assert(loadstring(entry[2])) end,
  class = function(self, entry) return class.new(entry[2], build(self, entry[3])) end,
  sized = function(self, entry) return build(self, entry[2]):_blank() end,
  tensor = tensor_of,
  generator = function(_, entry) return C.random.Generator(0, entry[3]) end,
  ["default generator"] = function() return C.random.default() end,
}

-- The value of a slot, made now if it is not yet: a class needs its parent.
function build(self, slot)
  if type(slot) ~= "table" or not slot[1] then return nil end
  local number = slot[1]
  if self.made[number] == nil then
    local entry = self.data.entries[number]
    self.made[number] = makers[entry[1]](self, entry)
  end
  return self.made[number]
end

local function fill_fields(self, target, entry)
  for at = 3, #entry, 2 do rawset(target, value_of(self, entry[at]), value_of(self, entry[at + 1])) end
end

local fillers = {
  table = function(self, made, entry)
    fill_fields(self, made, entry)
    debug.setmetatable(made, value_of(self, entry[2]))
  end,
  environment = function(self, made, entry)
    for name, item in pairs(entry[2]) do made[name] = value_of(self, item) end
  end,
  class = function(self, made, entry)
    for at = 4, #entry, 2 do rawset(made, value_of(self, entry[at]), value_of(self, entry[at + 1])) end
  end,
  sized = function(self, made, entry) fill_fields(self, debug.getmetatable(made).__index, entry) end,
  ["function"] = function(self, made, entry)
    for at, cell in ipairs(entry[3]) do
      local home = self.homes[cell]
      if home then
        debug.upvaluejoin(made, at, home[1], home[2])
      else
        self.homes[cell] = {made, at}
        debug.setupvalue(made, at, value_of(self, self.data.variables[cell]))
      end
    end
    local environment = value_of(self, entry[4])
    if environment then setfenv(made, environment) end
  end,
  tensor = function(self, made, entry)
    local gradient = value_of(self, entry[6])
    if gradient then made.grad = gradient end
  end,
  generator = function(self, made, entry) made:set_state(value_of(self, entry[2])) end,
}

--- The list of values.
---@param data table from pack.values
---@param given? table<integer, table> classes that were sent to the data's sender, by their numbers
---@return table<integer, any> values
---@return integer count
---@return table<table, integer> classes, and the numbers under which they arrived
return function(data, given)
  local self = {data = data, given = given or {}, made = {}, homes = {}}
  for number in ipairs(data.entries) do build(self, {number}) end
  for number, entry in ipairs(data.entries) do
    local fill = fillers[entry[1]]
    if fill then fill(self, self.made[number], entry) end
  end
  for name, slot in pairs(data.globals) do rawset(_G, name, value_of(self, slot)) end
  local values = {}
  for i, slot in ipairs(data.slots) do values[i] = value_of(self, slot) end
  local classes = {}
  for number, entry in ipairs(data.entries) do
    if entry[1] == "class" then classes[self.made[number]] = number end
  end
  return values, #data.slots, classes
end
