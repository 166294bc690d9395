-- Draw panels of curves in the terminal or into a file.
local C = require "accelhost._C"
local layout = require "accelhost.plot.layout"
local styles = require "accelhost.plot.styles"

local writers = {
  svg = function(scene) return require "accelhost.plot.svg"(scene) end,
  png = function(scene) return require "accelhost.plot.png"(scene) end,
}

local function terminal_width()
  local terminal, columns = C.comm.is_terminal(1)
  return terminal and columns > 0 and columns or tonumber(os.getenv "COLUMNS") or 80
end

local function is_colored()
  return (C.comm.is_terminal(1)) and (os.getenv "NO_COLOR" or "") == "" and os.getenv "TERM" ~= "dumb"
end

--- Draw. `output` is "" for the terminal, else a file .svg or .png; a width or height of 0 is the default.
---@param runs table[] {short: its name}
---@param panels table[] as of layout.scene
---@param options {output: string, width: number, height: number}
return function(runs, panels, options)
  if options.output == "" then
    local width = options.width > 0 and options.width or math.max(20, terminal_width())
    local style = styles.terminal(width, options.height > 0 and options.height or 17, #runs > 1)
    io.write(require "accelhost.plot.terminal"(layout.scene(runs, panels, style), is_colored()), "\n")
  else
    local width, height = options.width > 0 and options.width or 960, options.height > 0 and options.height or 300
    local style = styles.picture(width, height)
    local bytes = writers[options.output:match "%.(%l+)$"](layout.scene(runs, panels, style))
    C.io.write_text(options.output, bytes)
  end
end
