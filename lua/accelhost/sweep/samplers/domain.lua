--- A space as samplers see it: its parameters, parents before their dependents, and each as a map from [0, 1] to its
--- values and back.
--
-- A space is a list of parameters {name, kind = "float" | "int" | "categorical", low, high, log, step, choices,
-- when = {name, values}}. The values of a parameter with a step are low, low + step, ... up to high, and each has the
-- same part of [0, 1]; on a logarithmic scale value v has the part from v - step / 2 to v + step / 2.
---@param parameter table
local domain = {}

local exp, floor, log, max, min = math.exp, math.floor, math.log, math.max, math.min

local function equal(a, b)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  for key, value in pairs(a) do
    if not equal(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

local function position_of(value, list)
  for i, item in ipairs(list) do
    if equal(item, value) then return i end
  end
  return nil
end

-- Set the ends of the scale: beyond the outermost values by half a step.
local function set_scale(parameter)
  local half = (parameter.step or 0) / 2
  local low, high = parameter.low - half, parameter.high + half
  if parameter.log then low, high = log(low > 0 and low or parameter.low / 2), log(high) end
  parameter.from, parameter.to = low, high
end

local function read_parameter(given)
  local parameter = {name = given.name, kind = given.kind, when = given.when, log = given.log or false}
  if given.kind == "categorical" then
    parameter.choices, parameter.count = given.choices, #given.choices
    return parameter
  end
  parameter.low, parameter.high = given.low, given.high
  parameter.step = given.step or given.kind == "int" and 1 or nil
  if parameter.step then
    parameter.count = floor((given.high - given.low) / parameter.step + 1e-8) + 1
    parameter.high = domain.value_at(parameter, parameter.count - 1)
  elseif given.low == given.high then
    parameter.count = 1
  end
  set_scale(parameter)
  return parameter
end

-- Return the condition of a parameter as a text: parameters with the same text exist in the same trials.
local function condition_of(parameter, by_name)
  local when = parameter.when
  if not when then return "" end
  local values, parent = {}, by_name[when.name]
  for i, value in ipairs(when.values) do
    values[i] = parent.choices and position_of(value, parent.choices) or tostring(value)
  end
  table.sort(values, function(a, b) return tostring(a) < tostring(b) end)
  return ("%s %s=%s"):format(condition_of(parent, by_name), when.name, table.concat(values, ","))
end

--- Prepare a space.
---@param space table[] parameters, in the order of their names
---@return table # {parameters, parents first; by_name; groups: lists of parameters with the same condition}
function domain.read(space)
  local by_name, read = {}, {parameters = {}, groups = {}}
  for _, given in ipairs(space) do by_name[given.name] = read_parameter(given) end
  local placed, group_of = {}, {}
  local function place(parameter)
    if placed[parameter] then return end
    placed[parameter] = true
    if parameter.when then place(by_name[parameter.when.name]) end
    read.parameters[#read.parameters + 1] = parameter
    local condition = condition_of(parameter, by_name)
    if not group_of[condition] then
      group_of[condition] = {}
      read.groups[#read.groups + 1] = group_of[condition]
    end
    table.insert(group_of[condition], parameter)
  end
  for _, given in ipairs(space) do place(by_name[given.name]) end
  read.by_name = by_name
  return read
end

--- Is a parameter there when its parents have these values?
---@param params table<string, any>
function domain.is_active(parameter, params)
  local when = parameter.when
  if not when then return true end
  local value = params[when.name]
  return value ~= nil and position_of(value, when.values) ~= nil
end

--- Return a value of a parameter with a count, by its index.
---@param index integer from 0
function domain.value_at(parameter, index)
  if parameter.choices then return parameter.choices[index + 1] end
  if not parameter.step then return parameter.low end
  local value = parameter.low + index * parameter.step
  -- 0.1 + 2 * 0.1 is a digit too long.
  return parameter.kind == "int" and value or tonumber(("%.12g"):format(value))
end

--- Return the index of a value: its place among choices or steps from 0, clamped; nil for an unknown choice.
---@param parameter table one with a count
---@return integer?
function domain.index_of(parameter, value)
  if parameter.choices then
    local place = position_of(value, parameter.choices)
    return place and place - 1
  end
  if type(value) ~= "number" then return nil end
  if not parameter.step then return 0 end
  return max(0, min(parameter.count - 1, floor((value - parameter.low) / parameter.step + 0.5)))
end

--- The value at a position of a number's scale.
---@param place number from parameter.from to parameter.to
---@return number
function domain.at_place(parameter, place)
  local value = parameter.log and exp(place) or place
  if parameter.step then return domain.value_at(parameter, domain.index_of(parameter, value)) end
  return max(parameter.low, min(parameter.high, value))
end

--- The position of a number on its scale; nil for other values.
---@return number?
function domain.place_of(parameter, value)
  if type(value) ~= "number" or value ~= value then return nil end
  value = max(parameter.low, min(parameter.high, value))
  return parameter.log and log(value) or value
end

--- The value at u.
---@param u number from 0 to 1
function domain.from_unit(parameter, u)
  if parameter.count and not parameter.log then
    return domain.value_at(parameter, min(parameter.count - 1, floor(u * parameter.count)))
  end
  return domain.at_place(parameter, parameter.from + u * (parameter.to - parameter.from))
end

--- Values for all parameters that are there, each from its own u.
---@param read table from domain.read
---@param draw fun(index: integer): number u of the parameter with this place
---@return table<string, any>
function domain.fill(read, draw)
  local params = {}
  for i, parameter in ipairs(read.parameters) do
    if domain.is_active(parameter, params) then params[parameter.name] = domain.from_unit(parameter, draw(i)) end
  end
  return params
end

return domain
