-- accelhost.plot: numbers of a script or prompt as curves.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local series = require "accelhost.plot.series"

local fail = arguments.fail

-- Return the numbers of a list or of a tensor with one dim.
local function numbers_of(values, what)
  if C.is_tensor(values) then
    if values:dim() ~= 1 then fail("plot: expected %s with 1 dim, got a tensor with %d", what, values:dim()) end
    return values:detach():to("float64"):tolist()
  end
  if type(values) ~= "table" then fail("plot: expected %s, got %s", what, arguments.describe(values)) end
  local list = {}
  for i, value in ipairs(values) do
    if C.is_tensor(value) and value:numel() == 1 then value = value:item() end
    if type(value) ~= "number" then
      fail("plot: expected numbers in %s, got %s at %d", what, arguments.describe(value), i)
    end
    list[i] = value
  end
  if not list[1] then fail("plot: expected numbers in %s, got none", what) end
  return list
end

-- Is it a curve alone, no table of curves or options?
local function is_curve(values)
  if type(values) ~= "table" then return C.is_tensor(values) end
  return type(values[1]) == "number" or C.is_tensor(values[1]) and values[1]:numel() == 1
end

-- Return {name, numbers} of each curve: one of a list of numbers, several of a table of lists.
local function curves_of(values)
  if is_curve(values) or next(values) == nil then return {{"", numbers_of(values, "the list or tensor")}} end
  local names, curves = {}, {}
  for name in pairs(values) do names[#names + 1] = name end
  table.sort(names, function(a, b)
    if type(a) ~= type(b) then return type(a) == "number" end
    return a < b
  end)
  for i, name in ipairs(names) do
    curves[i] = {tostring(name), numbers_of(values[name], ("curve '%s'"):format(tostring(name)))}
  end
  return curves
end

-- Return a run as accelhost.track.curves reads it.
local function run_of(name, values, xs)
  local steps = {}
  for i = 1, #values do steps[i] = xs and xs[i] or i end
  if xs and #xs ~= #values then
    fail("plot: expected as many numbers as x has, %d, got %d%s", #xs, #values,
      name == "" and "" or (" in curve '%s'"):format(name))
  end
  return {short = name, curves = {[""] = {step = steps, value = values}}}
end

local read = arguments.signature("plot", {
  "values: table|tensor", {"title: string", ""}, {"x: table|tensor"}, {"log: flag", false}, {"smooth: number", 0},
  {"width: size", 0}, {"height: size", 0}, {"output: string", ""},
})

local function draw(values, title, x, log, smooth, width, height, output)
  if smooth < 0 or smooth >= 1 then fail("plot: smooth: expected a number from 0 to below 1, got %g", smooth) end
  if output ~= "" and not output:find "%.svg$" and not output:find "%.png$" then
    fail("plot: output: expected a file .svg or .png, got '%s'", output)
  end
  local xs = x and numbers_of(x, "x")
  local runs = {}
  for i, curve in ipairs(curves_of(values)) do runs[i] = run_of(curve[1], curve[2], xs) end
  local axis = xs and "x" or "step"
  local panel = {key = title, axis = axis, log = log,
    curves = series.of(runs, "", {axis = "step", smooth = smooth, log = log})}
  require "accelhost.plot.show"(runs, {panel}, {output = output, width = width, height = height})
end

--- Draw numbers as curves, in the terminal or into a file. The prompt has it as `plot`: `plot(losses)`.
--
-- `values` is a list of numbers or a tensor with one dim; a table of several draws a curve for each, with its key as
-- name. plot(x, y) draws y over x, as plot(y, {x = x}).
--
--   | local losses, valid = {}, {}
--   | for step = 1, 50 do losses[step], valid[step] = math.exp(-step / 10), math.exp(-step / 12) end
--   | accelhost.plot(losses)
--   | accelhost.plot({train = losses, valid = valid}, {log = true, output = "loss.svg"})
---@names plot
---@param values table|userdata
---@param title? string
---@param x? table|userdata positions on the horizontal axis (default 1, 2, ...)
---@param log? boolean draw logarithms; values that are not above 0 are left out
---@param smooth? number weight of the earlier values, from 0 to below 1, as in TensorBoard
---@param width? integer columns, or pixels in a file; 0: the terminal's, or 960
---@param height? integer lines, or pixels in a file; 0: 17, or 300
---@param output? string a file .svg or .png (needs cairo), instead of the terminal
return function(...)
  local first, second = ...
  local is_pair = is_curve(first) and is_curve(second) and not (C.is_tensor(first) and first:dim() ~= 1)
  if not is_pair then return draw(read(...)) end
  local options = select(3, ...)
  if options ~= nil then arguments.check("plot", "options", "table", options) end
  options = arguments.copy(options) or {}
  options.x = first
  draw(read(second, options))
end
