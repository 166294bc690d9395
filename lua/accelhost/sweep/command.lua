--- The command `accelhost sweep`.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local LogFile = require "accelhost.track.log_file"
local Store = require "accelhost.sweep.store"
local arguments = require "accelhost.util.arguments"
local file = require "accelhost.sweep.file"
local lock = require "accelhost.sweep.lock"
local params = require "accelhost.util.params"
local printable = require "accelhost.util.printable"
local screen = require "accelhost.util.screen"
local show = require "accelhost.sweep.report.show"
local source = require "accelhost.sweep.report.source"
local summary = require "accelhost.sweep.report.summary"

local command = {}

local fail = arguments.raise

local function note(text) io.stderr:write("accelhost sweep: ", printable.message(text), "\n") end

local function absolute(path) return path:sub(1, 1) == "/" and path or C.system.working_folder() .. "/" .. path end

-- Return the number of configurations to try; nil: all of a grid.
local function limit_of(definition)
  local sampler = definition.sampler
  local name = type(sampler) == "table" and (sampler[1] or sampler.name) or sampler
  if not definition.trials and name ~= "grid" then
    fail "the number of trials is not set: pass -n N or set 'trials' in the file (a grid search ends by itself)"
  end
  return definition.trials
end

-- A study continues with the definition that it began with; ranges may grow.
local function check_same(store, definition, directory)
  local old, new = store:get "facts", definition:facts()
  local difference, extensions = nil, {}
  if old then difference, extensions = Definition.difference(old, new) end
  if #store:trials() > 0 then
    if difference then
      fail("'%s' was begun with another definition: %s. Use another --study; 'enqueue' in the file starts it with "
        .. "known parameters (accelhost sweep best %s)", directory, difference, directory)
    end
    for _, text in ipairs(extensions) do note(text) end
  end
  store:put("facts", new)
end

local function silent() end

-- The observer of the runner's events, for a terminal or in lines.
local function make_observer(study, given, quiet)
  if quiet then return {event = silent, update = silent, finish = silent} end
  local terminal = screen.is_redrawn(1)
  return require "accelhost.sweep.report.live".new {
    study = source.of(study, given), stream = io.stdout, is_terminal = terminal,
    columns = function() return select(2, C.comm.is_terminal(1)) end,
    rows = function() return select(2, C.terminal.size()) end,
  }
end

-- The parameters of the Pareto front, a file for each trial; earlier ones are removed.
local function write_front(directory, trials, settings)
  local folder = directory .. "/front"
  LogFile.folder("accelhost sweep", folder)
  for _, name in ipairs(C.data.list_folder(folder)) do
    if name:find "^%d+%.yaml$" then os.remove(folder .. "/" .. name) end
  end
  for _, trial in ipairs(trials) do
    C.io.write_text(("%s/%04d.yaml"):format(folder, trial.number), params.yaml(settings(trial.params)))
  end
  return folder
end

-- The best parameters, as files and on stdout.
local function report_best(study, directory, quiet)
  if study.metrics then
    local front = study:front()
    if #front == 0 then return end
    local folder = write_front(directory, front, function(values) return study.space:expand(values) end)
    if not quiet then io.write(("%s/NUMBER.yaml, for accelhost launch --params\n"):format(folder)) end
    return
  end
  local best = study:best()
  if not best then return end
  local values = study.space:expand(best.leader.params)
  C.io.write_text(directory .. "/best.yaml", params.yaml(values))
  if not quiet then
    io.write(("%s/best.yaml, for accelhost launch --params:\n%s\n"):format(directory, params.lua(values)))
  end
end

local function conclude(study, runner, observer, directory, quiet, command_line)
  if study.refused then fail("%s", study.stopping) end
  observer:finish(study, C.system.time())
  report_best(study, directory, quiet)
  io.stdout:flush()
  if study.stopping then note(study.stopping) end
  if runner.interrupted and not study:is_over() then note("to continue: " .. command_line) end
  if runner.interrupted then return 130 end
  return (study:best() or study.metrics and study:front()[1]) and 0 or 1
end

-- The flags that a resumed sweep needs again, by the key that each sets.
local flags = {{"-j", "parallel"}, {"--num_processes", "num_processes"}, {"--launcher", "launcher"}, {"--seed", "seed"},
  {"--timeout", "timeout"}, {"--retries", "retries"}}

-- Return the command line, for the report; without the number of trials.
local function command_text(path, directory, overrides)
  local text = ("accelhost sweep %s --study %s"):format(path, directory)
  for _, flag in ipairs(flags) do
    local value = (overrides or {})[flag[2]]
    if value ~= nil then text = ("%s %s %s"):format(text, flag[1], tostring(value)) end
  end
  return text
end

--- Run the sweep of a file, or resume it.
---@param options {study?: string, quiet?: boolean, overrides: table<string, any>}
---@return integer # the exit code
function command.run(path, options)
  local definition = file.read(path, options.overrides, note)
  local limit = limit_of(definition)
  local name = path:match "([^/]+)%.[^./]+$" or path
  local directory = options.study or definition.study or name .. ".study"
  LogFile.folder("accelhost sweep", directory)
  local held = lock.acquire(directory)
  if not held then fail("another process runs the study '%s'", directory) end
  local store = Store(directory .. "/study.db", "create")
  check_same(store, definition, directory)
  local study = require "accelhost.sweep.study"(definition, store)
  study:set_limit(limit)
  local Runner = require "accelhost.sweep.runner"
  local given = {name = definition.name or name, directory = directory, total = limit,
    parallel = Runner.shares(definition), command = command_text(path, directory, options.overrides)}
  if not store:get "created" then store:put("created", C.system.time()) end
  source.store(store, definition, given)
  local observer = make_observer(study, given, options.quiet)
  local runner = Runner(study, {directory = absolute(directory), file = absolute(path)}, observer)
  runner:run()
  local trials = (options.overrides or {}).trials
  local code = conclude(study, runner, observer, directory, options.quiet,
    given.command .. (trials and (" -n %d"):format(trials) or ""))
  store:close()
  held:close()
  return code
end

--- Have the failed trials of a study run again, with the same parameters, when the sweep is started again.
---@return integer
function command.retry(directory)
  local path = directory:gsub("(.)/+$", "%1") .. "/study.db"
  Store(path, "read"):close() -- no folder for a lock is made where there is no study
  local held = lock.acquire(directory)
  if not held then fail("another process runs the study '%s'", directory) end
  local store, failed = Store(path, "write"), {}
  for _, trial in ipairs(store:trials()) do
    if trial.state == "failed" then failed[#failed + 1] = trial end
  end
  store:transaction(function()
    for _, trial in ipairs(failed) do
      store:event(trial, "retry", C.system.time(), {detail = trial.error})
      trial.state, trial.attempt, trial.value, trial.ended = "waiting", trial.attempt + 1, nil, nil
      store:update(trial)
    end
  end)
  io.write(#failed == 0 and ("no trial of '%s' has failed\n"):format(directory)
    or ("%s to run again; start with: %s\n"):format(show.count(#failed, "failed trial"), store:get "command" or "?"))
  store:close()
  held:close()
  return 0
end

--- Print the state of a study.
---@return integer
function command.status(directory)
  local study = source.read(directory)
  local terminal, width = C.comm.is_terminal(1)
  local taken = lock.is_taken(study.directory)
  if not taken then
    for _, trial in ipairs(study.trials) do
      if trial.state == "running" then trial.state = "waiting" end
    end
  end
  io.write(require "accelhost.sweep.report.text".brief(study, {now = C.system.time(),
    width = terminal and width > 0 and width or 80}))
  local again = printable.text(study.command or "?")
  local found = summary.count(study)
  io.write(taken and "a process runs it\n" or ("no process runs it%s\n"):format(summary.is_over(study, found)
    and ("; for more trials: %s -n %d"):format(again, 2 * summary.configurations(study))
    or "; to continue: " .. again))
  if not taken and found.counts.failed > 0 then
    io.write(("to run failed trials again: accelhost sweep retry %s\n"):format(directory))
  end
  return 0
end

--- The best parameters of a study: a Lua table on stdout.
---@return integer
function command.best(directory)
  local study = source.read(directory)
  local found = summary.of(study)
  local best = found.front and found.front[1] or found.best
  if not best then fail("no trial of '%s' has ended with a value yet", directory) end
  if found.front then
    local folder = write_front(study.directory, found.front, function(values)
      return params.nest(study.settings(values))
    end)
    for _, trial in ipairs(found.front) do
      io.write(("-- trial %d: %s\n%s\n"):format(trial.number, summary.values_text(study, trial),
        params.lua(params.nest(study.settings(trial.params)))))
    end
    io.stderr:write(("Pareto front: %s; as YAML: %s\n"):format(show.count(#found.front, "trial"),
      printable.text(folder)))
    return 0
  end
  local values = params.nest(study.settings(best.params))
  C.io.write_text(study.directory .. "/best.yaml", params.yaml(values))
  io.write(params.lua(values), "\n")
  io.stderr:write(("trial %d: %s %.6g; as YAML: %s/best.yaml\n"):format(best.number,
    printable.text(study.metric), best.value, printable.text(study.directory)))
  return 0
end

--- The report: text on stdout, and a page; or a page that follows the study.
---@param options {output?: string, serve?: integer}
---@return integer
function command.report(directory, options)
  if options.serve then
    require "accelhost.sweep.report.serve"((directory:gsub("(.)/+$", "%1")), options.serve)
  end
  return require "accelhost.sweep.report".main(source.read(directory), options)
end

--- Print studies of the same metrics next to each other.
---@param options {others: string[]} the folders of the others
---@return integer
function command.compare(directory, options)
  local studies = {source.read(directory)}
  for _, other in ipairs(options.others) do studies[#studies + 1] = source.read(other) end
  local terminal, width = C.comm.is_terminal(1)
  io.write(require "accelhost.sweep.report.compare".text(studies, {now = C.system.time(),
    width = terminal and width > 0 and width or nil}))
  return 0
end

--- The trials for other programs.
---@param options {output?: string, format?: string, reports: boolean}
---@return integer
function command.export(directory, options)
  return require "accelhost.sweep.report".export_main(source.read(directory), options)
end

local function given(text) return text ~= "" and text or nil end

local formats = {[0] = "csv", "json", "yaml", "lua"}

--- The command: `what` is "run", "status", "retry", "best", "report", "compare" or "export"; options are the command
--- line's, as texts; "" for none. The folders of further studies follow them.
---@param path string
---@return integer # the exit code
function command.main(what, path, study, quiet, output, reports, launcher, trials, parallel, processes, seed, timeout,
  retries, format, serve, ...)
  local fine, result = pcall(command[what], path, {
    study = given(study), quiet = quiet ~= "", output = given(output), reports = reports ~= "",
    format = formats[tonumber(format)], serve = tonumber(serve), others = {...},
    overrides = {
      trials = tonumber(trials), parallel = tonumber(parallel), num_processes = tonumber(processes),
      seed = tonumber(seed), timeout = tonumber(timeout), retries = tonumber(retries), launcher = given(launcher),
    },
  })
  if fine then return result end
  io.stdout:flush()
  note(tostring(result))
  return 2
end

return command
