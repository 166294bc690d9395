-- Old kernels, gVisor and seccomp profiles of containers: system calls that may fail are denied one at a time, and the
-- users' programs continue or end with a line that names the missing call.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local without_calls = run.path:match "^(.*)/" .. "/without_calls"

-- The program that the specs run may be a link into the build folder.
local function helper()
  local file = io.open(without_calls)
  if not file then
    without_calls = "build/without_calls"
    file = assert(io.open(without_calls), "without_calls is not built (make build/selftest)")
  end
  file:close()
  return without_calls
end

-- Run the host without these calls.
local function without(calls, words, options)
  local all = {helper(), options and options.error or "ENOSYS", calls, run.path}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.program(all, options)
end

-- Two ranks that exchange, a loader with a worker, a checkpoint; `skip` leaves out the part that needs a call.
local session = [[
  local accelhost = require "accelhost"
  local a = accelhost.Accelerator()
  local t = a:gather(accelhost.tensor {a.process_index + 1})
  assert(t:sum():item() == 3)
  local set = accelhost.data.TensorDataset(accelhost.arange(8))
  local sum = 0
  for x in accelhost.data.DataLoader(set, {batch_size = 4, num_workers = 1}) do sum = sum + x:sum():item() end
  assert(sum == 28)
  local model = a:prepare(accelhost.nn.Linear(2, 2))
  a:save_state(arg[1])
  assert(a:load_state(arg[1]) ~= false)
  if a.process_index == 0 then print "all done" end
]]

describe("accelhost launch", function()
  local available
  setup(function() available = without("flock", {"--version"}).code ~= 77 end)

  local function judge(call, message, error)
    if not available then return pending "needs seccomp" end
    folder.with(function(path)
      local result = without(call, {"launch", "--num_processes", 2, "-e", session, path .. "/state"},
        {error = error, env = {OMP_NUM_THREADS = "1"}})
      if not message then
        run.prints("all done\n", result)
        assert.equal("", result.stderr)
        run.succeeds(result)
      else
        assert.equal(3, result.code)
        run.prints("", result)
        assert.matches(message, result.stderr)
        local _, lines = result.stderr:gsub("\n", "")
        assert.equal(1, lines, result.stderr)
      end
    end)
  end

  for _, call in ipairs {
    "pidfd_open", "pidfd_send_signal", "pidfd_open,pidfd_send_signal", "close_range", "renameat2", "getrandom",
    "eventfd2", "timer_create", "madvise", "flock", "sched_setaffinity", "sched_getaffinity", "prctl", "setpgid",
    "prlimit64", "sigaltstack", "io_uring_setup", "O_TMPFILE", "linkat",
  } do
    it("runs, loads and saves without " .. call, function()
      judge(call, nil, "ENOSYS")
      judge(call, nil, "EPERM")
    end)
  end

  for call, message in pairs {
    memfd_create = "^accelhost launch: cannot make the job's shared memory %(memfd%): %u[^\n]+\n$",
    signalfd4 = "^accelhost launch: cannot watch signals %(signalfd%): %u[^\n]+\n$",
  } do
    it("names " .. call .. " when the system lacks it", function()
      judge(call, message, "ENOSYS")
      judge(call, message, "EPERM")
    end)
  end

  it("reports a failed checkpoint where files cannot be flushed", function()
    if not available then return pending "needs seccomp" end
    folder.with(function(path)
      local result = without("fsync", {"launch", "--num_processes", 2, "-e", session, path .. "/state"})
      assert.equal(3, result.code)
      assert.matches("save_state: [^\n]* was not saved: [^\n]*cannot write: Function not implemented", result.stderr)
      assert.same({}, folder.names(path))
    end)
  end)

  it("works where /dev/shm has 64 KB and is read-only", function()
    local small = "unshare -r -m sh -c 'mount -t tmpfs -o size=64k,ro none /dev/shm && exec \"$0\" \"$@\"' "
    if run.program({"sh", "-c", small .. "true"}).code ~= 0 then return pending "needs user namespaces" end
    folder.with(function(path)
      local result = run.program({"sh", "-c", small .. '"$@"', "sh", run.path, "launch", "--num_processes", "2", "-e",
        session, path .. "/state"})
      run.prints("all done\n", result)
      run.succeeds(result)
    end)
  end)
end)

-- Containers have 64 KiB there (Docker: 64 MiB); shared memory is in memfds.
describe("with a /dev/shm of 64 KiB that is read-only", function()
  local mount = "mount -t tmpfs -o ro,size=64k none /dev/shm"
  local available
  setup(function() available = run.program({"unshare", "-r", "-m", "sh", "-c", mount}).code == 0 end)

  it("ranks share memory, and their loaders have workers", function()
    if not available then return pending "needs user namespaces" end
    local result = run.program {"unshare", "-r", "-m", "sh", "-c", mount .. ' && exec "$0" "$@"', run.path, "launch",
      "--num_processes", "2", "-e", [[
      local accelhost = require "accelhost"
      local set = accelhost.data.TensorDataset(accelhost.ones(200000))
      local sum = 0
      for x in accelhost.data.DataLoader(set, {batch_size = 1e5, num_workers = 1}) do sum = sum + x:sum():item() end
      local accelerator = accelhost.Accelerator()
      local all = accelerator:reduce(accelhost.full({100000}, sum), "sum")
      accelerator:print(all:mean():item())]]}
    run.prints("400000\n", result)
    run.succeeds(result)
  end)
end)

describe("without /proc", function()
  local bare = "unshare -r -m sh -c 'mount -t tmpfs none /proc && exec \"$0\" \"$@\"' "
  local function without_proc(...)
    return run.program {"sh", "-c", bare .. '"$@"', "sh", run.path, ...}
  end
  local available
  setup(function() available = run.program({"sh", "-c", bare .. "true"}).code == 0 end)

  it("ranks run, and their loaders have workers", function()
    if not available then return pending "needs user namespaces" end
    local result = without_proc("launch", "--num_processes", "2", "-e", [[
      local accelhost = require "accelhost"
      local set = accelhost.data.TensorDataset(accelhost.arange(8))
      local sum = 0
      for x in accelhost.data.DataLoader(set, {batch_size = 4, num_workers = 1}) do sum = sum + x:sum():item() end
      local accelerator = accelhost.Accelerator()
      accelerator:print(accelerator:gather(accelhost.tensor {sum}):sum():item(), accelerator.num_processes)]])
    run.prints("56\t2\n", result)
    run.succeeds(result)
  end)

  it("the program finds its plugins and itself", function()
    if not available then return pending "needs user namespaces" end
    local looked = without_proc("-e", [[print(require("accelhost._C").device.missing "nowhere")]])
    assert.truthy(looked.stdout:find("/accelhost-nowhere.so", 1, true), looked.output)
    assert.falsy(looked.stdout:find("searched: ./", 1, true), looked.output)
    local command = without_proc("launch", "--launcher", "mpirun", "--num_processes", "2", "--dry_run", "-e",
      "print(1)")
    assert.matches(" /[^ ]*accelhost run %-e ", command.stdout)
  end)
end)

-- There, exits of ranks and the processes that they leave are found in another way.
describe("without pidfds accelhost launch", function()
  local calls = "pidfd_open,pidfd_send_signal"
  local available
  setup(function() available = without("flock", {"--version"}).code ~= 77 end)

  -- Programs of this sentence only, by their arguments.
  local function nap(seconds)
    local stat = io.open "/proc/self/stat"
    local number = stat:read "*n"
    stat:close()
    return ("sleep %d.%07d"):format(seconds, number)
  end

  local function count(command)
    local pipe = io.popen(("ps -eo args | grep -c '^%s$'"):format(command))
    local number = pipe:read "*n"
    pipe:close()
    return number
  end

  it("reports a rank that is killed, and ends the others", function()
    if not available then return pending "needs seccomp" end
    local script = "if os.getenv 'RANK' == '1' then os.execute 'kill -KILL $PPID' end " ..
      "require('accelhost._C').comm.barrier()"
    local result = without(calls, {"launch", "--num_processes", 3, "-e", script})
    assert.equal(3, result.code)
    assert.matches("rank 1 was killed by SIGKILL", result.stderr)
  end)

  it("replaces a rank that is killed", function()
    if not available then return pending "needs seccomp" end
    folder.with(function(path)
      local script = [[
        local lives = io.open(arg[1] .. "/lives", "a+")
        if os.getenv "RANK" == "1" and #lives:read "*a" == 0 then
          lives:write "x" lives:close()
          os.execute "kill -KILL $PPID"
        end
        require("accelhost._C").comm.barrier()
        if os.getenv "RANK" == "0" then print "continued" end]]
      local result = without(calls, {"launch", "--recover", "live", "--num_processes", 2, "-e", script, path})
      run.prints("continued\n", result)
      run.succeeds(result)
    end)
  end)

  it("kills the processes that ranks have left", function()
    if not available then return pending "needs seccomp" end
    local left = nap(1093)
    local script = ("os.execute 'setsid %s > /dev/null 2>&1 &'"):format(left)
    local result = without(calls, {"launch", "--num_processes", 2, "--grace", "0.3", "-e", script})
    assert.equal(0, result.code, result.stderr)
    assert.equal(0, count(left))
  end)

  it("leaves nothing when the launcher is killed", function()
    if not available then return pending "needs seccomp" end
    folder.with(function(path)
      local left = nap(1094)
      local script = ("os.execute 'setsid %s > /dev/null 2>&1 &' io.open(arg[1], 'a'):write('x'):close() " ..
        "while true do end"):format(left)
      -- The call is a separate process: its children live on when the shell ends.
      local result = run.program {"bash", "-c", [[
        "$0" ENOSYS ]] .. calls .. [[ "$1" launch --num_processes 2 -e "$2" "$3" & launcher=$!
        for i in $(seq 600); do [ "$(cat "$3" 2> /dev/null)" = xx ] && break; sleep 0.05; done
        kill -KILL $launcher
        for i in $(seq 200); do ps -eo args | grep -q "^$4\$" || break; sleep 0.05; done
        ps -eo args | grep -c "^$4\$"]], helper(), run.path, script, path .. "/up", left}
      run.prints("0\n", result)
    end)
  end)
end)
