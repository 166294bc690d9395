local run = require "spec.support.run"

local function launch(words, options)
  local all = {"launch"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  options = options or {}
  options.timeout = options.timeout or 30
  return run.host(all, options)
end

-- Lines are joined when they come at about the same time: the ranks start together.
local together = "require('accelhost._C').comm.barrier() "

describe("accelhost launch", function()
  it("shows a line that all ranks print once", function()
    local result = launch {"--num_processes", 3, "-e", together .. "print('hello')"}
    assert.equal("[r0-r2] hello\n", result.stdout)
    assert.equal(0, result.code)
  end)

  it("prints rank 0 bare and marks the others", function()
    local result = launch {"--num_processes=2", "-e", "print('I am ' .. os.getenv('RANK'))"}
    local lines = {}
    for line in result.stdout:gmatch("[^\n]+") do lines[#lines + 1] = line end
    table.sort(lines)
    assert.same({"I am 0", "[r1] I am 1"}, lines)
  end)

  it("keeps streams apart and ends unfinished lines", function()
    local result = launch {"--num_processes", 2, "-e", together .. "io.stdout:write('out') io.stderr:write('err')"}
    assert.equal("[r0-r1] out\n", result.stdout)
    assert.equal("[r0-r1] err\n", result.stderr)
  end)

  it("keeps what a redrawn line finally said", function()
    local result = launch {"--num_processes", 2, "-e", "io.stdout:write('10%\\r50%\\r100%\\n')"}
    assert.equal("[r0-r1] 100%\n", result.stdout)
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

  it("tells the ranks who they are", function()
    local script = "print(os.getenv('RANK') == os.getenv('LOCAL_RANK'), os.getenv('WORLD_SIZE'), " ..
      "os.getenv('LOCAL_WORLD_SIZE'), os.getenv('GROUP_RANK'), os.getenv('OMP_NUM_THREADS'), io.read())"
    local result = launch {"--num-processes", 2, "--num_cpu_threads_per_process", 3, "-e", script}
    assert.equal("[r0-r1] true\t2\t2\t0\t3\tnil\n", result.stdout)
  end)

  it("hands the script its own arguments untouched", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write("print(...)")
    file:close()
    local result = launch {"--num_processes", 1, path, "--num_processes", "9", "a b"}
    os.remove(path)
    assert.equal("--num_processes\t9\ta b\n", result.stdout)
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
    assert.equal("[r0-r1] usage: x\n", result.stderr)
    local late = "require('accelhost._C').comm.barrier() os.exit(2)"
    assert.equal(3, launch({"--num_processes", 2, "-e", late}).code)
  end)

  it("ends the job when nobody reads its output, and when it cannot be written", function()
    local forever = "while true do print('x') end"
    for ranks = 1, 2 do
      local pipe = '("$0" launch --num_processes $1 -e "$2"; echo $? >&2) | head -1'
      local result = run.program({"sh", "-c", pipe, run.path, ranks, forever}, {timeout = 20})
      assert.equal("141\n", result.stderr)
    end
    local full = '"$0" launch --num_processes 2 -e "$1" > /dev/full; echo $?'
    local result = run.program({"sh", "-c", full, run.path, forever}, {timeout = 20})
    assert.equal("3\n", result.stdout)
    assert.equal("accelhost launch: cannot write what the ranks print: No space left on device\n", result.stderr)
  end)

  it("works with closed standard streams", function()
    local closed = '"$0" launch --num_processes 2 -e "print(1)" <&- >&- 2>&-; echo $?'
    assert.equal("0\n", run.program({"sh", "-c", closed, run.path}, {timeout = 20}).stdout)
  end)

  it("lists every option in its help", function()
    local result = launch {"--help"}
    assert.equal(0, result.code)
    for _, name in ipairs {"--num_processes", "--num_cpu_threads_per_process", "--timeout", "--grace"} do
      assert.truthy(result.stdout:find(name, 1, true), name)
    end
  end)

  -- Ranks inside os.execute ignore SIGINT, and so does what the shell there runs.
  local stubborn = "print('up') os.execute('trap \"\" INT; sleep 60')"
  local function interrupt(options, rest)
    local marks = os.tmpname()
    local shell = ([[env --default-signal "$0" launch --num_processes 2 %s -e "$1" > "$2" & launcher=$!
      for i in $(seq 100); do [ -s "$2" ] && break; sleep 0.1; done
      kill -INT $launcher; %s wait $launcher]]):format(options, rest)
    local result = run.program({"sh", "-c", shell, run.path, stubborn, marks}, {timeout = 20})
    os.remove(marks)
    return result
  end

  it("kills ranks that do not end within the grace", function()
    assert.equal(130, interrupt("--grace 0.2", "").code)
  end)

  it("kills at once at the second signal", function()
    assert.equal(130, interrupt("", "sleep 0.2; kill -INT $launcher;").code)
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
