--- Start the host (or any program) from a spec, under a time limit, and check its output.
--
--   local run = require "spec.support.run"
--   local case = "spec/distributed/cases/collectives.lua"
--   local result = run.host({"launch", "--num_processes", "2", case}, {timeout = 20})
--   run.succeeds(result); assert.matches("total 3", result.stdout)
local run = {}

--- The host that runs the specs: under a sanitizer its own build, not the one in the root.
local function own_binary()
  local lfs = require "lfs"
  local target = lfs.symlinkattributes and lfs.symlinkattributes("/proc/self/exe", "target")
  if target and target:find("accelhost", 1, true) then return target end
  return "./accelhost"
end
run.path = os.getenv("ACCELHOST_BINARY") or own_binary()

-- Time limits only end programs that hang: none is shorter than this, whatever a spec asks for, as a machine may be
-- busy; a sanitizer's programs may run that many times as long.
local LEAST = 120
local slowness = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1

local on_device = os.getenv "ACCELHOST_TEST_DEVICE" and "true" or nil

--- Why a busy or sleeping process prints no status here from its signal handler; nil where it does.
run.no_handlers = os.getenv "TSAN_OPTIONS" and
  "needs a build without ThreadSanitizer, which calls handlers at the program's next call only" or nil

-- Other processes see an emulator as the program.
local seen = io.popen "readlink /proc/$PPID/exe 2>/dev/null"
local is_emulated = (seen:read "*l" or ""):find "/qemu%-[^/]*$" ~= nil
seen:close()
--- Why no limit of address space applies to a program here, which would take all of the machine's memory; nil where one
--- does.
run.no_memory_limit = is_emulated and "needs a kernel that limits the program's memory: an emulator does not" or nil
--- Why other processes see another command line or environment than the program's; nil where they see its own.
run.no_command_line = is_emulated and
  "needs the program's own command line and environment in /proc: an emulator's are others" or nil

--- A word for the shell.
---@param word any
---@return string
function run.quote(word)
  return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

local function read_and_remove(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a") or ""
  if file then file:close() end
  os.remove(path)
  return text
end

-- The coroutines of run.at_once: it runs their programs.
local members = setmetatable({}, {__mode = "k"})

local function execute(command)
  local member = coroutine.running()
  if member and members[member] then coroutine.yield(command) else os.execute(command) end
end

--- Call functions so that their programs run at once: the first program of each, then the second of each, and so on.
--- For programs that mostly wait.
---@param calls (fun(): any)[]
---@return any[] results each one's result, by its place
function run.at_once(calls)
  local threads, results, failure = {}, {}, nil
  for i, call in ipairs(calls) do
    threads[i] = coroutine.create(call)
    members[threads[i]] = true
  end
  repeat
    local commands = {}
    for i, thread in ipairs(threads) do
      if coroutine.status(thread) ~= "dead" then
        local well, result = coroutine.resume(thread)
        if not well then
          failure = failure or result
        elseif coroutine.status(thread) == "dead" then
          results[i] = result
        else
          commands[#commands + 1] = "{ " .. result .. "; } &"
        end
      end
    end
    if #commands > 0 then execute(table.concat(commands, " ") .. " wait") end
  until #commands == 0
  if failure then error(failure, 0) end
  return results
end

--- Run a program to its end.
---@param words string[] program and arguments
---@param options? {timeout?: number, env?: table<string, string>, stdin?: string, dir?: string} seconds, at least 120
---@return {code: integer, stdout: string, stderr: string, output: string, timed_out: boolean}
function run.program(words, options)
  options = options or {}
  local base = os.tmpname()
  -- The user's own configuration file is none of the specs' business, nor their device that of programs.
  local names, env = {}, {ACCELHOST_CONFIG_FILE = "", ACCELHOST_USE_CPU = on_device,
    TERM = os.getenv "TERM" == "dumb" and "xterm" or nil}
  for name, value in pairs(options.env or {}) do env[name] = value end
  for name in pairs(env) do names[#names + 1] = name end
  table.sort(names)
  local parts = {}
  if options.dir then parts[#parts + 1] = "cd " .. run.quote(options.dir) .. " || exit;" end
  for _, name in ipairs(names) do
    local value = env[name]
    parts[#parts + 1] = value == false and ("unset %s;"):format(name)
      or ("export %s=%s;"):format(name, run.quote(value))
  end
  parts[#parts + 1] = "exec"
  parts[#parts + 1] = ("timeout -k 2 %d"):format(math.max(options.timeout or LEAST, LEAST) * slowness)
  for _, word in ipairs(words) do parts[#parts + 1] = run.quote(word) end
  local input = "/dev/null"
  if options.stdin then
    input = base .. ".in"
    local file = assert(io.open(input, "wb"))
    file:write(options.stdin)
    file:close()
  end
  local command = table.concat(parts, " ")
  execute(("( %s ) < %s > %s.out 2> %s.err; echo $? > %s.code"):format(command, input, base, base, base))
  local result = {
    stdout = read_and_remove(base .. ".out"),
    stderr = read_and_remove(base .. ".err"),
    code = tonumber(read_and_remove(base .. ".code")),
  }
  if options.stdin then os.remove(input) end
  os.remove(base)
  result.output = result.stdout .. result.stderr
  result.timed_out = result.code == 124 or result.code == 137
  return result
end

--- Run the host with these arguments.
---@param words string[]
---@param options? table as for run.program
function run.host(words, options)
  local all = {run.path}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.program(all, options)
end

--- Raise unless a program exited with 0; the error contains all that it printed.
---@param result {code: integer, output: string}
function run.succeeds(result)
  if result.code ~= 0 then
    error(("expected exit code 0, got %s, and this output:\n%s"):format(tostring(result.code),
      tostring(result.output)), 2)
  end
end

--- Raise unless a program printed exactly this on stdout; the error contains all that it printed.
---@param expected string
---@param result {stdout: string, output: string}
function run.prints(expected, result)
  if result.stdout ~= expected then
    error(("expected stdout:\n%s\ngot exit code %s and this output:\n%s"):format(expected, tostring(result.code),
      tostring(result.output)), 2)
  end
end

--- The output of each rank of a job, whether or not its lines arrived soon enough to be joined with another's.
---@param text string a stream of `accelhost launch`
---@return table<integer, string> by rank, from 0
function run.by_rank(text)
  local said = {}
  for line in text:gmatch("([^\n]*\n?)") do
    local list, rest = line:match("^%[(r%d[r%d,-]*)%] (.*)$")
    if list then line = rest else list = "r0" end
    for first, last in list:gmatch("r(%d+)%-?r?(%d*)") do
      for rank = tonumber(first), tonumber(last) or tonumber(first) do said[rank] = (said[rank] or "") .. line end
    end
  end
  return said
end

--- The result of run.by_rank when every one of `ranks` ranks printed the same.
---@param ranks integer
---@param text string
---@return table<integer, string>
function run.everyone(ranks, text)
  local said = {}
  for rank = 0, ranks - 1 do said[rank] = text end
  return said
end

--- A launcher's messages without those about a busy machine: ranks that need a second to end.
---@param text string
---@return string
function run.without_delays(text)
  return (text:gsub("accelhost launch: ranks? [%d, -]+ may take [%d.]+ s to end [^\n]*\n", ""))
end

--- Run a Lua text as a script of the host.
---@param text string
---@param options? table as for run.program, plus args: string[]
function run.script(text, options)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local words = {"run", path}
  for _, word in ipairs(options and options.args or {}) do words[#words + 1] = word end
  local result = run.host(words, options)
  os.remove(path)
  return result
end

return run
