--- Running a function in new processes, from a session or a script that runs already.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pack = require "accelhost.launcher.pack"
local unpack_values = require "accelhost.launcher.unpack"
local watch = require "accelhost.launcher.watch"
local framing = require "accelhost.launcher.framing"

local fail = arguments.fail
local launcher = {}

local RANK = 'require "accelhost.launcher.rank"()'

-- The word by which its caller knows a function, for messages.
local function name_of(fn)
  for level = 2, 8 do
    local frame = debug.getinfo(level, "S")
    if not frame then break end
    for at = 1, 200 do
      local name, value = debug.getlocal(level, at)
      if not name then break end
      if value == fn and name:find "^[%a_]" and not frame.source:find "^=accelhost/" then return name end
    end
  end
  for name, value in next, _G do
    if value == fn and type(name) == "string" then return name end
  end
  return "the function"
end

local function check_place(what)
  if os.getenv "RANK" or C.comm.size() > 1 then
    fail("%s: this process is rank %d of a job; call it from a script or a session that was not launched", what,
      C.comm.rank())
  end
end

-- Count the arguments of a list, nils between them included.
local function count_of(what, args)
  if type(args.n) == "number" then return args.n end
  local count = 0
  for key in pairs(args) do
    if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then
      fail("%s: args: expected a list of arguments, got the field %s", what, arguments.describe(key))
    end
    count = math.max(count, key)
  end
  return count
end

-- Pack the call for the processes: the function and its arguments.
local function describe_call(what, fn, args, count)
  local values, titles = {fn}, {name_of(fn)}
  for i = 1, count do values[i + 1], titles[i + 1] = args[i], ("args[%d]"):format(i) end
  local packed, classes = pack.values(what, values, count + 1, titles)
  return {
    path = package.path, cpath = package.cpath, arg = rawget(_G, "arg"), random = C.random.get_rng_state(),
    device = C.device.get_default_device(), dtype = C.dtype.get_default_dtype(),
    values = packed,
  }, classes
end

local function variables_of(options, attempt)
  local list = {}
  local function add(name, value)
    if value ~= nil then list[#list + 1] = ("%s=%s"):format(name, tostring(value)) end
  end
  add("ACCELHOST_MIXED_PRECISION", options.mixed_precision)
  add("ACCELHOST_GRADIENT_ACCUMULATION_STEPS", options.gradient_accumulation_steps)
  add("ACCELHOST_USE_CPU", options.cpu)
  add("ACCELHOST_RESTART_COUNT", attempt)
  add("TORCHELASTIC_RESTART_COUNT", attempt)
  add("TORCHELASTIC_MAX_RESTARTS", options.max_restarts)
  return list
end

-- Run the job once; return its exit code, report, rank 0's results, and the objects that had to live as long as the
-- job.
local function run_once(what, call, options, attempt)
  local argv = {"run"}
  if not jit.status() then argv[#argv + 1] = "--jit=off" end
  if options.max_memory then argv[#argv + 1] = "--max_memory=" .. options.max_memory end
  argv[#argv + 1] = "-e"
  argv[#argv + 1] = RANK
  local job = C.job.start {
    num_processes = options.num_processes, argv = argv, show = true, name = what,
    threads = options.num_cpu_threads_per_process, timeout = options.timeout, patience = options.patience,
    grace = options.grace, log_dir = options.log_dir, monitor_interval = options.monitor_interval,
    variables = variables_of(options, attempt),
  }
  -- Processes that could not even listen have failed, which is reported below.
  local keeper = framing.send(function(message) pcall(job.send, job, nil, message) end, call, true)
  local receive, results = framing.receiver(), nil
  local code, report = watch(job, function(_, message)
    local whole, data = receive(message)
    if whole then results = data end
  end)
  return code, report, results, keeper
end

-- The frame of the text that started the process is none of the user's.
local function cleaned(report)
  report = report:gsub("\n  %-e:1: in main chunk", ""):gsub("%-e:1: ", "")
  return (report:gsub("\n  %(%d+ library frames?%)\n", "\n"):gsub("\n$", ""))
end

local function run(what, fn, options)
  check_place(what)
  local args = options.args or {}
  local call, classes = describe_call(what, fn, args, count_of(what, args))
  local restarts = options.max_restarts or 0
  options.num_processes = options.num_processes or tonumber(os.getenv "ACCELHOST_NUM_PROCESSES") or 1
  for attempt = 0, restarts do
    local code, report, results = run_once(what, call, options, attempt)
    if code == 0 then
      if not results then return end
      local values, amount = unpack_values(results, classes)
      return unpack(values, 1, amount)
    end
    if code == 128 + 2 then
      C.interrupt.heed()
      fail "interrupted"
    end
    if code > 128 then fail("%s: ended by a signal", what) end
    if report == "" then report = ("%s: the processes ended with code %d"):format(what, code) end
    if attempt == restarts then C.system.raise(cleaned(report)) end
    io.stderr:write(cleaned(report), ("\n%s: attempt %d failed; all processes start again "):format(what, attempt),
      ("(restart %d of at most %d)\n"):format(attempt + 1, restarts))
  end
end

local signature = {
  "function: callable", {"num_processes: count"}, {"args: table"}, {"mixed_precision: 'no'|'bf16'|'fp16'|'fp8'"},
  {"num_cpu_threads_per_process: count"}, {"gradient_accumulation_steps: count"}, {"cpu: flag"},
  {"timeout: positive"}, {"patience: positive"}, {"grace: nonnegative"}, {"monitor_interval: positive"},
  {"max_restarts: size", 0}, {"max_memory: string"}, {"log_dir: string"},
}
local read = arguments.signature("launcher", signature)

-- The values that follow the function, by their names in a signature.
local function by_name(parameters, fn, ...)
  local options = {}
  for i = 2, #parameters do
    local name = parameters[i][1]:match "^[%w_]+"
    options[name] = (select(i - 1, ...))
  end
  return fn, options
end

--- Run a function in new processes and return its results on rank 0, any number of values. Each process is fresh, with
--- its accelerator's part of the work, as `accelhost launch` starts them; their output is shown as there, and an error
--- in one raises here, with its traceback. The session itself does not change: it may have trained before, and may
--- launch again.
--
-- Sent with the function are the values that it uses: its arguments and upvalues, and globals that it reads by name.
-- Numbers, texts, tables (shared parts and circles too), functions, classes made by extend, tensors, modules,
-- optimizers, data sets and generators are sent as copies; functions and classes of the library and of modules from
-- files are found by name in the new process. Files, coroutines, functions in C, tensors with a history and
-- Accelerators cannot be serialized: the error names the path to them. Results are returned without history. The random
-- generator begins in each process where it is here.
--
--   local function train(rate)
--     local accelerator = accelhost.Accelerator()
--     return accelerator.num_processes * rate
--   end
--   accelhost.launcher(train, {args = {0.5}, num_processes = 2})  --> 1
---@param fn fun(...): ... the function to run
---@param num_processes integer? default: ACCELHOST_NUM_PROCESSES, else 1
---@param args any[]? its arguments; `n` is their number when the last ones are nil
---@param mixed_precision string? "no", "bf16", "fp16" or "fp8", for its Accelerator
---@param num_cpu_threads_per_process integer? default: processors / processes
---@param gradient_accumulation_steps integer? for its Accelerator
---@param cpu boolean? for its Accelerator
---@param timeout number? seconds that a process may wait in a collective, default 600
---@param patience number? seconds without progress before a process is reported, default 10
---@param grace number? seconds that processes get to end after Ctrl-C, default 30
---@param monitor_interval number? seconds between two polls of the processes, default 1
---@param max_restarts integer? number of times that all processes start again when one failed, default 0
---@param max_memory string? memory limit of each process, "2G"
---@param log_dir string? a folder for copies of each process's output
---@return any ... the results of the function on rank 0
function launcher.launcher(...)
  return run("launcher", by_name(signature, read(...)))
end

local notebook_signature = {
  "function: callable", {"args: list"}, {"num_processes: count"}, {"mixed_precision: 'no'|'bf16'|'fp16'|'fp8'", "no"},
  {"use_port: string|integer"}, {"master_addr: string"}, {"node_rank: integer", 0}, {"num_nodes: integer", 1},
  {"max_restarts: size", 0}, {"monitor_interval: positive"},
}
local read_notebook = arguments.signature("notebook_launcher", notebook_signature)

--- launcher with Accelerate's arguments. Ports and addresses are accepted and ignored: the processes are on this host.
--- The session may have made an Accelerator before.
--
--   local function train(rate) return accelhost.Accelerator().num_processes * rate end
--   accelhost.notebook_launcher(train, {0.5}, 2)  --> 1
---@param fn fun(...): ...
---@param args any[]?
---@param num_processes integer? default: ACCELHOST_NUM_PROCESSES, else 1
---@return any ... the results of the function on rank 0
function launcher.notebook_launcher(...)
  local fn, options = by_name(notebook_signature, read_notebook(...))
  if options.num_nodes ~= 1 or options.node_rank ~= 0 then
    fail "notebook_launcher: num_nodes: processes start on this host only: 1"
  end
  return run("notebook_launcher", fn, options)
end

--- launcher for trying a function out: two processes, on the CPU.
--
--   accelhost.debug_launcher(function() return accelhost.Accelerator().num_processes end)  --> 2
---@param fn fun(...): ...
---@param args any[]?
---@return any ... the results of the function on rank 0
launcher.debug_launcher = arguments.named("debug_launcher", {
  "function: callable", {"args: list"}, {"num_processes: count", 2},
}, function(what, fn, args, processes)
  return run(what, fn, {args = args, num_processes = processes, cpu = true})
end)

return launcher
