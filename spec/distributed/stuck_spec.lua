local check = require "spec.support.check"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

local case = "spec/distributed/cases/stuck.lua"

local function line_of(text)
  local number = 0
  for line in io.lines(case) do
    number = number + 1
    if line:find(text, 1, true) then return ("%s:%d"):format(case, number) end
  end
end

local has = check.has

-- A pipe with a name that is held open and never written to.
local function with_fifo(fn)
  local path = os.tmpname()
  os.remove(path)
  os.execute("mkfifo " .. path)
  local held = io.open(path, "r+")
  fn(path)
  held:close()
  os.remove(path)
end

local function time_out(way, path)
  local result = run.host({"launch", "--num_processes", 2, "--timeout", 1.5, case, way, path}, {timeout = 30})
  assert.equal(4, result.code)
  return result.stderr
end

local seen = "timed out after 1.5 s: rank 1 was last seen at " .. line_of "comm.barrier()" .. ", barrier #1; now it "

describe("the report of a collective whose time is up", function()
  local scene = scenes.new(it, 4)

  scene("reports that the missing rank was stopped", function() return time_out("stop") end, function(told)
    has(told, seen .. "is stopped by a signal (kill -CONT ")
    has(told, "rank 1 had been stopped by a signal and was killed")
  end)

  scene("names the line of an endless loop", function()
    return not run.no_handlers and time_out("loop")
  end, function(told)
    if not told then return pending(run.no_handlers) end
    has(told, seen .. "runs in compiled code at " .. line_of "while true do count")
  end)

  scene("names the read that never returns, its file and its line", function()
    if run.no_handlers then return end
    local told, name
    with_fifo(function(path) told, name = time_out("read", path), path end)
    return told, name
  end, function(told, path)
    if not told then return pending(run.no_handlers) end
    has(told, seen .. "waits in read of '" .. path .. "' at " .. line_of "io.open")
  end)

  scene("names the line of an endless sequence of ops", function() return time_out("matmul") end, function(told)
    has(told, "; now it runs ")
    has(told, "at " .. line_of "a:matmul(a)")
  end)
end)

-- Start a launcher, wait for a line that begins so on its stderr, do something with $launcher, end it.
local function ask(way, path, ranks)
  local shell = [[
    log=$1; shift
    "$0" launch --num_processes ]] .. ranks .. [[ --patience 0.2 "$@" 2> "$log" & launcher=$!
    for i in $(seq 200); do grep -q "has waited" "$log" && break; sleep 0.05; done
    kill -USR2 $launcher
    for i in $(seq 100); do [ $(grep -c "accelhost: [rw][ua]" "$log") -ge ]] .. ranks .. [[ ] && break; sleep 0.05; done
    kill -0 $launcher && echo "still there"
    kill -TERM $launcher; wait $launcher; cat "$log"]]
  local log = os.tmpname()
  local result = run.program({"bash", "-c", shell, run.path, log, case, way, path}, {timeout = 60})
  os.remove(log)
  has(result.stdout, "still there")
  return result.stdout
end

describe("kill -USR2 of a launcher", function()
  it("makes every rank write its traceback, and ends none", function()
    if run.no_handlers then return pending(run.no_handlers) end
    with_fifo(function(path)
      local said = run.by_rank(ask("read", path, 2))
      has(said[1], "accelhost: waits in read of '" .. path .. "' at " .. line_of "io.open")
      has(said[1], "  " .. line_of "ways[way]()" .. ": in main chunk\n")
      has(said[0], "accelhost: waits for other ranks at " .. case .. ":20")
      has(said[0], "  " .. case .. ":20: in main chunk\n")
    end)
  end)

  it("reports the line in a compiled loop", function()
    if run.no_handlers then return pending(run.no_handlers) end
    local said = run.by_rank(ask("loop", "", 2))
    has(said[1], "accelhost: runs in compiled code at " .. line_of "while true do count")
  end)
end)

describe("kill -USR2 of a script without a launcher", function()
  it("writes the traceback and lets the script continue, with its own hook", function()
    local result = run.script([[
      local hooked = 0
      debug.sethook(function() hooked = hooked + 1 end, "", 1)
      jit.off()
      local function ask() os.execute("kill -USR2 $PPID") end
      ask()
      local before = hooked
      for i = 1, 1000 do end
      print(hooked > before + 500)]])
    run.prints("true\n", result)
    assert.matches("^accelhost: runs at [^\n]+:4\n  [^\n]+:4: in ask\n  [^\n]+:5: in main chunk\n$",
      (result.stderr:gsub("/[^\n:]*/", "")))
  end)

  it("does not reach a loader's workers or programs that the script starts", function()
    local result = run.script([[
      os.execute("kill -USR2 $PPID; sleep 0.3; echo done")
      print "continued"]])
    run.prints("done\ncontinued\n", result)
    run.succeeds(result)
  end)
end)
