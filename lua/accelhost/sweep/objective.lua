--- The process of a trial whose objective is a function of the sweep's file.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local file = require "accelhost.sweep.file"
local params = require "accelhost.util.params"
local report = require "accelhost.track.trial"
local Space = require "accelhost.sweep.space"

local objective = {}

---@field number integer from 0
---@field params table<string, any> the values to try: nested as the space is, constants too
---@field directory string the trial's own folder
---@field seed integer of this run: the study's number, and another one for each replicate
local Trial = class.new "Trial"

-- A table of parameters that knows which of its names were read; others are an error, conditional ones may be nil.
local function watch(values, known, unread, prefix)
  local shown = {}
  for key, value in pairs(values) do
    local nested = type(value) == "table" and #value == 0 and next(value) ~= nil
    shown[key] = nested and watch(value, known, unread, prefix .. key .. ".") or value
    if not nested then unread[prefix .. key] = true end
  end
  return setmetatable({}, {
    __index = function(_, key)
      local name = prefix .. tostring(key)
      unread[name] = nil
      local value = shown[key]
      if value == nil and not known[name] then
        arguments.fail("trial.params has no '%s'%s", name, arguments.did_you_mean(name, arguments.sorted_keys(known)))
      end
      return value
    end,
    __newindex = function(_, key)
      arguments.fail("trial.params: '%s' is the sweep's to choose", prefix .. tostring(key))
    end,
    __pairs = function()
      for key in next, shown do unread[prefix .. key] = nil end
      return next, shown
    end,
  })
end

-- Names that a trial may lack: they depend on others.
local function known_names(space)
  local known = {}
  for _, row in ipairs(space.parameters) do
    known[row.name] = true
    for at in row.name:gmatch "()%." do known[row.name:sub(1, at - 1)] = true end
  end
  for name in pairs(space.constants) do known[name] = true end
  return known
end

--- Make the trial with which an objective is called.
---@param facts table {number, seed, directory}
---@param values table nested
---@param space Space
---@return Trial
---@return table unread names of parameters that were not read yet
function objective.trial(facts, values, space)
  local self, unread = Trial(), {}
  for _, name in ipairs {"number", "seed", "directory", "attempt", "replicate"} do self[name] = facts[name] end
  self.params = watch(values, known_names(space), unread, "")
  return self, unread
end

--- Report the trial's metrics to the sweep: accelhost.report.
---@param metrics table<string, any>|number a number: the study's metric
---@param options? table
---@return string
function Trial:report(step, metrics, options)
  if type(metrics) ~= "table" then metrics = {[self._metric] = metrics} end
  self._answer = self._report(step, metrics, options)
  return self._answer
end

--- Report whether the sweep wants the trial to end. A report ends it by itself, unless it has {stay = true}.
---@return boolean
function Trial:should_prune() return self._answer ~= nil and self._answer ~= "continue" end

-- The numbers that an objective with several metrics returned: a table by their names, or in their order.
local function values_of(value, metrics)
  local found = {}
  for i, name in ipairs(metrics) do
    local item = type(value) == "table" and getmetatable(value) == nil and (value[name] or value[i])
    if C.is_tensor(item) and item:numel() == 1 then item = item:item() end
    if type(item) ~= "number" then
      return nil, ("the objective returned %s; expected a table with the numbers %s"):format(
        arguments.describe(value), table.concat(metrics, ", "))
    end
    found[i] = item
  end
  return found
end

--- The number that an objective returned: a number, a tensor of one element, or a table with the metric. With several
--- metrics, a list of numbers.
---@param metric string
---@param metrics? string[]
---@return number|number[]|nil value
---@return string? reason why it is none
function objective.value_of(value, metric, metrics)
  if metrics then return values_of(value, metrics) end
  if type(value) == "table" and getmetatable(value) == nil then value = value[metric] end
  if C.is_tensor(value) and value:numel() == 1 then value = value:item() end
  if type(value) == "number" then return value end
  return nil, ("the objective returned %s; expected a number, the %s"):format(arguments.describe(value), metric)
end

local function encode_number(value)
  if type(value) == "table" then
    local list = {}
    for i, item in ipairs(value) do list[i] = encode_number(item) end
    return {list = list}
  end
  if value - value == 0 then return value end
  return {number = value ~= value and "nan" or value > 0 and "inf" or "-inf"}
end

--- Be the trial that the environment describes.
---@param path string the sweep's file
function objective.run(path)
  local facts, definition = params.trial(), file.load(path, function() end)
  local trial, unread = objective.trial(facts, params.read(os.getenv "ACCELHOST_PARAMS"),
    Space(definition.space or definition.parameters))
  trial._report, trial._metric = report.report, facts.metric
  params.mark_read()
  C.random.manual_seed(facts.seed)
  local count = #arguments.sorted_keys(unread)
  local value, reason = objective.value_of(definition.objective(trial), facts.metric, definition.metrics)
  if value and count > 0 and #arguments.sorted_keys(unread) == count then
    reason = "the objective never reads trial.params, which hold the sweep's values"
  end
  if reason then return params.send {kind = "refuse", text = reason} end
  return params.send {kind = "result", value = encode_number(value), unread = arguments.sorted_keys(unread)}
end

return objective
