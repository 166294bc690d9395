--- accelhost plot: the curves of runs, drawn in the terminal or into a file.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local curves = require "accelhost.track.curves"
local grid = require "accelhost.util.grid"
local layout = require "accelhost.plot.layout"
local printable = require "accelhost.util.printable"
local series = require "accelhost.plot.series"
local show = require "accelhost.plot.show"

local fail = arguments.raise

local function complain(text) io.stderr:write("accelhost plot: ", printable.text(text), "\n") end

local function read_runs(paths)
  local runs = {}
  for _, path in ipairs(paths) do
    local found, reason = curves.read(path)
    if not found then fail("'%s': %s", path, reason) end
    for _, run in ipairs(found) do
      runs[#runs + 1] = run
      for _, trouble in ipairs(run.troubles) do complain(trouble) end
    end
  end
  return runs
end

-- Names without the folders that all have in common.
local function shorten(runs)
  local common
  for _, run in ipairs(runs) do
    local folder = run.name:match "^(.*/)" or ""
    common = common or folder
    while run.name:sub(1, #common) ~= common do common = common:gsub("[^/]*/$", "") end
  end
  for _, run in ipairs(runs) do run.short = printable.text(run.name:sub(#common + 1)) end
end

local function number_text(value) return value and printable.number(value, 4) or "-" end

-- Least, greatest and last value of each curve.
local function summary_text(runs, panels)
  local several = #runs > 1
  local rows = {{"", "min", "at", "max", "at", "last", "points"}}
  for _, panel in ipairs(panels) do
    for _, curve in ipairs(panel.curves) do
      local found = curve.summary
      local name = several and ("%s  %s %s"):format(panel.key, layout.letter(curve.run), runs[curve.run].short)
        or panel.key
      rows[#rows + 1] = {name, number_text(found.min), number_text(found.min_step), number_text(found.max),
        number_text(found.max_step), number_text(found.last), ("%d"):format(found.count)}
    end
  end
  local right = {false, true, true, true, true, true, true}
  return table.concat(grid.lines(rows, {right = right}), "\n") .. "\n"
end

local function plot(options, paths)
  local runs = read_runs(paths)
  shorten(runs)
  local panels = {}
  for i, key in ipairs(series.keys(runs, options.keys, options.axis)) do
    panels[i] = {key = printable.text(key), curves = series.of(runs, key, options),
      axis = options.axis, log = options.log}
  end
  if not panels[1] then fail("there is nothing to draw: no run has a point") end
  if options.output == "" then
    local width = options.width > 0 and options.width or show.terminal_width()
    local height = options.height > 0 and options.height or 17
    io.write(show.text(runs, panels, width, height, show.is_colored()), "\n")
  else
    local width, height = options.width > 0 and options.width or 960, options.height > 0 and options.height or 300
    C.io.write_text(options.output, show.picture(show.kind_of(options.output), runs, panels, width, height))
  end
  io.write(summary_text(runs, panels))
end

local axes = {[0] = "step", "time", "epoch"}

--- Draw. The words are those of host/cli/command/plot.c.
---@param output string "" for the terminal
---@param keys string
---@param smooth string
---@param axis string its number
---@param width string 0 for the default
---@param height string
---@param log string "log" or ""
---@param ... string the runs
---@return integer # the exit code
return function(output, keys, smooth, axis, width, height, log, ...)
  local options = {
    output = output, keys = keys, smooth = tonumber(smooth), axis = axes[tonumber(axis)], width = tonumber(width),
    height = tonumber(height), log = log == "log",
  }
  local fine, text = pcall(plot, options, {...})
  io.stdout:flush()
  if not fine then complain((tostring(text):gsub("^plot:%d+: ", ""))) end
  return fine and 0 or 1
end
