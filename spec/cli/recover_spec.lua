-- accelhost launch --recover live: a rank that a signal kills is replaced while the others wait. Here ranks are killed
-- before their first step, so that the new process runs on from the script's first line; states of later steps are
-- spec/distributed's.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave

local read = files.read

-- `life` counts the processes of a rank from 1; `die()` kills this one; `sum(x)` is that of all ranks.
local begin = [[
  local comm = require("accelhost._C").comm
  local rank = tonumber(os.getenv "RANK")
  local file = io.open("lives" .. rank, "a+")
  file:write "x" file:flush() file:seek "set"
  local life = #file:read "*a"
  file:close()
  local function die(signal)
    io.flush()
    os.execute(("kill -%s $PPID"):format(signal or "KILL"))
    os.execute "sleep 5" -- the signal is on its way
  end
  local function sum(x)
    local t = require("accelhost").tensor {x}
    comm.all_reduce(t)
    return t:sum():item()
  end
]]

local function launch(words, code, options)
  for rank = 0, 3 do os.remove("lives" .. rank) end
  local all = {"launch", "--recover", "live"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  all[#all + 1] = "-e"
  all[#all + 1] = begin .. code
  return run.host(all, options or {timeout = 40})
end

local function refused(words)
  local result = launch(words, "")
  assert.equal(2, result.code, result.output)
  return result.stderr:match "^accelhost launch: ([^\n]*)"
end

describe("accelhost launch --recover live", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("replaces a rank that is killed, and every rank has its undisturbed result", function()
    local result = launch({"--num_processes", 3}, [[
      local total = 0
      for i = 1, 200 do
        total = total + sum(i * (rank + 1))
        if rank == 1 and life == 1 and i == 120 then die() end
      end
      print(total)]])
    assert.equal(0, result.code, result.output)
    assert.same(run.everyone(3, "120600\n"), run.by_rank(result.stdout), result.output)
    assert.matches("^accelhost launch: rank 1 %(pid %d+%) was killed by SIGKILL; replaced in [%d.]+ s, resumes from " ..
      "its beginning\n$", result.stderr)
    assert.same({"x", "xx", "x"}, {read "lives0", read "lives1", read "lives2"})
  end)

  it("replaces several at once, a replacement too, and a single rank, whatever the signal is", function()
    local result = launch({"--num_processes", 3, "--max_restarts", 4}, [[
      sum(1)
      if rank > 0 and life < 3 then die(life == 1 and "SEGV" or "TERM") end
      print(sum(rank))]])
    assert.equal(0, result.code, result.output)
    assert.same(run.everyone(3, "3\n"), run.by_rank(result.stdout), result.output)
    for rank = 1, 2 do
      assert.matches(("rank %d %%(pid %%d+%%) was killed by SIGSEGV, and 1 that was to replace it; replaced")
        :format(rank), result.stderr)
    end
    result = launch({"--num_processes", 1}, "if life == 1 then die() end print(sum(4))")
    assert.same({0, "4\n"}, {result.code, result.stdout})
    assert.matches("rank 0 %(pid %d+%) was killed by SIGKILL; replaced in [%d.]+ s, resumes from its beginning",
      result.stderr)
  end)

  it("replays the killed ranks' arguments of a call, whatever the new ones would pass", function()
    local result = launch({"--num_processes", 2}, [[
      local utils = require("accelhost").utils
      local all, box = utils.gather_object {("x"):rep(7 * life)}, {("y"):rep(life)}
      utils.broadcast_object_list(box)
      if life == 1 then die() end
      print(#all[1], #all[2], #box[1])]])
    assert.equal(0, result.code, result.output)
    assert.same(run.everyone(2, "7\t7\t1\n"), run.by_rank(result.stdout), result.output)
  end)

  it("continues in the same log files, after the earlier lines", function()
    local result = launch({"--num_processes", 2, "--log_dir", "logs"}, [[
      io.write("life ", life, "\n")
      sum(1)
      if rank == 1 and life == 1 then io.write "half a line, " die() end
      print(sum(2))]])
    assert.equal(0, result.code, result.output)
    local log = io.popen "cat logs/*/attempt_0/1/stdout.log"
    assert.equal("life 1\nhalf a line, life 2\n4\n", log:read "*a")
    log:close()
  end)

  it("lets no timeout pass while a rank is being replaced, and reports a long replacement", function()
    local result = launch({"--num_processes", 2, "--timeout", 0.5, "--patience", 0.2}, [[
      if life == 2 then os.execute "until test -e waits; do sleep 0.01; done; sleep 2" end
      if rank == 1 and life == 1 then die() end
      if rank == 0 then os.execute "until test $(cat lives1) = xx; do sleep 0.01; done 2> errors; touch waits" end
      print(sum(1))]])
    assert.equal(0, result.code, result.output)
    assert.is_nil(result.stderr:find "waited")
    assert.matches("rank 1 was killed 0%.2 s ago, and its new process %(pid %d+%) has not caught up yet\n" ..
      "accelhost launch: rank 1 %(pid %d+%) was killed by SIGKILL; replaced in ", result.stderr)
  end)

  it("ends the job when --max_restarts are used up, and reports how often ranks were replaced", function()
    local result = launch({"--num_processes", 2, "--max_restarts", 2}, "if rank == 1 then die() end sum(1)")
    assert.equal(3, result.code)
    assert.equal("xxx", read "lives1")
    assert.matches("\naccelhost launch: rank 1 was killed by SIGKILL .-\naccelhost launch: ranks had been replaced " ..
      "2 times, of at most 2 %(%-%-max_restarts%)\n$", "\n" .. result.stderr)
    result = launch({"--num_processes", 2}, "if rank == 1 then die() end sum(1)")
    assert.equal("xxxx", read "lives1")
    assert.matches("replaced 3 times, of at most 3", result.stderr)
  end)

  it("ends it as ever when a script fails, or ends with a code", function()
    local result = launch({"--num_processes", 2}, "if rank == 1 then error 'no data' end sum(1)")
    assert.equal(3, result.code)
    assert.matches("rank 1 failed: %-e:%d+: no data", result.stderr)
    assert.is_nil(result.stderr:find "replaced")
    result = launch({"--num_processes", 2}, "sum(1) if rank == 1 then os.exit(7) end sum(1)")
    assert.equal(3, result.code)
    assert.same({"x", "x"}, {read "lives0", read "lives1"})
  end)

  it("reports a new process that makes other calls than the one before", function()
    local result = launch({"--num_processes", 2}, [[
      if life == 1 then sum(1) else comm.barrier() end
      if rank == 1 and life == 1 then die() end
      sum(1)]])
    assert.equal(3, result.code)
    assert.matches("collective #1 differs: barrier at .-; the process that this one replaces made all_reduce at .- " ..
      "there, and a script that is run again is to make the same calls", result.stderr)
  end)

  it("ends at Ctrl-C while a rank is being replaced, and when the launcher is killed leaves nothing", function()
    for signal, expected in pairs {INT = "130\n", KILL = "137\n"} do
      for rank = 0, 1 do os.remove("lives" .. rank) end
      os.remove "there"
      local shell = [[env --default-signal "$0" launch --recover live --num_processes 2 -e "$1" > out 2> err & pid=$!
        for i in $(seq 1200); do test -s there && break; sleep 0.05; done
        kill -$2 $pid; wait $pid; echo $?
        for i in $(seq 1200); do kill -0 $(cat there) 2> gone || break; sleep 0.05; done
        kill -0 $(cat there) 2> gone && echo left]]
      local result = run.program({"sh", "-c", shell, run.path, begin .. [[
        if rank == 1 and life == 1 then die() end
        if life == 2 then os.execute "echo $PPID > there; exec sleep 60" end
        sum(1)]], signal}, {timeout = 30})
      assert.equal(expected, result.stdout, signal)
      assert.equal("xx", read "lives1")
    end
  end)

  it("is refused where no process can replace a rank", function()
    assert.equal("--recover: live recovery is for one machine, and num_machines is 2",
      refused {"--num_machines", 2, "--main_process_ip", "127.0.0.1"})
    assert.equal("--recover: srun starts the ranks, and replaces none", refused {"--launcher", "srun"})
    assert.equal("--recover expects none or live, got 'dead'", refused {"--recover", "dead"})
  end)
end)
