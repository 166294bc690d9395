-- accelhost launch --max_restarts: all ranks restart after a failure.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave
local function launch(words)
  local all = {"launch", "--num_processes", "2"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.host(all, {timeout = 40})
end

-- Each rank prints its attempt; once all have printed it, the failure follows.
local begin = "local attempt, rank = os.getenv 'ACCELHOST_RESTART_COUNT', os.getenv 'RANK' " ..
  "print(attempt, os.getenv 'TORCHELASTIC_RESTART_COUNT', os.getenv 'TORCHELASTIC_MAX_RESTARTS') io.flush() " ..
  "local comm = require('accelhost._C').comm comm.barrier() "

describe("accelhost launch --max_restarts", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("restarts all ranks when one is killed, and exits with code 0 when that succeeds", function()
    local result = launch {"--max_restarts", "3", "-e", begin ..
      "if attempt == '0' and rank == '1' then os.execute 'kill -9 $PPID' end comm.barrier()"}
    assert.equal(0, result.code, result.output)
    assert.same(run.everyone(2, "0\t0\t3\n1\t1\t3\n"), run.by_rank(result.stdout), result.output)
    assert.matches("rank 1 was killed by SIGKILL", result.stderr)
    assert.matches("\naccelhost launch: attempt 0 failed; all ranks restart %(restart 1 of at most 3%)\n",
      result.stderr)
  end)

  it("reports each attempt of a job that always fails, and ends as the last one", function()
    local result = launch {"--max_restarts", "2", "-e", begin .. "if rank == '0' then error('no ' .. attempt) end"}
    assert.equal(3, result.code)
    assert.same(run.everyone(2, "0\t0\t2\n1\t1\t2\n2\t2\t2\n"), run.by_rank(result.stdout), result.output)
    for attempt = 0, 2 do
      assert.truthy(result.stderr:find("rank 0 failed: -e:1: no " .. attempt, 1, true), result.stderr)
    end
    assert.truthy(result.stderr:find("accelhost launch: attempt 2 failed, the last of 3\n", 1, true))
  end)

  it("ends a rank that hangs before the next attempt", function()
    local result = launch {"--max_restarts", "1", "-e", begin ..
      "if attempt == '0' then if rank == '1' then error 'lost' end os.execute 'trap \"\" TERM; sleep 100' end"}
    assert.equal(0, result.code, result.output)
    assert.same(run.everyone(2, "0\t0\t1\n1\t1\t1\n"), run.by_rank(result.stdout), result.output)
  end)

  it("does so after a collective timed out, but not after wrong usage or on a full disk", function()
    local result = launch {"--max_restarts", "1", "--timeout", "0.3", "-e", begin ..
      "if rank == '0' then comm.barrier() else os.execute 'sleep 5' end"}
    assert.equal(4, result.code)
    assert.matches("attempt 1 failed, the last of 2", result.stderr)
    result = launch {"--max_restarts", "5", "-e", "io.stderr:write 'usage\\n' os.exit(2)"}
    assert.equal(2, result.code)
    assert.is_nil(result.stderr:find "attempt")
    local shell = [["$0" launch --num_processes 2 --max_restarts 5 -e "print(('x'):rep(1000))" > /dev/full; echo $?]]
    result = run.program({"sh", "-c", shell, run.path}, {timeout = 30})
    run.prints("3\n", result)
    assert.equal("accelhost launch: cannot write the ranks' output: No space left on device\n", result.stderr)
  end)

  it("ends at Ctrl-C, whichever attempt it is", function()
    local shell = ([[env --default-signal "$0" launch --num_processes 2 --max_restarts 100 -e "$1" > out 2> err & pid=$!
      for i in $(seq 600); do grep -q '2.2.100' out && break; sleep 0.1; done
      kill -INT $pid; wait $pid; echo $?]])
    local result = run.program({"sh", "-c", shell, run.path, begin ..
      "if tonumber(attempt) < 2 then error 'again' end os.execute 'sleep 60'"}, {timeout = 30})
    run.prints("130\n", result)
    local told = io.open("err"):read "*a"
    assert.matches("restart 2 of at most 100", told)
    assert.is_nil(told:find "restart 3")
  end)

  it("restarts a single rank too, and is silent without failures", function()
    local result = run.host({"launch", "--max_restarts", "1", "-e", begin .. "if attempt == '0' then os.exit(7) end"},
      {timeout = 20})
    assert.same({0, "0\t0\t1\n1\t1\t1\n"}, {result.code, result.stdout})
    assert.same({0, "", "1\n"}, (function()
      local well = run.host({"launch", "--max_restarts", "9", "-e", "print(1)"}, {timeout = 20})
      return {well.code, well.stderr, well.stdout}
    end)())
  end)
end)
