--- The reports of a sweep: a page, a text, a live table, and files for other programs.
--
-- All of it reads one table and writes none of it:
--
--   study = {
--     name = "mnist", direction = "minimize" or "maximize", metric = "loss",
--     space = the flat list of parameters, trials = {trial, ...} by number,
--     directory = "runs/mnist", sampler = "tpe", pruner = "asha", seed = 0, command = "accelhost sweep mnist.lua",
--     total = trials wanted, parallel = slots, settings = function(params) -> the script's settings for them,
--   }
--   trial = {
--     number = 0, state = "waiting" | "running" | "paused" | "pruned" | "complete" | "failed",
--     params = {[name] = value}, only active ones, value = the metric as it was reported,
--     reports = {{step, value}, ...}, started, ended = seconds since 1970, slot = from 0,
--     group = number of the configuration, which replicates have in common, replicate = from 0, attempt, bracket, rung,
--     spans = {{started, ended, state = with which it left}, ...} where it did not run in one go, error = text,
--     directory = "trials/0000" (from the study's), metrics,
--   }
--
-- Values are those of the script: `direction` defines which are better. Only name, direction, metric, space and trials
-- are needed; parts of other absent fields are left out. accelhost.sweep.report.source makes the table.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local importance = require "accelhost.sweep.importance"
local summary = require "accelhost.sweep.report.summary"

local report = {}

local fail = arguments.raise

-- The result of importance.lua for the trials; nil where there are too few.
local function importance_of(study)
  return study.importance or importance.of(study.space, study.trials, study.direction)
end

local function check(study)
  if study.direction ~= "minimize" and study.direction ~= "maximize" then
    fail("the study's direction is '%s', neither minimize nor maximize", tostring(study.direction))
  end
  return study
end

-- The study's folder relative to a file; "" when the file is in it.
local function base_of(study, path)
  local folder, directory = path:match "^(.*)/[^/]*$" or ".", study.directory
  if not directory or folder == directory then return "" end
  if folder == "." or directory:sub(1, 1) == "/" then return directory end
  return C.system.working_folder() .. "/" .. directory
end

--- The page of a study.
---@param options? {now?: number, base?: string}
---@return string
function report.html(study, options)
  options = options or {}
  return require "accelhost.sweep.report.html"(check(study), {
    now = options.now or C.system.time(), base = options.base, importance = importance_of(study),
  })
end

--- The report as text.
---@param options? {now?: number, width?: integer, colored?: boolean}
---@return string
function report.text(study, options)
  options = options or {}
  return require "accelhost.sweep.report.text".full(check(study), {
    now = options.now or C.system.time(), width = options.width or 80, colored = options.colored,
    importance = importance_of(study),
  })
end

--- A study in the format of another program.
---@param format "csv"|"json"|"yaml"|"lua" the last two: the best parameters
---@param options? {reports?: boolean} with csv: a row for each report
---@return string
function report.export(study, format, options)
  local export = require "accelhost.sweep.report.export"
  check(study)
  if format == "csv" then return options and options.reports and export.reports_csv(study) or export.csv(study) end
  if format == "json" then return export.json(study) end
  if format ~= "yaml" and format ~= "lua" then
    fail("there is no format '%s'; there are csv, json, yaml and lua", format)
  end
  local best = summary.of(study).best
  if not best then fail("no trial of '%s' has ended with a value yet", study.name) end
  return export[format](summary.settings(study, best))
end

local function terminal_width()
  local terminal, columns = C.comm.is_terminal(1)
  return terminal and columns > 0 and columns or 80, terminal
end

--- accelhost sweep report: the page into a file, by default report.html in the study's folder, and the text on stdout.
---@param options? {output?: string} "-": the text alone
---@return integer # the exit code
function report.main(study, options)
  local output = options and options.output or (study.directory or ".") .. "/report.html"
  local width, terminal = terminal_width()
  local colored = terminal and (os.getenv "NO_COLOR" or "") == "" and os.getenv "TERM" ~= "dumb"
  io.write(report.text(study, {width = math.max(20, width), colored = colored}))
  if output ~= "-" then
    C.io.write_text(output, report.html(study, {base = base_of(study, output)}))
    io.write("\nthe page: ", output, "\n")
  end
  io.stdout:flush()
  return 0
end

local formats = {csv = "csv", json = "json", yaml = "yaml", yml = "yaml", lua = "lua"}

--- accelhost sweep export: a file, or stdout.
---@param options? {format?: string, output?: string, reports?: boolean} format: by default that of the output's name,
---else csv
---@return integer # the exit code
function report.export_main(study, options)
  options = options or {}
  local named = options.output and options.output:match "%.(%l+)$"
  local format = options.format or formats[named or ""] or "csv"
  local bytes = report.export(study, format, {reports = options.reports})
  if options.output and options.output ~= "-" then
    C.io.write_text(options.output, bytes)
  else
    io.write(bytes)
    io.stdout:flush()
  end
  return 0
end

return report
