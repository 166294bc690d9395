--- accelhost.plot: curves from a script or a notebook, drawn as those of `accelhost plot`.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local display = require "accelhost.display"
local printable = require "accelhost.util.printable"
local series = require "accelhost.plot.series"
local show = require "accelhost.plot.show"

local fail = arguments.fail

local INTERVAL = 0.25 -- seconds between two drawings of a figure that is shown

---@field curves table<string, {x: number[], y: number[]}> by name
local Figure = class.new "Figure"

local read = arguments.signature("plot", {
  {"values: table|tensor"}, {"title: string", ""}, {"x: table|tensor"}, {"together: flag", true}, {"log: flag", false},
  {"smooth: number", 0}, {"width: count", 640}, {"height: count", 260}, {"axis: string"},
})

-- Return the numbers of a list or of a tensor with one dim.
local function numbers_of(values, name)
  if C.is_tensor(values) then
    if values:dim() ~= 1 then fail("plot: values: expected %s with 1 dim, got a tensor with %d", name, values:dim()) end
    return values:detach():to {dtype = "float64", device = "cpu"}:tolist()
  end
  if type(values) ~= "table" then fail("plot: values: expected %s, got %s", name, arguments.describe(values)) end
  local list = {}
  for i, value in ipairs(values) do
    if C.is_tensor(value) and value:numel() == 1 then value = value:item() end
    if type(value) ~= "number" then
      fail("plot: values: expected numbers in %s, got %s at %d", name, arguments.describe(value), i)
    end
    list[i] = value
  end
  if not list[1] then fail("plot: values: expected numbers in %s, got none", name) end
  return list
end

-- Is it one curve: no table of curves?
local function is_curve(values)
  if type(values) ~= "table" then return C.is_tensor(values) end
  return type(values[1]) == "number" or C.is_tensor(values[1]) and values[1]:numel() == 1
end

local function steps_of(count)
  local steps = {}
  for i = 1, count do steps[i] = i end
  return steps
end

local function set_curve(self, name, values, x)
  local title = name == "" and "the list or tensor" or ("curve '%s'"):format(name)
  if type(values) == "table" and values.x ~= nil and values.y ~= nil then
    values, x = values.y, numbers_of(values.x, "x of " .. title)
  end
  local y = numbers_of(values, title)
  if x and #x ~= #y then
    fail("plot: values: expected as many numbers as x has, %d, got %d%s", #x, #y, name == "" and "" or " in " .. title)
  end
  if not self.curves[name] then self._names[#self._names + 1] = name end
  self.curves[name] = {x = x or steps_of(#y), y = y}
  self._axis = x and "x" or self._axis
end

function Figure:init(...)
  local values, title, x, together, log, smooth, width, height, axis = read(...)
  if smooth < 0 or smooth >= 1 then fail("plot: smooth: expected a number from 0 to below 1, got %g", smooth) end
  self.curves, self._names, self._drawn = {}, {}, -math.huge
  self.title, self._together, self._log, self._axis = title, together, log, axis or "step"
  self._smooth, self._width, self._height = smooth, width, height
  x = x and numbers_of(x, "x")
  if values == nil then return end
  local is_one = is_curve(values) or next(values) == nil
  for _, name in ipairs(is_one and {""} or arguments.sorted_keys(values)) do
    set_curve(self, tostring(name), is_one and values or values[name], x)
  end
  self._axis = axis or self._axis
end

-- The runs and panels of the layout: a plot with all curves, or one for each.
local function panels_of(self)
  local options = {axis = "step", smooth = self._smooth, log = self._log}
  local runs, panels = {}, {}
  for i, name in ipairs(self._names) do
    local held = self.curves[name]
    local run = {name = name, short = printable.text(name), curves = {[name] = {step = held.x, value = held.y}}}
    local curves = series.of({run}, name, options)
    if self._together then
      runs[i] = run
      panels[1] = panels[1] or {key = self.title, curves = {}, axis = self._axis, log = self._log}
      for _, curve in ipairs(curves) do
        curve.run = i
        table.insert(panels[1].curves, curve)
      end
    elseif #curves > 0 then
      runs[1] = {name = "", short = ""}
      panels[#panels + 1] = {key = run.short, curves = curves, axis = self._axis, log = self._log}
    end
  end
  return runs, panels
end

--- Return the figure as SVG.
---@return string
function Figure:svg()
  local runs, panels = panels_of(self)
  return show.picture("svg", runs, panels, self._width, self._height, 260)
end

--- Return the figure as text, in Braille.
---@param columns? integer default: those of the terminal
---@param lines? integer of a plot; default 12
---@param color? boolean default false
---@return string
function Figure:text(columns, lines, color)
  local runs, panels = panels_of(self)
  if #panels == 0 then return "a figure without points" end
  return show.text(runs, panels, columns or show.terminal_width(), lines or 12, color or false)
end

--- Write the figure into a file.
---@param path string ends with .svg, or .png where cairo is
function Figure:save(path)
  arguments.check("save", "path", "string", path)
  local kind = show.kind_of(path)
  if not kind then fail("save: path: expected the name of a .svg or .png file, got '%s'", path) end
  local runs, panels = panels_of(self)
  C.io.write_text(path, show.picture(kind, runs, panels, self._width, self._height))
end

function Figure:__tostring() return self:text(nil, nil, show.is_colored()) end

function Figure:_repr_mimebundle()
  local text = self:text()
  if #self._names == 0 then return {["text/plain"] = text} end
  return {["text/plain"] = text, ["image/svg+xml"] = self:svg()}
end

--- Show the figure now; in a notebook, values that are logged later update it where it is.
function Figure:show()
  self._drawn = C.system.now()
  display.pending[self] = nil
  if self._shown then self._shown:update(self) else self._shown = display.display(self) end
end

--- Add values, by name. A figure that is shown in a notebook is drawn again, at most four times a second.
--
--   local figure = accelhost.plot()
--   for step = 1, 3 do figure:log({loss = 1 / step}, step) end
--   #figure.curves.loss.y  --> 3
---@param values table<string, number|userdata> numbers, or tensors of one element
---@param step? number default: one more than the last
function Figure:log(values, step)
  arguments.check("log", "values", "table", values)
  for _, name in ipairs(arguments.sorted_keys(values)) do
    local value = values[name]
    if C.is_tensor(value) then value = value:item() end
    if type(value) ~= "number" then
      fail("log: '%s': expected a number, got %s", tostring(name), arguments.describe(value))
    end
    if not self.curves[name] then
      self.curves[name] = {x = {}, y = {}}
      self._names[#self._names + 1] = name
    end
    local curve = self.curves[name]
    curve.x[#curve.x + 1] = step or (curve.x[#curve.x] or 0) + 1
    curve.y[#curve.y + 1] = value
  end
  if not self._shown or not display.front_end then return end
  if C.system.now() - self._drawn >= INTERVAL then self:show() else display.pending[self] = true end
end

--- Curves of numbers: a figure, which the prompt shows as text and a notebook as a picture, and which is printed or
--- saved. The prompt has the function as `plot`: `plot(losses)`. plot(x, y) draws y over x, as plot(y, {x = x}).
--
--   local figure = accelhost.plot({train = {0.9, 0.5, 0.3}, valid = {1, 0.7, 0.6}}, {title = "loss"})
--   #figure.curves.train.x  --> 3
--
-- In a script:
--
--   | print(figure)
--   | figure:save "loss.svg"
---@names plot
---@param values? table|userdata a list of numbers or a tensor with one dim; several by name, each a list, a tensor or
--- {x = ..., y = ...}; none: values come by figure:log
---@param x? table|userdata positions on the horizontal axis of all curves; default 1, 2, ...
---@param together? boolean default true: one plot with all curves; false: one for each
---@param log? boolean logarithms of the values; those that are not above 0 are left out
---@param smooth? number weight of the earlier values, from 0 to below 1, as in TensorBoard
---@param width? integer of a picture, in pixels; default 640
---@param height? integer of a plot in a picture; default 260
---@param axis? string name of the horizontal axis; default "step", "x" with positions
---@return Figure
return function(...)
  local first, second = ...
  local is_pair = is_curve(first) and is_curve(second) and not (C.is_tensor(first) and first:dim() ~= 1)
  if not is_pair then return Figure(...) end
  local options = select(3, ...)
  if options ~= nil then arguments.check("plot", "options", "table", options) end
  options = arguments.copy(options) or {}
  options.x = first
  return Figure(second, options)
end
