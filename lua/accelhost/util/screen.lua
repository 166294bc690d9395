--- The lines at the bottom of a terminal that redraw themselves: one for each progress bar that is open, the outer
--- loop's above the inner one's. Other output is written above them.
--
-- A line is a table with the fields file (its output), is_alive() (is its loop still running?) and latest() (its text
-- now).
---@param line table
local C = require "accelhost._C"
local columns = require "accelhost.util.columns"

local screen = {}

--- Can lines of an output be redrawn: is it a terminal, and none of the type `dumb`, which moves no cursor? Also the
--- terminal's columns, 0 where it does not report them. Of a rank it is the launcher's output.
---@param descriptor integer 1: stdout, 2: stderr
---@return boolean
---@return integer
function screen.is_redrawn(descriptor)
  local terminal, width = C.comm.is_terminal(descriptor)
  return terminal and os.getenv "TERM" ~= "dumb", width
end

--- Another surface than a terminal, set by a notebook's kernel: draw(line, text) and close(line, leave).
---@type table?
screen.surface = nil

local open = {} -- from the outermost on
local own_print -- the global print while lines are open

local function place_of(line)
  for i, other in ipairs(open) do
    if other == line then return i end
  end
end

-- Write a text in the n-th line. The cursor rests in the first one: it moves down, and returns.
local function write_line(line, n, text)
  local width = columns.of(text)
  local padded = text .. (" "):rep((line.width or 0) - width)
  line.width = width
  line.file:write(("\n"):rep(n - 1), "\r", padded, n > 1 and ("\27[%dA"):format(n - 1) or "")
end

local function write_all()
  for n, line in ipairs(open) do write_line(line, n, line.text) end
end

local function clear_all()
  for n = #open, 1, -1 do
    write_line(open[n], n, "")
    open[n].file:write "\r"
  end
end

-- print, above the lines.
local function print_above(...)
  if #open == 0 then return own_print(...) end
  clear_all()
  open[1].file:flush()
  own_print(...)
  io.stdout:flush()
  write_all()
  open[1].file:flush()
end

local function watch_print(shared)
  if shared and not own_print then
    own_print = _G.print
    rawset(_G, "print", print_above)
  end
end

local function forget_print()
  if #open == 0 and own_print then
    if _G.print == print_above then rawset(_G, "print", own_print) end
    own_print = nil
  end
end

-- Leave the lines of loops that were broken off, and move the cursor below them.
local function drop_dead()
  for i = #open, 1, -1 do
    local line = open[i]
    if not line.is_alive() then
      table.remove(open, i)
      clear_all()
      line.width = 0
      line.file:write("\r", line.latest(), "\n")
      write_all()
    end
  end
end

--- Open a line, below those that are open; on a terminal that another process draws, in their place.
---@param line table {file, is_alive, latest}
---@param shared boolean does print write to the same terminal?
---@param alone boolean is there but one line that can be drawn again?
function screen.open(line, shared, alone)
  if screen.surface then return end
  drop_dead()
  while alone and open[1] do screen.close(open[1], true) end
  line.width, line.text = 0, ""
  open[#open + 1] = line
  watch_print(shared)
end

--- Show `text` in a line that is open.
function screen.draw(line, text)
  line.text = text
  if screen.surface then return screen.surface.draw(line, text) end
  write_line(line, place_of(line) or 1, text)
  line.file:flush()
end

--- Write a line of text above all open lines.
---@param line table an open one
function screen.above(line, text)
  if screen.surface then return print(text) end
  clear_all()
  line.file:write(text, "\n")
  write_all()
  line.file:flush()
end

--- Close a line; with `leave` its text stays, above the open ones.
---@param leave boolean
function screen.close(line, leave)
  if screen.surface then return screen.surface.close(line, leave) end
  local n = place_of(line)
  if not n then return end
  if #open == 1 then
    if leave then line.file:write "\n" else clear_all() end
    open[1] = nil
  else
    clear_all()
    table.remove(open, n)
    if leave then line.file:write("\r", line.text, "\n") end
    write_all()
  end
  line.file:flush()
  forget_print()
end

--- Is the line open?
function screen.has(line)
  return screen.surface and screen.surface.has(line) or place_of(line) ~= nil
end

--- At the end of the process: no open line swallows the shell's prompt.
function screen.leave()
  if #open == 0 then return end
  local file, count = open[1].file, #open
  open = {}
  pcall(file.write, file, ("\n"):rep(count))
end

return screen
