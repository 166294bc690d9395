--- accelhost.sweep.run: a sweep of a function within a session, a script's or a notebook's.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local LogFile = require "accelhost.track.log_file"
local Runner = require "accelhost.sweep.runner"
local Store = require "accelhost.sweep.store"
local Study = require "accelhost.sweep.study"
local arguments = require "accelhost.util.arguments"
local display = require "accelhost.display"
local lock = require "accelhost.sweep.lock"
local protect = require "accelhost.util.protect"
local source = require "accelhost.sweep.report.source"

local session = {}

local fail = arguments.fail

-- An observer that draws the values of the ended trials, and the best until then, in a figure: in a notebook alone.
local function figure_observer(study)
  local metric = study.definition.metric
  local figure = require "accelhost.plot.figure"(nil, {title = metric, axis = "trial"})
  local count, shown = 0, false
  return {
    event = function(_, kind, trial)
      if kind ~= "complete" then return end
      count = count + 1
      local best = study:best()
      figure:log({[metric] = trial.value, best = best and best.mean or trial.value}, count)
      if not shown then figure:show() end
      shown = true
    end,
    update = function() end,
    finish = function() if shown then figure:show() end end,
  }
end

local function silent_observer()
  local function silent() end
  return {event = silent, update = silent, finish = silent}
end

-- Without a folder the study is in memory.
local function run(definition, directory, held)
  local store = Store(directory and directory .. "/study.db" or ":memory:", "create")
  return protect(function()
    store:close()
    if held then held:close() end
  end, function()
    local facts = store:get "facts"
    if facts and #store:trials() > 0 and Definition.difference(facts, definition:facts()) then
      fail("run: '%s' was begun with another definition; use another study", directory)
    end
    store:put("facts", definition:facts())
    if not store:get "created" then store:put("created", C.system.time()) end
    local study = Study(definition, store)
    study:set_limit(definition.trials)
    source.store(store, definition, {name = definition.name or "study", directory = directory or "",
      total = definition.trials, parallel = 1, command = ""})
    local observer = display.front_end and figure_observer(study) or silent_observer()
    local runner = Runner(study, {directory = directory or "", file = ""}, observer)
    runner:run()
    if study.refused then fail("run: %s", study.stopping) end
    observer:finish()
    if runner.interrupted then
      C.interrupt.heed()
      fail("run: interrupted%s", directory and "; the same call resumes the study" or "")
    end
    local best = study:best()
    if not best then fail "run: no trial has completed" end
    return study.space:expand(best.leader.params), best.mean
  end)
end

--- Search the parameters of a function in this process; the definition is that of a sweep's file. In a notebook the
--- values of the trials are drawn while it runs. With `study`, a folder, trials are recorded there, and the same call
--- resumes them.
--
--   | local best, loss = accelhost.sweep.run{
--   |   objective = function(trial) return (trial.params.x - 1) ^ 2 end,
--   |   space = {x = accelhost.sweep.uniform(-5, 5)}, metric = "loss", trials = 20,
--   | }
---@param definition table objective, space, trials, metric, direction, sampler, pruner, seed, study, ...
---@return table # the best parameters
---@return number # their value
function session.run(definition)
  arguments.check("run", "definition", "table", definition)
  local given = arguments.copy(definition)
  if type(given.objective) ~= "function" then
    fail "run: objective: expected a function; accelhost sweep runs scripts"
  end
  given.inline = true
  local fine, checked = pcall(Definition, given, "")
  if not fine then fail("run: %s", (tostring(checked):gsub("^[^\n]-:%d+: ", ""))) end
  if not checked.trials and given.sampler ~= "grid" then fail "run: trials: expected the number of trials" end
  local directory, held = checked.study, nil
  if directory then
    LogFile.folder("run", directory)
    held = lock.acquire(directory)
    if not held then fail("run: another process runs the study '%s'", directory) end
    if directory:sub(1, 1) ~= "/" then directory = C.system.working_folder() .. "/" .. directory end
  end
  return run(checked, directory, held)
end

return session
