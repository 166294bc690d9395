local check = require "spec.support.check"
local run = require "spec.support.run"

local case = "spec/distributed/cases/fail.lua"
local together = "require('accelhost._C').comm.barrier() "

local function fail(ranks, what, options)
  local words = {"launch", "--num_processes", ranks}
  for _, word in ipairs(options or {}) do words[#words + 1] = word end
  words[#words + 1] = case
  words[#words + 1] = what
  return run.host(words, {timeout = 30})
end

local function line_count(text)
  return select(2, text:gsub("\n", ""))
end

local has = check.has

-- Ranks other than 0 stay until the file that is the first argument is there.
local stay = "while comm.rank() > 0 and not io.open((...)) do end "

-- Such ranks stay until a line that begins so was printed. With so short a timeout a busy machine makes a job report
-- other waits too.
local function expect_told(line, options, script, env)
  local path = os.tmpname()
  local shell = [[path=$1 script=$2 line=$3; shift 3
    "$0" launch "$@" -e "$script" "$path.go" 2> "$path" & launcher=$!
    for i in $(seq 200); do grep -qF "$line" "$path" && break; sleep 0.05; done
    touch "$path.go"; wait $launcher; code=$?; cat "$path"; rm "$path.go"; exit $code]]
  local words = {"sh", "-c", shell, run.path, path, script, line}
  for _, word in ipairs(options) do words[#words + 1] = word end
  local result = run.program(words, {timeout = 40, env = env})
  os.remove(path)
  has(result.stdout, line)
  run.succeeds(result)
end

describe("a job of which a rank fails", function()
  for _, ranks in ipairs {2, 3, 5} do
    local last = ranks - 1
    it(("names rank %d, which raised, and not those that lost it"):format(last), function()
      local result = fail(ranks, "throw")
      assert.equal(3, result.code)
      has(result.stderr, ("accelhost launch: rank %d failed: %s:"):format(last, case))
      has(result.stderr, "boom")
      assert.is_true(line_count(result.stderr) <= 6)
      assert.is_nil(result.stderr:find("rank 0 failed", 1, true))
    end)

    it(("ends when rank %d is killed"):format(last), function()
      local result = fail(ranks, "kill")
      assert.equal(3, result.code)
      has(result.stderr, ("rank %d was killed by SIGKILL"):format(last))
      has(result.stderr, "its last collective was barrier #1 at " .. case)
      assert.is_true(line_count(result.stderr) <= 6)
    end)

    it(("reports both call sites when rank %d calls something else"):format(last), function()
      local result = fail(ranks, "broadcast")
      assert.equal(3, result.code)
      has(result.stderr, "collective #2 differs: rank 0 all_reduce float32 (10,) at " .. case)
      has(result.stderr, ("; rank %d broadcast float32 (10,) at %s"):format(last, case))
    end)
  end

  it("reports the signal", function()
    has(fail(2, "segfault").stderr, "rank 1 was killed by SIGSEGV")
  end)

  it("reports the exit code of a rank", function()
    local result = fail(2, "exit")
    assert.equal(3, result.code)
    has(result.stderr, "rank 1 exited with code 7")
  end)

  it("does not wait for a rank that has ended", function()
    local result = fail(2, "finish")
    assert.equal(3, result.code)
    has(result.stderr, "rank 0 failed: ")
    has(result.stderr, "rank 1 ended without it")
  end)

  it("compares shapes and dtypes", function()
    has(fail(2, "shape").stderr, "rank 0 all_reduce float32 (10,)")
    has(fail(2, "shape").stderr, "rank 1 all_reduce float32 (2, 5)")
    has(fail(2, "dtype").stderr, "rank 1 all_reduce float64 (10,)")
  end)

  it("does not let a caught failure be forgotten", function()
    local result = fail(2, "caught")
    assert.equal(3, result.code)
    has(result.stderr, "collective #2 differs")
  end)

  it("is not forgotten when every rank caught it", function()
    for _, way in ipairs {"all_caught", "all_caught_exit"} do
      local result = fail(2, way)
      assert.equal(3, result.code)
      has(result.stderr, "a collective failed and the script continued without it (let its error end "
        .. "the script): collective #2 differs")
    end
  end)

  it("is not forgotten when the rank that lost its peer caught it and continues", function()
    local result = fail(2, "late_throw")
    assert.equal(3, result.code)
    has(result.stderr, "accelhost launch: rank 1 failed: " .. case)
    has(result.stderr, "rank 0 ended because of it")
  end)

  it("ends with 4 and names the missing rank when a collective times out", function()
    local result = fail(3, "loop", {"--timeout", "3"})
    assert.equal(4, result.code)
    has(result.stderr, "timed out after 3 s: rank 2 was last seen at " .. case)
    has(result.stderr, "barrier #1")
    has(result.stderr, "rank 2 did not arrive and was killed")
    assert.is_nil(result.stderr:match("ranks? [%d, ]*2[%d, ]* ended because of it"))
  end)

  it("reports ranks that run on when the others have ended", function()
    local script = "local comm = require 'accelhost._C'.comm comm.barrier() " .. stay
    local line = "accelhost launch: still running 0.1 s after the others ended: "
    expect_told(line .. "rank 1; its last collective was barrier #1 at -e:1",
      {"--num_processes", 2, "--patience", 0.1}, script)
    expect_told(line .. "ranks 1, 2", {"--num_processes", 3, "--patience", 0.1}, script)
    assert.equal("", run.host({"launch", "--num_processes", 2, "-e", script, case}, {timeout = 20}).stderr)
  end)

  it("reports a wait after the seconds of --patience or ACCELHOST_PATIENCE", function()
    local script = "local comm = require 'accelhost._C'.comm " .. stay .. "comm.barrier()"
    local line = "accelhost: barrier #1 at -e:1: rank 0 has waited 0.1 s: rank 1 has not reached its first collective; "
      .. "now it"
    expect_told(line, {"--num_processes", 2, "--patience", 0.1}, script)
    expect_told(line, {"--num_processes", 2}, script, {ACCELHOST_PATIENCE = "0.1"})
    local words = {"launch", "--num_processes", 2, "-e", script, case}
    assert.equal("", run.host(words, {timeout = 20}).stderr)
    local result = run.host(words, {timeout = 20, env = {ACCELHOST_PATIENCE = "soon"}})
    assert.equal(2, result.code)
    assert.equal("accelhost launch: ACCELHOST_PATIENCE expects a number in 0.001..1e+09, got 'soon'\n" ..
      "Try 'accelhost launch --help'.\n", result.stderr)
  end)

  it("lists every rank that failed by itself", function()
    local result = run.host({"launch", "--num_processes", 3, "-e", together .. "error('all')"}, {timeout = 20})
    assert.matches("rank %d failed: %-e:1: all", result.stderr)
    assert.matches("\naccelhost launch: ranks %d, %d failed in the same way\n", result.stderr)
    result = run.host({"launch", "--num_processes", 2, "-e", together .. "error('by ' .. os.getenv('RANK'))"},
      {timeout = 20})
    assert.matches("rank %d failed: %-e:1: by %d.*rank %d failed too: %-e:1: by %d", result.stderr)
    local one = "local r = tonumber(os.getenv('RANK')) if r == 5 then error('x') end while true do end"
    result = run.host({"launch", "--num_processes", 7, "-e", one}, {timeout = 20})
    assert.matches("\naccelhost launch: ranks 0%-4, 6 ended because of it\n$", result.stderr)
  end)

  it("is 3 with one process too", function()
    local result = run.host({"launch", "-e", "error('alone')"}, {timeout = 20})
    assert.equal(3, result.code)
    has(result.stderr, "alone")
  end)

  it("leaves no process behind when the launcher itself is killed", function()
    local marks = os.tmpname()
    local script = "local f = io.open('/proc/self/stat'); local pid = f:read('*n'); f:close() " ..
      "local m = io.open('" .. marks .. "', 'a'); m:write(pid, '\\n'); m:close() while true do end"
    local shell = ([[
      "$0" launch --num_processes 2 -e "$1" & launcher=$!
      for i in $(seq 200); do [ $(wc -l < %s) = 2 ] && break; sleep 0.1; done
      kill -9 $launcher
      for i in $(seq 100); do
        left=0
        for pid in $(cat %s); do
          if [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status 2>/dev/null; then left=1; fi
        done
        [ $left = 0 ] && break
        sleep 0.1
      done
      echo $(wc -l < %s) started, left: $left]]):format(marks, marks, marks)
    local result = run.program({"sh", "-c", shell, run.path, script}, {timeout = 40})
    os.remove(marks)
    run.prints("2 started, left: 0\n", result)
  end)
end)
