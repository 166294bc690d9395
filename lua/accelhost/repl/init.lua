--- The interactive prompt: reads, asks repl/evaluate.lua whether a chunk is whole, has it run.
local C = require "accelhost._C"
local evaluate = require "accelhost.repl.evaluate"

local repl = {}

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
    text = text .. "\n" .. line
  end
  return text
end

-- Lines from a terminal, until Ctrl-D.
local function converse(e)
  while true do
    local prompt = ("[%d]> "):format(e.number)
    local text, why = read_chunk(e, prompt, (" "):rep(#prompt - 3) .. ".. ")
    if not text then io.write "\n" end
    if why == "end" then return 0 end
    if text and text:find "%S" then e:run(text) end
    io.stdout:flush()
  end
end

-- Lines from a file or pipe: all of them, an error ends nothing but shows in the exit code.
local function follow(e)
  local code = 0
  while true do
    local text, why = read_chunk(e, "", "")
    if why then return code end
    if text:find "%S" and not e:run(text) then code = 1 end
    io.stdout:flush()
  end
end

local function greet()
  io.write(("accelhost %s. ? tells how this works, ? NAME what a name is; Ctrl-D ends.\n"):format(C.system.version))
end

--- Read and run until the input ends.
---@param script? string run first
---@param ... string the script's arguments
---@return integer # the exit code
function repl.start(script, ...)
  local terminal = C.edit.is_terminal()
  local e = evaluate.new{
    write = function(text) io.write(text) end,
    columns = function() return (C.terminal.size()) end,
    color = terminal and (os.getenv "NO_COLOR" or "") == "" and os.getenv "TERM" ~= "dumb",
  }
  C.interrupt.watch()
  if terminal then greet() end
  if script and not e:run_file(script, ...) then
    if not terminal then return 1 end
    io.write "the script failed; its variables are as they were then\n"
  end
  return (terminal and converse or follow)(e)
end

return repl
