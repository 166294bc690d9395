--- Panels of curves as text for the terminal or as the bytes of a picture.
local C = require "accelhost._C"
local layout = require "accelhost.plot.layout"
local styles = require "accelhost.plot.styles"

local show = {}

local writers = {
  svg = function(scene) return require "accelhost.plot.svg"(scene) end,
  png = function(scene) return require "accelhost.plot.png"(scene) end,
}

--- The columns of the terminal.
function show.terminal_width()
  local terminal, columns = C.comm.is_terminal(1)
  return math.max(20, terminal and columns > 0 and columns or tonumber(os.getenv "COLUMNS") or 80)
end

--- May the output have colors?
function show.is_colored()
  return (C.comm.is_terminal(1)) and (os.getenv "NO_COLOR" or "") == "" and os.getenv "TERM" ~= "dumb"
end

--- Draw in Braille.
---@param runs table[] {short: its name}
---@param panels table[] as of layout.scene
---@param width integer columns
---@param height integer lines of a plot
---@param color boolean
---@return string
function show.text(runs, panels, width, height, color)
  local style = styles.terminal(width, height, #runs > 1)
  return require "accelhost.plot.terminal"(layout.scene(runs, panels, style), color)
end

--- The kind of picture that a file's name asks for; nil for another file.
---@return "svg"|"png"|nil
function show.kind_of(path)
  local kind = path:match "%.(%l+)$"
  return writers[kind] and kind
end

--- Draw a picture.
---@param kind "svg"|"png" png needs cairo
---@param runs table[] as of text
---@param panels table[]
---@param width integer pixels
---@param height integer of a plot
---@param least? integer the least width of a plot; default 420
---@return string
function show.picture(kind, runs, panels, width, height, least)
  local style = styles.picture(width, height)
  style.least = least or style.least
  return writers[kind](layout.scene(runs, panels, style))
end

return show
