--- The source of a report's study: a sweep in this process, or a study's file that another process may be writing.
--
-- The process that runs a sweep calls `keep` once, so that its file has all that a report needs without the
-- definition; `of` returns the source of the live table, whose trials are the sweep's own.
local Store = require "accelhost.sweep.store"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.sweep.constraints"
local json = require "accelhost.util.json"
local reports = require "accelhost.sweep.reports"
local spans = require "accelhost.sweep.spans"

local source = {}

-- A sampler or pruner as a person calls it.
local function named(value)
  if type(value) == "string" or value == nil then return value end
  if type(value) ~= "table" then return tostring(value) end
  return value._name or tostring(value[1] or value.name)
end

local function summary_of(definition, given)
  local space = definition.space
  return {
    name = given.name or definition.name, metric = definition.metric, direction = definition.direction,
    metrics = definition.metrics, directions = definition.directions,
    sampler = named(definition.sampler), pruner = named(definition.pruner), seed = definition.seed,
    command = given.command, total = given.total or definition.trials, parallel = given.parallel,
    space = json.array(space.parameters), constraints = json.array(definition.constraints),
    constants = next(space.constants) and space.constants or nil,
    reals = next(space.real) and space.real or nil,
  }
end

--- Store the properties of the definition that a report reads, each by its name.
---@param given {name: string, command?: string, total?: integer, parallel?: integer}
function source.store(store, definition, given)
  store:transaction(function()
    for name, value in pairs(summary_of(definition, given)) do store:put(name, value) end
  end)
end

-- The parameters a script receives, by dotted names: constants too, and tables in place of their labels.
local function settings_of(facts)
  return function(params)
    local settings = {}
    for name, value in pairs(facts.constants or {}) do settings[name] = value end
    for _, parameter in ipairs(facts.space) do
      local value, reals = params[parameter.name], (facts.reals or {})[parameter.name]
      for i, label in ipairs(reals and parameter.choices or {}) do
        if label == value then value = reals[i] end
      end
      settings[parameter.name] = value
    end
    return settings
  end
end

local function finish(facts, trials, directory)
  facts.trials, facts.directory, facts.settings = trials, directory, settings_of(facts)
  if facts.constraints and not facts.constraints[1] then facts.constraints = nil end
  for _, trial in ipairs(trials) do
    trial.directory = trial.directory or ("trials/%04d"):format(trial.number)
  end
  return facts
end

--- Return the table of a sweep that runs here, for the live table and the report.
---@param study Study its trials are not copied: later ones are included
---@param given {name: string, directory: string, command?: string, total?: integer, parallel?: integer}
---@return table # see accelhost.sweep.report
function source.of(study, given)
  return finish(summary_of(study.definition, given), study.trials, given.directory)
end

-- Set the constraint that each trial breaks.
local function mark_infeasible(facts)
  if not facts.constraints then return end
  local names = arguments.sorted_keys(facts.constants or {})
  for _, parameter in ipairs(facts.space) do names[#names + 1] = parameter.name end
  local rows = constraints.read(facts.constraints, names)
  for _, trial in ipairs(facts.trials) do
    trial.violation = constraints.violation(rows, facts.settings(trial.params))
  end
end

local function read_events(store, trials)
  local by_number, ended = {}, {}
  for _, trial in ipairs(trials) do by_number[trial.number] = trial end
  for _, event in ipairs(store:events()) do
    -- Trials added between the two reads are not reported.
    local trial = by_number[event.trial]
    if trial and event.kind == "report" then
      reports.add(trial, event.step, event.value or 0 / 0)
    elseif trial and event.kind == "values" then
      trial.values = json.decode(event.detail)
    elseif trial then
      if event.kind == "retry" and ended[trial] then reports.reopen(trial) end
      ended[trial] = event.kind == "end"
      spans.apply(trial, event)
    end
  end
end

--- Read a study's folder, or its file.
---@return table # see accelhost.sweep.report
function source.read(path)
  local directory = path:match "^(.+)/study%.db$" or path == "study.db" and "." or path:gsub("(.)/+$", "%1")
  local store = Store(directory .. "/study.db", "read")
  local fine, found = pcall(function()
    local facts = {}
    for _, name in ipairs {
      "name", "metric", "direction", "metrics", "directions", "sampler", "pruner", "seed", "command", "total",
      "parallel", "space", "constants", "reals", "constraints",
    } do
      facts[name] = store:get(name)
    end
    if not facts.space or not facts.metric then error(("'%s' has not begun yet"):format(directory), 0) end
    facts.name = facts.name or directory:match "[^/]+$"
    local trials = store:trials()
    read_events(store, trials)
    finish(facts, trials, directory)
    mark_infeasible(facts)
    return facts
  end)
  store:close()
  if not fine then error(found, 0) end
  return found
end

--- Return a text that is another one after each event of a study.
function source.version(directory)
  local store = Store(directory .. "/study.db", "read")
  local fine, count = pcall(store.count, store)
  store:close()
  if not fine then error(count, 0) end
  return ("%d"):format(count)
end

return source
