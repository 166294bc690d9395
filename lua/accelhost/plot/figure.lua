--- accelhost.plot: curves from a script or a notebook, drawn as those of `accelhost plot`.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local display = require "accelhost.display"
local layout = require "accelhost.plot.layout"
local printable = require "accelhost.util.printable"
local series = require "accelhost.plot.series"
local styles = require "accelhost.plot.styles"

local fail = arguments.fail

local INTERVAL = 0.25 -- seconds between two drawings of a figure that is shown

---@class Figure
---@field curves table<string, {x: number[], y: number[]}> by name
local Figure = class.new "Figure"

local read = arguments.signature("plot", {
  {"curves: table|tensor"}, {"title: string"}, {"together: flag", false}, {"log: flag", false}, {"x: string", "step"},
  {"smooth: nonnegative", 0}, {"width: count", 640}, {"height: count", 260},
})

-- A list of numbers, of a tensor or a table of numbers.
local function numbers_of(name, values)
  if C.is_tensor(values) then
    if values:dim() ~= 1 then fail("plot: curve '%s': expected a tensor of one dim, got %d", name, values:dim()) end
    return values:detach():to "cpu":tolist()
  end
  if type(values) ~= "table" then
    fail("plot: curve '%s': expected a list of numbers or a tensor, got %s", name, arguments.describe(values))
  end
  for i, value in ipairs(values) do
    if type(value) ~= "number" then
      fail("plot: curve '%s': item %d: expected a number, got %s", name, i, arguments.describe(value))
    end
  end
  return arguments.copy(values)
end

local function steps_of(count)
  local steps = {}
  for i = 1, count do steps[i] = i end
  return steps
end

local function set_curve(self, name, values)
  local has_x = type(values) == "table" and values.x ~= nil and values.y ~= nil
  local y = numbers_of(name, has_x and values.y or values)
  local x = has_x and numbers_of(name, values.x) or steps_of(#y)
  if #x ~= #y then fail("plot: curve '%s': x has %d numbers, y has %d", name, #x, #y) end
  if not self.curves[name] then self._names[#self._names + 1] = name end
  self.curves[name] = {x = x, y = y}
end

function Figure:init(...)
  local curves, title, together, log, x, smooth, width, height = read(...)
  self.curves, self._names, self._drawn = {}, {}, -math.huge
  self.title, self._together, self._log, self._axis = title, together, log, x
  self._smooth, self._width, self._height = math.min(smooth, 0.9999), width, height
  if curves == nil then return end
  if C.is_tensor(curves) or curves[1] ~= nil then curves = {[title or "value"] = curves} end
  for _, name in ipairs(arguments.sorted_keys(curves)) do set_curve(self, name, curves[name]) end
end

-- The runs and panels of the layout: a plot for each curve, or one with them all.
local function panels_of(self)
  local options = {axis = "step", smooth = self._smooth, log = self._log}
  local runs, panels = {}, {}
  for i, name in ipairs(self._names) do
    local held = self.curves[name]
    local run = {name = name, short = printable.text(name), curves = {[name] = {step = held.x, value = held.y}}}
    local curves = series.of({run}, name, options)
    if self._together then
      runs[i] = run
      panels[1] = panels[1] or {key = self.title or "", curves = {}, axis = self._axis, log = self._log}
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
  local style = styles.picture(self._width, self._height)
  style.least = 260
  return require "accelhost.plot.svg"(layout.scene(runs, panels, style))
end

--- Return the figure as text, in Braille.
---@param columns? integer default 80
---@return string
function Figure:text(columns)
  local runs, panels = panels_of(self)
  if #panels == 0 then return "a figure without points" end
  local style = styles.terminal(columns or 80, 12, self._together and #runs > 1)
  return require "accelhost.plot.terminal"(layout.scene(runs, panels, style), false)
end

--- Write the figure into a file.
---@param path string ends with .svg, or .png where cairo is
function Figure:save(path)
  arguments.check("save", "path", "string", path)
  local kind = path:match "%.(%a+)$"
  if kind ~= "svg" and kind ~= "png" then
    fail("save: path: expected the name of a .svg or .png file, got '%s'", path)
  end
  local bytes
  if kind == "svg" then
    bytes = self:svg()
  else
    local runs, panels = panels_of(self)
    bytes = require "accelhost.plot.png"(layout.scene(runs, panels, styles.picture(self._width, self._height)))
  end
  C.io.write_text(path, bytes)
end

function Figure:__tostring() return self:text() end

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

--- Curves of numbers: a figure that a notebook shows as a picture, a prompt as text, and that can be saved. Options:
--- title, together (one plot with all curves; default: a plot for each), log (logarithms of the values), x (the axis's
--- name), smooth (from 0 to below 1, as `accelhost plot --smooth`), width and height in pixels, of the whole and of a
--- plot.
--
--   local figure = accelhost.plot({loss = {0.9, 0.5, 0.3}, accuracy = {0.6, 0.8, 0.85}})
--   #figure.curves.loss.x  --> 3
--   | figure:show()
--   | figure:save "curves.svg"
---@param curves? table|userdata a list of numbers or a tensor; or by name such lists, or {x = ..., y = ...}
---@param title? string
---@param together? boolean
---@param log? boolean
---@param x? string
---@param smooth? number
---@param width? integer
---@param height? integer
---@return Figure
return function(...) return Figure(...) end
