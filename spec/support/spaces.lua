-- Spaces for specs of samplers, and conditions that every suggestion has to meet.
local domain = require "accelhost.sweep.samplers.domain"

local spaces = {}

local function float(name, low, high, more)
  local parameter = {name = name, kind = "float", low = low, high = high, log = false}
  for key, value in pairs(more or {}) do parameter[key] = value end
  return parameter
end

local function int(name, low, high, more)
  local parameter = float(name, low, high, more)
  parameter.kind = "int"
  return parameter
end

local function categorical(name, choices, when)
  return {name = name, kind = "categorical", choices = choices, when = when}
end

spaces.float, spaces.int, spaces.categorical = float, int, categorical

--- One of everything, with parameters that depend on others.
spaces.mixed = {
  categorical("activation", {"relu", "tanh", true, 3}),
  categorical("optimizer", {"sgd", "adam"}),
  float("optimizer.beta", 0.8, 0.999, {when = {name = "optimizer", values = {"adam"}}}),
  float("optimizer.momentum", 0, 0.9, {when = {name = "optimizer", values = {"sgd"}}}),
  categorical("optimizer.nesterov", {true, false}, {name = "optimizer", values = {"sgd"}}),
  float("optimizer.warm", 1, 2, {when = {name = "optimizer.nesterov", values = {true}}}),
  float("dropout", 0, 0.5, {step = 0.1}),
  int("layers", 1, 4),
  float("lr", 1e-5, 1e-1, {log = true}),
  float("one", 3, 3),
  float("scale", 0.5, 8, {step = 0.5, log = true}),
  int("width", 16, 128, {step = 16}),
  int("words", 1, 1000, {log = true}),
}
table.sort(spaces.mixed, function(a, b) return a.name < b.name end)

--- Numbers only, none of them dependent.
spaces.numbers = {float("x", -5, 5), float("y", 1e-4, 1, {log = true}), int("z", 0, 20)}

-- Return the error of a value, nil when it is right.
local function wrong_value(parameter, value)
  if parameter.kind == "categorical" then
    for _, choice in ipairs(parameter.choices) do
      if choice == value then return nil end
    end
    return "is no choice"
  end
  if type(value) ~= "number" or value < parameter.low or value > parameter.high then return "is out of range" end
  if parameter.kind == "int" and value % 1 ~= 0 then return "is no integer" end
  local step = parameter.step
  if step and math.abs((value - parameter.low) / step - math.floor((value - parameter.low) / step + 0.5)) > 1e-6 then
    return "is between steps"
  end
  return nil
end

--- Return the error of a suggestion for a space, nil when it is right.
---@param space table[]
---@param params table<string, any>
---@return string?
function spaces.problem(space, params)
  local left = {}
  for name in pairs(params) do left[name] = true end
  for _, parameter in ipairs(space) do
    local value = params[parameter.name]
    if domain.is_active(parameter, params) ~= (value ~= nil) then return parameter.name .. " is there or not" end
    local wrong = value ~= nil and wrong_value(parameter, value)
    if wrong then return ("%s = %s %s"):format(parameter.name, tostring(value), wrong) end
    left[parameter.name] = nil
  end
  local name = next(left)
  return name and name .. " is unknown" or nil
end

--- Any smooth loss of parameters.
---@param params table<string, any>
---@return number
function spaces.loss(params)
  local sum = 0
  for _, name in ipairs {"x", "y", "z", "lr", "dropout", "layers", "width"} do
    local value = params[name]
    if value then sum = sum + math.sin(value * 3) + 0.1 * value % 7 end
  end
  return sum + (params.optimizer == "sgd" and 0.5 or 0)
end

return spaces
