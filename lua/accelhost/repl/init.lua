--- The interactive prompt: reads, asks repl/evaluate.lua whether a chunk is whole, has it run.
local C = require "accelhost._C"
local evaluate = require "accelhost.repl.evaluate"

local repl = {}

-- Return the path of the history file: nil without a home.
local function history_path()
  local state, home = os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if (state or "") == "" then state = (home or "") ~= "" and home .. "/.local/state" or nil end
  return state and state .. "/accelhost/history"
end

-- A prompt in bold; for the editor, sequences without columns are between two bytes 1, and before a character that has
-- one.
local function painted(e, text)
  local mark = e.edits and "\1" or ""
  return e.color and ("%s\27[1m%s%s%s\27[0m%s "):format(mark, mark, text:gsub(" $", ""), mark, mark) or text
end

-- A whole chunk: lines until it is complete. Nil and "end" or "interrupt".
local function read_chunk(e, prompt, continuation)
  local text, why = C.edit.read(prompt)
  if not text then return nil, why end
  while not e:is_complete(text) do
    local line
    line, why = C.edit.read(continuation)
    if not line then
      if why == "end" then return text end
      return nil, why
    end
    if e.terminal and line == "" and e:ends_when_empty(text) then return text end
    text = text .. "\n" .. line
  end
  return text
end

-- Does the line end the prompt, as it does in others? Not where the user has called something so.
local function leaves(e, text)
  local name = text:match "^%s*(%a+)%s*%(?%s*%)?%s*$"
  if name ~= "exit" and name ~= "quit" then return false end
  return rawget(_G, name) == nil and not (e.living and e.living[name])
end

-- Lines from a terminal, until Ctrl-D or exit.
local function converse(session)
  while true do
    local e = session.engine
    local prompt = ("[%d]> "):format(e.number)
    local text, why = read_chunk(e, painted(e, prompt), painted(e, (" "):rep(#prompt - 4) .. ".. "))
    if not text then io.write(why == "interrupt" and e.edits and "^C\n" or "\n") end
    if why == "end" then return 0 end
    if text and leaves(e, text) then return 0 end
    if text and text:find "%S" then
      C.edit.remember(text)
      e:run(text)
    end
    io.stdout:flush()
  end
end

-- Lines from a file or pipe: all of them, an error ends nothing but shows in the exit code.
local function follow(session)
  local code = 0
  while true do
    local e = session.engine
    local text, why = read_chunk(e, "", "")
    if why or leaves(e, text) then return code end
    if text:find "%S" and not e:run(text) then code = 1 end
    io.stdout:flush()
  end
end

local function completer(session)
  return function(before)
    local e = session.engine
    if e.complete then return e:complete(before) end
    return require("accelhost.repl.complete").at(e, before)
  end
end

-- Greet an interactive user, and enable line editing where possible.
local function welcome(session, dumb)
  local e = session.engine
  io.write(("accelhost %s. ? prints the help, ? NAME the help of a name; Ctrl-D exits.\n"):format(C.system.version))
  if e.size then
    io.write(("Lines run in %d processes; %%rank R LINE runs one in rank R, %%ranks chooses for later lines.\n"):format(
      e.size))
  end
  if dumb then return end
  local edits, why = C.edit.open(history_path(), completer(session))
  if not edits then io.write("Lines cannot be edited: ", why, "\n") end
  session.edits, e.edits = edits, edits
end

-- Have an engine for a number of processes (0: this one) run the lines of the session, in place of its former one.
local function start_engine(session, processes, options)
  local former = session.engine
  if former then (former.here or former):reset() end
  if former and former.close then former:close() end
  options.num_processes = processes
  local e = (processes > 0 and require "accelhost.repl.cluster" or evaluate).new(options)
  local function switch(count)
    C.interrupt.watch()
    start_engine(session, count > 1 and count or 0, options)
  end
  if e.here then e.here.switch = switch else e.switch = switch end
  if former then e.number = former.number end
  session.engine, e.edits = e, session.edits
  return e
end

--- Read and run until the input ends.
---@param processes integer in which lines run; 0: in this one
---@param script? string run first
---@param ... string the script's arguments
---@return integer # the exit code
function repl.start(processes, script, ...)
  local terminal, dumb = C.edit.is_terminal(), os.getenv "TERM" == "dumb"
  local options = {
    write = function(text) io.write(text) end,
    columns = function() return (C.terminal.size()) end,
    rows = terminal and not dumb and function() return (select(2, C.terminal.size())) end or nil,
    terminal = terminal,
    color = terminal and not dumb and (os.getenv "NO_COLOR" or "") == "",
  }
  local session = {}
  local e = start_engine(session, processes, options)
  -- Lines of a file end at Ctrl-C, as a script does.
  if terminal or processes > 0 then
    C.interrupt.watch()
    require "accelhost.repl.programs"()
  end
  if terminal then welcome(session, dumb) end
  if script and not e:run_file(script, ...) then
    if not terminal then return 1 end
    io.write "The script failed; its variables are as they were then.\n"
  end
  local code = (terminal and converse or follow)(session)
  if session.engine.close then session.engine:close() end
  return code
end

return repl
