-- A launcher and the processes of a job: it stops and continues them, ends them, leaves none behind.
local run = require "spec.support.run"

-- Runs a shell text with $0 the host, $1 a script, $2 an empty file for marks; `launcher` is to be set by it.
local function shell(text, script, options)
  local marks = os.tmpname()
  local result = run.program({"bash", "-c", text, run.path, script, marks}, options or {timeout = 60})
  os.remove(marks)
  os.remove(marks .. ".err")
  return result
end

-- A rank that has written its process number to the marks.
local own = "local f = io.open('/proc/self/stat'); local pid = f:read('*n'); f:close() "
local mark = own .. "local m = io.open((...), 'a'); m:write(pid, '\\n'); m:close() "
local start = [[env --default-signal "$0" launch --num_processes 2 $options -e "$1" "$2" 2> "$2.err" & launcher=$!
  for i in $(seq 600); do [ $(wc -l < "$2") = 2 ] && break; sleep 0.05; done
  state() { for pid in "$@"; do cut -d' ' -f3 /proc/$pid/stat 2>/dev/null || echo gone; done | sort | uniq -c | xargs; }
  awaits() { for i in $(seq 200); do s=$(state "${@:2}"); [ "$s" = "$1" ] && break; sleep 0.05; done; echo $s; }
  reports() { for i in $(seq 200); do grep -q "$1" "$2" && break; sleep 0.05; done; }
  ended() { time -p wait $launcher; echo $?; cat "$1" >&2; }
]]
-- Did the job end soon? Not if only the default grace of 30 seconds ended it; a busy machine may need more than a
-- second.
local function is_soon(result)
  assert.is_true(tonumber(result.stderr:match("real (%d+)")) < 15, result.stderr)
end
-- Programs of this run, which another run on this machine does not count as its own.
local function naps(...)
  local stat = io.open("/proc/self/stat")
  local number = stat:read("*n")
  stat:close()
  local names = {}
  for _, seconds in ipairs {...} do names[#names + 1] = ("sleep %d.%07d"):format(seconds, number) end
  return unpack(names)
end

describe("a launched job", function()
  it("stops with Ctrl-Z, and continues with the launcher", function()
    local result = shell(start .. [[
      kill -TSTP $launcher; awaits "3 T" $launcher $(cat "$2")
      kill -CONT $launcher; awaits "2 R 1 S" $launcher $(cat "$2")
      kill -TERM $launcher; wait $launcher; echo $?; cat "$2.err" >&2]], mark .. "while true do end")
    assert.equal("3 T\n2 R 1 S\n143\n", result.stdout)
    assert.equal("", run.without_delays(result.stderr))
  end)

  it("reports which rank was stopped, and ends in time nevertheless", function()
    local result = shell(start .. [[
      kill -STOP $(head -1 "$2"); reports "was stopped" "$2.err"; kill -TERM $launcher; ended "$2.err"]],
      mark .. "while true do end")
    run.prints("143\n", result)
    assert.matches("rank %d was stopped by a signal %(kill %-CONT %d+ continues it%)", result.stderr)
    is_soon(result)
  end)

  it("reports that a rank for which others waited in vain had been stopped", function()
    local script = mark .. "if os.getenv('RANK') == '1' then os.execute('kill -STOP ' .. pid) end " ..
      "require('accelhost._C').comm.barrier()"
    local result = shell('options="--timeout 2.5"; ' .. start .. 'ended "$2.err"', script)
    assert.equal("4\n", result.stdout)
    assert.matches("rank 1 had been stopped by a signal and was killed", result.stderr)
  end)

  it("ends soon by Ctrl-C while its ranks start one program after the other", function()
    local result = shell(start .. 'sleep 0.3; kill -INT $launcher; ended "$2.err"',
      mark .. "while true do os.execute('sleep 0.2') end")
    run.prints("130\n", result)
    is_soon(result)
    -- A rank between two programs hears it itself.
    assert.matches("ranks? [01, ]+ may take 30 s to end", result.stderr)
  end)

  it("reports its failure although it was interrupted while it ended", function()
    -- Rank 0 needs 1.5 s to end. On a busy machine they are over before the signal arrives: then once more.
    local deaf = "require('ffi').cdef 'void *signal(int number, void *action);' " ..
      "require('ffi').C.signal(15, require('ffi').cast('void *', 1)) "
    local script = deaf .. mark .. "if os.getenv('RANK') == '0' then while true do end end " ..
      "io.open((...) .. '.go'):read() error('cause')"
    local shown
    for _ = 1, 5 do
      shown = shell("mkfifo \"$2.go\"; " .. start .. [[
        failing=$(cat "$2"); echo > "$2.go"; rm "$2.go"
        for i in $(seq 200); do [ "$(state $failing)" = "1 R 1 Z" ] && break; done
        kill -INT $launcher; ended "$2.err"]], script)
      if shown.stdout ~= "3\n" then break end
    end
    assert.equal("130\n", shown.stdout)
    assert.matches("rank 1 failed: %-e:1: cause", shown.stderr)
  end)

  it("reports how much memory a killed rank had", function()
    local script = "local t = require('accelhost').ones(25000000) " ..
      "if os.getenv('RANK') == '1' then os.execute('kill -9 $PPID') end while true do end"
    local result = run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 20})
    local told = "rank 1 was killed by SIGKILL %(out of memory, or kill %-9; it had (%d+) MB%)"
    local megabytes = result.stderr:match(told)
    -- A sanitizer needs memory in addition.
    local most = 500 * tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS" or 1)
    assert.is_true(tonumber(megabytes) > 100 and tonumber(megabytes) < most, megabytes)
  end)

  it("prints all of an error of many lines", function()
    local lines = {}
    for i = 1, 40 do lines[i] = "line " .. i end
    local script = ("local function f() error(%q) end f()"):format(table.concat(lines, "\n"))
    local result = run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 20})
    assert.matches("line 1\nline 2\n.*line 40\n  %-e:%d+: in f\n  %-e:%d+: in main chunk\n", result.stderr)
    script = "local function f() error('begin' .. ('x'):rep(100000) .. 'end') end f()"
    result = run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 20})
    assert.matches("begin.*\n  %(cut%)\n.*end\n  %-e:1: in f\n  %-e:1: in main chunk\n", result.stderr)
    assert.is_true(#result.stderr < 20000)
  end)

  it("leaves nothing behind that its ranks have started", function()
    local near, far = naps(97, 98)
    local left = ("wait $launcher; echo $?; ps -eo args | grep -cE '^(%s|%s)$'"):format(near, far)
    local script = mark .. ("os.execute('%s > /dev/null & setsid %s > /dev/null 2>&1 &')"):format(near, far)
    assert.equal("0\n0\n", shell('options="--grace 0.3"; ' .. start .. left, script).stdout)
    script = script .. "if os.getenv('RANK') == '1' then error('x') end while true do end"
    assert.equal("3\n0\n", shell(start .. left, script).stdout)
  end)

  it("leaves nothing behind when the launcher is killed", function()
    local near, far = naps(95, 96)
    local script = ("os.execute('%s & setsid %s &') "):format(near, far) .. mark .. "while true do end"
    local result = shell(([[
      left() { ps -eo args | grep -cE '^(%s|%s)$'; }
      becomes() { for i in $(seq 200); do [ $(left) = $1 ] && break; sleep 0.05; done; left; }
      ]]):format(near, far) .. start .. [[
      becomes 4; kill -9 $launcher; becomes 0; awaits "2 gone" $(cat "$2")]], script)
    run.prints("4\n0\n2 gone\n", result)
  end)

  it("waits a moment for processes that its ranks have started, and shows their output", function()
    local script = "if os.getenv('RANK') == '1' then os.execute('(sleep 0.8; echo late) &') end"
    local result = run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 20})
    run.prints("[r1] late\n", result)
    run.succeeds(result)
  end)

  it("starts hosts that are no ranks of it", function()
    local script = "local p = io.popen(arg[1] .. ' -e \"print(os.getenv([[RANK]]), " ..
      "require([[accelhost]]).Accelerator().num_processes)\"') print(p:read('*a'))"
    local result = run.host({"launch", "--num_processes", 2, "-e", script, run.path}, {timeout = 20})
    assert.same(run.everyone(2, "nil\t1\n\n"), run.by_rank(result.stdout), result.output)
    script = "if os.getenv('RANK') == '1' then return end " ..
      "os.execute(arg[1] .. ' launch --num_processes 2 -e \"require([[accelhost._C]]).comm.barrier() " ..
      "print(os.getenv([[RANK]]))\" | sort')"
    result = run.host({"launch", "--num_processes", 2, "-e", script, run.path}, {timeout = 20})
    run.prints("0\n[r1] 1\n", result)
  end)

  it("walks tables in the same order in all ranks and runs", function()
    local script = [[
      local fields = {alpha = 1, beta = 1, gamma = 1, delta = 1, weight = 1, bias = 1, running_mean = 1, epoch = 1}
      local text = "seen by rank " .. os.getenv "RANK"
      for name in pairs(fields) do text = name .. " " .. text end
      print((text:gsub(" seen.*", "")))]]
    local first = run.by_rank(run.host({"launch", "--num_processes", 3, "-e", script}, {timeout = 20}).stdout)
    assert.matches("^[%a_ ]+\n$", first[0])
    assert.same(run.everyone(3, first[0]), first)
    assert.equal(first[0], run.host({"launch", "-e", script}, {timeout = 20}).stdout)
  end)

  it("runs as the first process of a container, and without /proc", function()
    local unshare = "unshare -r -p -f --mount-proc "
    if run.program({"sh", "-c", unshare .. "true"}).code ~= 0 then return pending "needs user namespaces" end
    local script = "print('up') io.flush() while true do end"
    for _, what in ipairs {"", "launch --num_processes 2"} do
      local result = shell(unshare .. '"$0" ' .. what .. [[ -e "$1" > "$2" & outer=$!
        for i in $(seq 600); do [ -s "$2" ] && break; sleep 0.05; done
        kill -TERM $(pgrep -P $outer); wait $outer; echo $?]], script)
      run.prints("143\n", result)
    end
    local bare = "unshare -r -m sh -c 'mount -t tmpfs none /proc && exec \"$0\" launch --num_processes 2 -e \"$1\"'" ..
      " \"$0\" \"$1\""
    local result = shell(bare, "require('accelhost._C').comm.barrier() print(7)")
    if result.stdout:find("OMP: Error", 1, true) then return pending "needs GCC's OpenMP, which does without /proc" end
    assert.same(run.everyone(2, "7\n"), run.by_rank(result.stdout), result.output)
  end)
end)
