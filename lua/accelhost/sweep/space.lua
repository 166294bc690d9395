--- A search space: a definition's space, checked and flattened.
--
-- `space.parameters` is for samplers, a list sorted by name of
-- {name, kind, low, high, log, step, choices, when = {name, values}}; nested tables have dotted names ("optim.lr").
-- Constants are no part of it: expand() adds them to the parameters when a trial is made.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local constraints = require "accelhost.sweep.constraints"
local distributions = require "accelhost.sweep.distributions"
local json = require "accelhost.util.json"

local fail, describe = arguments.fail, arguments.describe
local kinds = require "accelhost.util.kinds"
local nest = require "accelhost.util.params".nest

---@field parameters table[]
---@field constants table<string, any>
local Space = class.new "Space"

local is_plain = kinds.is_plain

-- A table of names, whose items are parameters too; a list of values is a constant.
local function is_nested(value) return is_plain(value) and #value == 0 and next(value) ~= nil end

local function add_constant(self, name, value)
  local fine = pcall(json.encode, value)
  if not fine then fail("space: %s: expected a distribution or a constant, got %s", name, describe(value)) end
  self.constants[name] = value
end

local function add_parameter(self, name, given)
  local row = {name = name, kind = given.kind, low = given.low, high = given.high, log = given.log or false,
    step = given.step, condition = given.when}
  if given.choices then
    row.choices = distributions.labels(given.choices)
    if row.choices ~= given.choices then self.real[name] = given.choices end
  end
  self.parameters[#self.parameters + 1] = row
  self.by_name[name] = row
end

local function flatten(self, prefix, values)
  for _, key in ipairs(arguments.sorted_keys(values)) do
    if type(key) ~= "string" or key == "" or key:find "%." then
      fail("space: %sexpected names of parameters, got %s", prefix, describe(key))
    end
    local name, value = prefix .. key, values[key]
    if distributions.is(value) then
      add_parameter(self, name, value)
    elseif is_nested(value) then
      flatten(self, name .. ".", value)
    else
      add_constant(self, name, value)
    end
  end
end

local function place_of(list, value)
  for i, item in ipairs(list) do
    if item == value then return i end
  end
end

-- The labels of the values that a condition names.
local function values_of(self, row, parent, wanted)
  local list, real = {}, self.real[parent.name]
  if type(wanted) ~= "table" then wanted = {wanted} end
  for _, value in ipairs(wanted) do
    local label = real and type(value) == "table" and json.encode(value) or value
    if not place_of(parent.choices, label) then
      fail("space: %s: when: %s is never %s", row.name, parent.name, describe(value))
    end
    list[#list + 1] = label
  end
  if #list == 0 then fail("space: %s: when: expected a value of %s, got none", row.name, parent.name) end
  return list
end

local function resolve(self, row)
  local condition = row.condition
  row.condition = nil
  if condition == nil then return end
  if not is_plain(condition) or next(condition) == nil or next(condition, next(condition)) ~= nil then
    fail("space: %s: when: expected one {name = value}, got %s", row.name,
      is_plain(condition) and "a table of another size" or describe(condition))
  end
  local name, wanted = next(condition)
  local beside = (row.name:match "^(.*%.)[^.]*$" or "") .. tostring(name)
  local parent = self.by_name[beside] or self.by_name[name]
  if not parent then
    local known = {}
    for i, other in ipairs(self.parameters) do known[i] = other.name end
    fail("space: %s: when: there is no parameter '%s'%s", row.name, tostring(name),
      arguments.did_you_mean(tostring(name), known))
  end
  if parent.kind ~= "categorical" then
    fail("space: %s: when: '%s' is no choice, so no value of it can be named", row.name, parent.name)
  end
  row.when = {name = parent.name, values = values_of(self, row, parent, wanted)}
end

local function check_circles(self)
  for _, row in ipairs(self.parameters) do
    local at, steps = row, 0
    while at.when do
      at, steps = self.by_name[at.when.name], steps + 1
      if steps > #self.parameters then fail("space: %s: its conditions go in a circle", row.name) end
    end
  end
end

-- Conditional parameters follow the ones that they depend on.
local function order_by_conditions(self)
  local done, order = {}, {}
  local function visit(row)
    if done[row.name] then return end
    done[row.name] = true
    if row.when then visit(self.by_name[row.when.name]) end
    order[#order + 1] = row
  end
  for _, row in ipairs(self.parameters) do visit(row) end
  return order
end

-- The first value of a parameter.
local function first_of(row)
  if row.choices then return row.choices[1] end
  return row.low
end

-- Read constraints, and evaluate each once, so that one that compares a string with a number fails before any trial.
local function read_constraints(self, list)
  local known, first = {}, {}
  for _, row in ipairs(self.parameters) do known[#known + 1], first[row.name] = row.name, first_of(row) end
  for _, name in ipairs(arguments.sorted_keys(self.constants)) do known[#known + 1] = name end
  self.constraints = constraints.read(list, known)
  for _, row in ipairs(self.constraints) do constraints.holds(row, self:expand(first)) end
end

--- Check and flatten the space of a definition.
---@param values table<string, any> distributions, constants, and tables of them
---@param list? string[] constraints between parameters
function Space:init(values, list)
  if not is_plain(values) then fail("space: expected a table of parameters, got %s", describe(values)) end
  self.parameters, self.constants, self.by_name, self.real = {}, {}, {}, {}
  flatten(self, "", values)
  for _, row in ipairs(self.parameters) do resolve(self, row) end
  check_circles(self)
  self._order = order_by_conditions(self)
  read_constraints(self, list or {})
end

--- Is a parameter there, given the values of others?
---@param row table of space.parameters
---@param params table<string, any>
function Space:is_active(row, params)
  return not row.when or place_of(row.when.values, params[row.when.name]) ~= nil
end

-- The values that a script receives, constants too, by dotted name.
local function settings_of(self, params)
  local result = {}
  for name, value in pairs(self.constants) do result[name] = value end
  for _, row in ipairs(self.parameters) do
    local value, real = params[row.name], self.real[row.name]
    if value ~= nil then result[row.name] = real and real[place_of(row.choices, value)] or value end
  end
  return result
end

--- The values that a script gets: constants too, tables nested as the definition nests them.
---@param params table<string, any> by dotted name, as samplers return them
---@return table<string, any>
function Space:expand(params) return nest(settings_of(self, params)) end

--- Return the text of the first constraint that parameters break, nil when they satisfy all that apply to them.
---@param params table<string, any> by dotted name
---@return string?
function Space:violation(params)
  if not self.constraints[1] then return nil end
  return constraints.violation(self.constraints, settings_of(self, params))
end

-- Return the reason why a value is none of a parameter's, nil when it is one.
local function reason_against(row, value)
  if row.kind == "categorical" then
    if place_of(row.choices, value) then return end
    return ("%s is none of its choices"):format(describe(value))
  end
  if type(value) ~= "number" then return ("expected a number, got %s"):format(describe(value)) end
  if not (value >= row.low and value <= row.high) then
    return ("%.12g is outside %.12g to %.12g"):format(value, row.low, row.high)
  end
  if row.kind == "int" and value % 1 ~= 0 then return ("expected a whole number, got %.12g"):format(value) end
  if row.step and not row.log then
    local steps = (value - row.low) / row.step
    if math.abs(steps - math.floor(steps + 0.5)) > 1e-6 then
      return ("%.12g is no step of %.12g from %.12g"):format(value, row.step, row.low)
    end
  end
end

-- A nested table of values by dotted names.
local function by_dotted_names(self, result, prefix, values)
  for _, key in ipairs(arguments.sorted_keys(values)) do
    local name, value = prefix .. tostring(key), values[key]
    local row = self.by_name[name]
    if not row and is_nested(value) then
      by_dotted_names(self, result, name .. ".", value)
    else
      if row and self.real[name] and type(value) == "table" then value = json.encode(value) end
      result[name] = value
    end
  end
  return result
end

--- Check values from a user, nested or with dotted names; return a trial's parameters made of them.
---@param values table<string, any>
---@return table<string, any> params parameters only; those that were left out are left out
function Space:accept(what, values)
  local given, params, known = by_dotted_names(self, {}, "", values), {}, {}
  for _, row in ipairs(self.parameters) do known[#known + 1] = row.name end
  for _, name in ipairs(arguments.sorted_keys(given)) do
    local value, row = given[name], self.by_name[name]
    if row then
      local reason = reason_against(row, value)
      if reason then fail("%s: %s: %s", what, name, reason) end
      params[name] = value
    elseif self.constants[name] == nil then
      fail("%s: the space has no parameter '%s'%s", what, name, arguments.did_you_mean(name, known))
    elseif json.encode(self.constants[name]) ~= json.encode(value) then
      fail("%s: %s is the constant %s", what, name, json.encode(self.constants[name]))
    end
  end
  for _, row in ipairs(self.parameters) do
    if params[row.name] ~= nil and params[row.when and row.when.name or row.name] ~= nil
      and not self:is_active(row, params) then
      fail("%s: %s is there only when %s is %s", what, row.name, row.when.name,
        json.encode(row.when.values[1]))
    end
  end
  local broken = self:violation(params)
  if broken then fail("%s: the values break the constraint '%s'", what, broken) end
  return params
end

--- Merge the given values and the sampler's suggestions for the rest.
---@param given table<string, any>
---@param suggested table<string, any>
---@return table<string, any>
function Space:complete(given, suggested)
  local params = {}
  for _, row in ipairs(self._order) do
    if self:is_active(row, params) then
      local value = given[row.name]
      if value == nil then value = suggested[row.name] end
      if value == nil then value = first_of(row) end
      params[row.name] = value
    end
  end
  return params
end

--- One text for parameters: the same for the same ones.
---@param params table<string, any>
---@return string
function Space:key(params) return json.encode(params) end

-- Return the number of a parameter's values.
local function count_of(row)
  if row.kind == "categorical" then return #row.choices end
  if row.low == row.high then return 1 end
  if row.kind == "float" and not row.step then return math.huge end
  return math.floor((row.high - row.low) / (row.step or 1) + 1e-9) + 1
end

--- Return the largest number of different trials; infinite when a parameter is a real number.
function Space:size()
  local total = 1
  for _, row in ipairs(self.parameters) do total = total * count_of(row) end
  return total
end

--- The space as text: two spaces have the same when they are the same.
---@return string
function Space:signature()
  local texts = {}
  for i, row in ipairs(self.constraints) do texts[i] = row.text end
  return json.encode {parameters = self.parameters, constants = next(self.constants) and self.constants or nil,
    constraints = texts[1] and texts or nil}
end

return Space
