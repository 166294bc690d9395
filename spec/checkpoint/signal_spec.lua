-- Stopping with a checkpoint when a signal asks for it.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave

-- A job that steps until it is asked to end; "up" is there when all listen. $0 the host, $1 the script.
local job = [[
  local accelhost = require "accelhost"
  local accelerator = accelhost.Accelerator{project_config = {project_dir = "run", automatic_checkpoint_naming = true}}
  local net = accelerator:prepare(accelhost.nn.Linear(2, 2))
  if accelerator:load_state() then print("steps", net.bias[0]:item() > 0) os.exit(0) end
  accelerator:save_on_signal{OPTIONS}
  accelerator:wait_for_everyone()
  if accelerator.process_index == RANK then
    local f = io.open("/proc/self/stat") local pid = f:read "*n" f:close()
    f = io.open("up", "w") f:write(pid) f:close()
  end
  accelhost.no_grad(function()
    net.bias:fill_(0)
    for _ = 1, 1e9 do
      net.bias:add_(1)
      local name = accelerator:check_signal()
      if name then print(name) return end
    end
  end)]]

local start = [[env --default-signal "$0" launch --num_processes 2 -e "$1" > out 2> err & launcher=$!
  for i in $(seq 1200); do [ -s up ] && break; sleep 0.05; done; ]]

local function play(shell, options, rank)
  local text = job:gsub("OPTIONS", options or ""):gsub("RANK", rank or 0)
  local all = start .. shell .. "; wait $launcher; echo $?; cat out; cat err >&2"
  local result = run.program({"bash", "-c", all, run.path, text}, {timeout = 60})
  os.remove "up"
  return result, text
end

describe("A signal", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  for _, signal in ipairs {"TERM", "USR1"} do
    it("SIG" .. signal .. " to the launcher stops all processes at one step, with a checkpoint", function()
      local result, text = play("kill -" .. signal .. " $launcher")
      assert.equal(signal == "TERM" and "143" or "0", result.stdout:match "^%d+", result.output)
      assert.same(run.everyone(2, signal .. "\n"), run.by_rank(result.stdout:gsub("^%d+\n", "")), result.output)
      assert.same({"checkpoint_0"}, folder.names "run/checkpoints")
      local again = run.host({"launch", "--num_processes", 2, "-e", text}, {timeout = 60})
      assert.same(run.everyone(2, "steps\ttrue\n"), run.by_rank(again.stdout), again.output)
    end)
  end

  it("to one process stops all of them, and the job ends well", function()
    local result = play("kill -TERM $(cat up)", 'output_dir = "last"', 1)
    assert.equal("0", result.stdout:match "^%d+", result.output)
    assert.same(run.everyone(2, "TERM\n"), run.by_rank(result.stdout:gsub("^%d+\n", "")), result.output)
    assert.same({"err", "last", "out"}, folder.names ".")
  end)

  it("is agreed at every n-th call only, where that is asked for", function()
    local result = play("kill -USR1 $launcher", 'every = 50, signals = {"SIGUSR1"}')
    assert.equal("0", result.stdout:match "^%d+", result.output)
    assert.same(run.everyone(2, "USR1\n"), run.by_rank(result.stdout:gsub("^%d+\n", "")), result.output)
  end)

  it("SIGUSR1 ends no job whose script does not listen, and is reported", function()
    local result = run.program({"bash", "-c", [["$0" launch --num_processes 2 -e "$1" 2> err & launcher=$!
      for i in $(seq 1200); do [ -e up0 -a -e up1 ] && break; sleep 0.05; done
      kill -USR1 $launcher; for i in $(seq 1200); do grep -q listen err && break; sleep 0.05; done
      touch on; wait $launcher; echo $?; cat err]], run.path, [[
      io.open("up" .. os.getenv "RANK", "w"):close()
      while not io.open "on" do os.execute "sleep 0.05" end]]}, {timeout = 60})
    assert.equal("0\naccelhost launch: ranks 0, 1 do not listen to SIGUSR1 (accelerator:save_on_signal does)\n",
      result.output)
  end)

  it("that is not known is refused, and check_signal without save_on_signal", function()
    local accelhost = require "accelhost"
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator:check_signal() end, "check_signal: call save_on_signal first")
    for _, name in ipairs {"KILL", "term", 15} do
      assert.error_matches(function() accelerator:save_on_signal {signals = {name}} end,
        "save_on_signal: signals: expected names among TERM, USR1, INT, HUP, got")
    end
  end)
end)
