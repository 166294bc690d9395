local run = require "spec.support.run"

local function launch(words, options)
  local all = {"launch"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  options = options or {}
  options.timeout = options.timeout or 30
  return run.host(all, options)
end

-- A script whose ranks all write before the launcher, which rank 0 stops meanwhile, reads: it joins equal lines that
-- arrive within 50 ms, and on a busy machine a rank may write later than that. All ranks have started before the stop.
local function together(script)
  return ([[
    local barrier, ffi = require("accelhost._C").comm.barrier, require "ffi"
    ffi.cdef "int kill(int pid, int signal); int getppid(void);"
    barrier()
    if os.getenv "RANK" == "0" then ffi.C.kill(ffi.C.getppid(), 19) end
    barrier()
    %s
    io.stdout:flush()
    barrier()
    if os.getenv "RANK" == "0" then ffi.C.kill(ffi.C.getppid(), 18) end]]):format(script)
end

describe("accelhost launch", function()
  it("shows a line that all ranks print once", function()
    local result = launch {"--num_processes", 3, "-e", together "print('hello')"}
    run.prints("[r0-r2] hello\n", result)
    assert.equal(0, result.code, result.output)
  end)

  it("prints rank 0 bare and marks the others", function()
    local result = launch {"--num_processes=2", "-e", "print('I am ' .. os.getenv('RANK'))"}
    local lines = {}
    for line in result.stdout:gmatch("[^\n]+") do lines[#lines + 1] = line end
    table.sort(lines)
    assert.same({"I am 0", "[r1] I am 1"}, lines)
  end)

  it("keeps streams apart and ends unfinished lines", function()
    local result = launch {"--num_processes", 2, "-e", together "io.stdout:write('out') io.stderr:write('err')"}
    assert.same({[0] = "out\n", "err\n"}, {[0] = run.by_rank(result.stdout)[1], run.by_rank(result.stderr)[1]})
    assert.matches("%[.*out\n", result.stdout)
  end)

  it("passes the bytes of rank 0 unchanged, and on a terminal the final text of a redrawn line", function()
    local result = launch {"--num_processes", 2, "-e",
      "if os.getenv('RANK') == '0' then io.stdout:write('10%\\r50%\\r\\n\\0\\255\\r', 'x') end"}
    run.prints("10%\r50%\r\n\0\255\rx", result)
    local redraw = "io.stdout:write('10%\\r50%\\r100%\\n')"
    local shown = run.program {"script", "-qec", run.quote(run.path) .. " launch --num_processes 2 -e "
      .. run.quote(redraw), "/dev/null"}
    assert.truthy(shown.stdout:find("r1] 100%", 1, true), shown.stdout)
    assert.is_nil(shown.stdout:find("r1] 10%", 1, true))
  end)

  it("shows a line that does not end after a second", function()
    local script = "if os.getenv('RANK') == '1' then io.write('working') io.flush() " ..
      "io.open((...)):read() io.write(' on') end"
    local shell = [[mkfifo "$2.go"; "$0" launch --num_processes 2 -e "$1" "$2.go" > "$2" & launcher=$!
      for i in $(seq 150); do [ -s "$2" ] && break; sleep 0.1; done
      cat "$2"; echo "|"; echo > "$2.go"; wait $launcher; cat "$2"]]
    local path = os.tmpname()
    local result = run.program({"sh", "-c", shell, run.path, script, path}, {timeout = 20})
    os.remove(path)
    os.remove(path .. ".go")
    run.prints("[r1] working|\n[r1] working on\n", result)
  end)

  it("never mixes lines of different ranks", function()
    local script = "local r = os.getenv('RANK') for i = 1, 2000 do io.write(r, ('x'):rep(50), r, '\\n') end"
    local result = launch {"--num_processes", 3, "-e", script}
    local count = 0
    for line in result.stdout:gmatch("[^\n]+") do
      local prefix, first, last = line:match("^(%[?r?%d?%]? ?)(%d)x+(%d)$")
      assert.equal(first, last)
      assert.equal(first == "0" and "" or "[r" .. first .. "] ", prefix)
      count = count + 1
    end
    assert.equal(6000, count)
  end)

  it("sets the ranks' environment variables", function()
    local script = "print(os.getenv('RANK') == os.getenv('LOCAL_RANK'), os.getenv('WORLD_SIZE'), " ..
      "os.getenv('LOCAL_WORLD_SIZE'), os.getenv('GROUP_RANK'), os.getenv('OMP_NUM_THREADS'), io.read())"
    local result = launch {"--num-processes", 2, "--num_cpu_threads_per_process", 3, "-e", script}
    assert.same(run.everyone(2, "true\t2\t2\t0\t3\tnil\n"), run.by_rank(result.stdout), result.output)
  end)

  it("hands the script its own arguments untouched", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write("print(...)")
    file:close()
    local result = launch {"--num_processes", 1, path, "--num_processes", "9", "a b"}
    os.remove(path)
    run.prints("--num_processes\t9\ta b\n", result)
  end)

  it("refuses wrong usage with 2 and the nearest option", function()
    local result = launch {"--num_proceses", 2, "x.lua"}
    assert.equal(2, result.code)
    assert.truthy(result.stderr:find("did you mean '--num_processes'", 1, true))
    assert.equal(2, launch({"--num_processes", "two", "x.lua"}).code)
    assert.equal(2, launch({"--num_processes", 0, "x.lua"}).code)
    assert.equal(2, launch({"--num_processes"}).code)
    assert.equal(2, launch({}).code)
    assert.equal(2, launch({"no-such-file.lua"}).code)
    assert.equal(2, launch({"spec"}).code)
    assert.matches("launch: %-e expects code", launch({"--num_processes", 2, "-e"}).stderr)
  end)

  it("ends with 2 when every rank ended with 2 before its first collective", function()
    local result = launch {"--num_processes", 2, "-e", "io.stderr:write('usage: x\\n') os.exit(2)"}
    assert.equal(2, result.code)
    assert.same(run.everyone(2, "usage: x\n"), run.by_rank(result.stderr))
    local late = "require('accelhost._C').comm.barrier() os.exit(2)"
    assert.equal(3, launch({"--num_processes", 2, "-e", late}).code)
  end)

  it("ends the job when its output is not read, and when it cannot be written", function()
    local forever = "while true do print('x') end"
    for ranks = 1, 2 do
      local pipe = '("$0" launch --num_processes $1 -e "$2"; echo $? >&2) | head -1'
      local result = run.program({"sh", "-c", pipe, run.path, ranks, forever}, {timeout = 20})
      assert.equal("141\n", run.without_delays(result.stderr))
    end
    local full = '"$0" launch --num_processes 2 -e "$1" > /dev/full; echo $?'
    local result = run.program({"sh", "-c", full, run.path, forever}, {timeout = 20})
    run.prints("3\n", result)
    assert.equal("accelhost launch: cannot write the ranks' output: No space left on device\n",
      run.without_delays(result.stderr))
  end)

  it("ends with 3 when only the last lines could not be written", function()
    local full = [[for i in 1 2 3 4 5 6 7 8; do "$0" launch --num_processes 3 -e "$1" > /dev/full; echo $?; done]]
    local script = "print('x', os.getenv('RANK'))"
    local result = run.program({"sh", "-c", full, run.path, script}, {timeout = 30})
    assert.equal(("3\n"):rep(8), result.stdout)
    full = full:gsub("> /dev/full", "2> /dev/full")
    result = run.program({"sh", "-c", full, run.path, "io.stderr:write('x')"}, {timeout = 30})
    assert.equal(("3\n"):rep(8), result.stdout)
  end)

  it("reports a file size limit", function()
    local limited = [[ulimit -f 2000; "$0" launch --num_processes $1 -e "$2" > "$3"; echo $?]]
    local path = os.tmpname()
    local script = "for i = 1, 100000 do print(('x'):rep(100)) end"
    local result = run.program({"bash", "-c", limited, run.path, 2, script, path}, {timeout = 20})
    run.prints("3\n", result)
    assert.equal("accelhost launch: cannot write the ranks' output: File too large\n",
      run.without_delays(result.stderr))
    result = run.program({"bash", "-c", limited, run.path, 1, script, path}, {timeout = 20})
    run.prints("3\n", result)
    assert.matches("could not write all that the script printed", result.stderr)
    os.remove(path)
  end)

  it("hears a signal while the reader of its output stalls", function()
    local shell = [[mkfifo "$2"; sleep 60 < "$2" & reader=$!
      env --default-signal "$0" launch --num_processes 2 -e "$1" > "$2" & launcher=$!
      sleep 1; kill -TERM $launcher; wait $launcher; echo $?; kill $reader]]
    local path = os.tmpname()
    os.remove(path)
    local result = run.program({"sh", "-c", shell, run.path, "while true do print(('x'):rep(60)) end", path},
      {timeout = 30})
    os.remove(path)
    run.prints("143\n", result)
  end)

  it("loses nothing when the reader of its output is slow", function()
    local script = "for i = 1, 20000 do print(os.getenv('RANK'), ('x'):rep(60)) end"
    local shell = '"$0" launch --num_processes 2 -e "$1" | (sleep 2; cat) | wc -l'
    assert.equal("40000\n", run.program({"sh", "-c", shell, run.path, script}, {timeout = 20}).stdout)
  end)

  it("names a rank that was killed while the reader of its output stalls", function()
    local script = "if os.getenv('RANK') == '1' then os.execute('sleep 0.5; kill -9 $PPID') end " ..
      "while true do print(('x'):rep(60)) end"
    local shell = [["$0" launch --num_processes 2 -e "$1" 2> "$2" | sleep 60 & pipe=$!
      for i in $(seq 150); do [ -s "$2" ] && break; sleep 0.1; done; cat "$2"; kill $(jobs -p); kill $pipe]]
    local path = os.tmpname()
    local result = run.program({"bash", "-c", shell, run.path, script, path}, {timeout = 20})
    os.remove(path)
    assert.matches("rank 1 was killed by SIGKILL", result.stdout)
  end)

  it("works with closed standard streams", function()
    local closed = '"$0" launch --num_processes 2 -e "print(1)" <&- >&- 2>&-; echo $?'
    assert.equal("0\n", run.program({"sh", "-c", closed, run.path}, {timeout = 20}).stdout)
  end)

  it("passes a script from a pipe to every rank", function()
    local text = "#!/usr/bin/env accelhost\nprint('piped', arg[0], ...)"
    local result = run.host({"launch", "--num_processes", 3, "/dev/stdin", "a"}, {stdin = text, timeout = 20})
    assert.same(run.everyone(3, "piped\t/dev/stdin\ta\n"), run.by_rank(result.stdout), result.output)
    result = run.host({"launch", "--num_processes", 2, "-", "a"}, {stdin = text, timeout = 20})
    assert.same(run.everyone(2, "piped\t-\ta\n"), run.by_rank(result.stdout), result.output)
    local shell = '"$0" launch --num_processes 2 <(echo "$1"; echo "error(7)") b'
    result = run.program({"bash", "-c", shell, run.path, text}, {timeout = 20})
    assert.equal(3, result.code)
    assert.matches("^piped\t/dev/fd/%d+\tb\n$", run.by_rank(result.stdout)[1])
    assert.matches("rank %d failed: /dev/fd/%d+:3: 7", result.stderr)
  end)

  it("does not mind a parent that ignores the end of children, or one that blocks signals", function()
    local shell = 'env --ignore-signal=CHLD --block-signal=TERM,INT "$0" launch --num_processes 2 -e "$1"; echo $?'
    local result = run.program({"sh", "-c", shell, run.path, together "print(os.execute('exit 3') ~= -1)"},
      {timeout = 20})
    assert.same({[0] = "true\n0\n", "true\n"}, run.by_rank(result.stdout))
    result = run.program({"sh", "-c", shell, run.path, "error('x', 0)"}, {timeout = 20})
    run.prints("3\n", result)
    assert.matches("rank %d failed: x\n", result.stderr)
  end)

  it("starts 256 ranks where 256 files may be open, and sets that limit for the ranks", function()
    local script = "if os.getenv('RANK') == '7' then print(io.popen('ulimit -n'):read()) end"
    local shell = 'ulimit -Sn 256; "$0" launch --num_processes 256 -e "$1"; echo $?'
    local result = run.program({"bash", "-c", shell, run.path, script}, {timeout = 180})
    run.prints("[r7] 256\n0\n", result)
    shell = 'ulimit -n 200; "$0" launch --num_processes 256 -e "$1"; echo $?'
    result = run.program({"bash", "-c", shell, run.path, script}, {timeout = 60})
    run.prints("3\n", result)
    assert.matches("256 ranks need %d+ file descriptors, and the limit is 200", result.stderr)
  end)

  it("passes --jit and --gc-stress on", function()
    local result = launch {"--num_processes", 2, "--jit=off", "--gc-stress", "-e", "print(jit.status() and true)"}
    assert.same(run.everyone(2, "false\n"), run.by_rank(result.stdout), result.output)
  end)

  it("accepts thousands of arguments, and reports the limit", function()
    local many = {"--num_processes", 2, "-e", "print(select('#', ...), #arg)"}
    for i = 1, 20000 do many[4 + i] = "a" end
    local result = launch(many)
    assert.equal(2, result.code)
    assert.matches("20000 arguments are more than the 7900", result.stderr)
    for i = 7001, 20000 do many[4 + i] = nil end
    assert.same(run.everyone(2, "7000\t7000\n"), run.by_rank(launch(many).stdout))
  end)

  it("limits the memory of each rank, naming the one that asks for more", function()
    if run.no_memory_limit then return pending(run.no_memory_limit) end
    local grow = "if os.getenv('RANK') == '1' then local t = {} for i = 1, 1e6 do t[i] = ('x'):rep(1e6) .. i end end"
    local result = launch {"--num_processes", 2, "--max_memory", "300M", "-e", grow}
    assert.equal(3, result.code)
    assert.matches("rank 1 failed: not enough memory: Lua held %d+ MiB\n", result.stderr)
    assert.equal(2, launch({"--max_memory", "much", "x.lua"}).code)
  end)

  it("lets a rank write to a terminal that stops background writers", function()
    local words = {"script", "-qec", "stty tostop; " .. run.quote(run.path) .. " launch -e " .. run.quote "print(7)",
      "/dev/null"}
    assert.matches("7", run.program(words, {timeout = 30}).stdout)
  end)

  it("lists every option in its help", function()
    local result = launch {"--help"}
    run.succeeds(result)
    for _, name in ipairs {"--num_processes", "--num_cpu_threads_per_process", "--timeout", "--grace",
      "--max_memory", "--jit", "--gc_stress"} do
      assert.truthy(result.stdout:find(name, 1, true), name)
    end
  end)

  -- Ranks inside os.execute ignore SIGINT, and so does the child of their shell; each prints a line.
  local stubborn = "os.execute('trap \"\" INT; echo $RANK; sleep 60')"
  local function interrupt(options, rest)
    local marks = os.tmpname()
    local shell = ([[env --default-signal "$0" launch --num_processes 2 %s -e "$1" > "$2" 2> "$2.err" & launcher=$!
      for i in $(seq 200); do [ $(wc -l < "$2") = 2 ] && break; sleep 0.1; done
      kill -INT $launcher; %s wait $launcher]]):format(options, rest)
    local result = run.program({"sh", "-c", shell, run.path, stubborn, marks}, {timeout = 25})
    os.remove(marks)
    os.remove(marks .. ".told")
    return result
  end

  it("reports the last collective at Ctrl-C", function()
    local script = "local comm = require('accelhost._C').comm local marks = io.open(arg[1], 'a') for i = 1, 3 do " ..
      "comm.barrier() end marks:write('x\\n') marks:close() while true do end"
    local marks = os.tmpname()
    local result = run.program({"sh", "-c", [[
      env --default-signal "$0" launch --num_processes 2 -e "$1" "$2" & launcher=$!
      for i in $(seq 200); do [ $(wc -l < "$2") = 2 ] && break; sleep 0.1; done
      kill -INT $launcher; wait $launcher]], run.path, script, marks}, {timeout = 30})
    os.remove(marks)
    assert.equal(130, result.code)
    assert.matches("accelhost launch: interrupted; rank 0's last collective was barrier #3 at %-e:1\n", result.stderr)
  end)

  it("kills ranks that do not end within the grace", function()
    assert.equal(130, interrupt("--grace 0.2", "").code)
  end)

  it("kills at once at the second signal", function()
    local told = 'for i in $(seq 100); do grep -q "once more kills" "$2.err" && break; sleep 0.1; done; '
    assert.equal(130, interrupt("", told .. "kill -INT $launcher;").code)
  end)

  for _, name in ipairs {"INT", "TERM", "HUP"} do
    local number = ({INT = 2, TERM = 15, HUP = 1})[name]
    it(("passes SIG%s on and ends with %d"):format(name, 128 + number), function()
      local shell = ([[env --default-signal "$0" launch --num_processes 2 -e "$1" > "$2" & launcher=$!
        for i in $(seq 100); do [ -s "$2" ] && break; sleep 0.1; done
        kill -%s $launcher; wait $launcher]]):format(name)
      local marks = os.tmpname()
      -- A background job of a shell without job control ignores SIGINT; env undoes that.
      local script = "print('up') while true do end"
      local result = run.program({"sh", "-c", shell, run.path, script, marks}, {timeout = 30})
      os.remove(marks)
      assert.equal(128 + number, result.code)
    end)
  end
end)
