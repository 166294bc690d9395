-- Functions run in separate processes: launcher, notebook_launcher, debug_launcher.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"
local nn, optim = accelhost.nn, accelhost.optim

local function script(text, options) return run.script('local accelhost = require "accelhost" ' .. text, options) end

local function message_of(...)
  local ok, message = pcall(accelhost.launcher, ...)
  assert.is_false(ok)
  return message
end

describe("accelhost.launcher", function()
  it("returns rank 0's results of the function: numbers, nils, tables, tensors, modules", function()
    local Net = nn.Module:extend "Net"
    function Net:init() self.fc = nn.Linear(2, 1) end
    function Net:forward(x) return self.fc(x) end
    local net = Net()
    local a, b, c, d, e = accelhost.launcher(function(scale)
      local accelerator = accelhost.Accelerator()
      local total = accelerator:reduce(accelhost.tensor {accelerator.process_index + 1})
      return total * scale, nil, {1, {2}}, net, accelerator.process_index
    end, {num_processes = 2, args = {10}})
    assert.same({30}, a:tolist())
    assert.is_nil(b)
    assert.same({1, {2}}, c)
    assert.equal(Net, getmetatable(d))
    assert.is_true(d.fc.weight:equal(net.fc.weight))
    assert.not_equal(net, d)
    assert.equal(0, e)
    local function loss() return (accelhost.ones(3, {requires_grad = true}) * 2):sum() end
    assert.equal(6, accelhost.launcher(loss):item())
    assert.equal(0, select("#", accelhost.launcher(function() end)))
  end)

  it("copies much data to every process, and shares its memory with none of them", function()
    local x = accelhost.arange(2 ^ 20)
    local sum, mine = accelhost.launcher(function()
      local accelerator = accelhost.Accelerator()
      x:add_(1 + accelerator.process_index)
      return accelerator:gather(x:sum():reshape(1)):tolist(), x
    end, {num_processes = 2})
    local before = x:sum():item()
    assert.same({before + 2 ^ 20, before + 2 ^ 21}, sum)
    assert.is_true(mine:equal(x + 1))
  end)

  it("passes arguments with nils between and behind them", function()
    local function count(...) return select("#", ...), ... end
    assert.same({3, 1, nil, 2}, {accelhost.launcher(count, {args = {1, nil, 2}})})
    assert.same({3, 1}, {accelhost.launcher(count, {args = {1, n = 3}})})
  end)

  it("trains a model defined here, and returns it trained", function()
    local model = nn.Linear(3, 1)
    local before = model.weight:detach():clone()
    local x = accelhost.arange(24):float():reshape(8, 3) / 10
    local function train(epochs)
      local accelerator = accelhost.Accelerator()
      local optimizer = optim.SGD(model:parameters(), {lr = 0.01})
      local set = accelhost.data.TensorDataset(x, x:sum(1, true))
      local loader = accelhost.data.DataLoader(set, {batch_size = 2})
      model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
      for _ = 1, epochs do
        for input, target in loader do
          accelerator:backward(nn.functional.mse_loss(model(input), target))
          optimizer:step()
          optimizer:zero_grad()
        end
      end
      return accelerator:unwrap_model(model), accelerator.num_processes
    end
    local trained, processes = accelhost.launcher(train, {num_processes = 2, args = {3}})
    assert.equal(2, processes)
    assert.is_true(model.weight:equal(before))
    assert.is_false(trained.weight:equal(before))
    -- The same in a session that has made an accelerator and trained itself, and once more.
    local again = accelhost.launcher(train, {num_processes = 2, args = {3}})
    assert.is_true(again.weight:equal(trained.weight))
  end)

  it("begins with the random numbers that the session would draw next", function()
    accelhost.manual_seed(11)
    local there = accelhost.launcher(function() return accelhost.rand(3) end)
    assert.is_true(there:equal(accelhost.rand(3)))
  end)

  it("accepts the options of launch", function()
    local precision, threads = accelhost.launcher(function()
      return accelhost.Accelerator().mixed_precision, accelhost.get_num_threads()
    end, {mixed_precision = "bf16", num_cpu_threads_per_process = 2})
    assert.same({"bf16", 2}, {precision, threads})
    assert.matches("timed out after 0.2 s", message_of(function()
      local accelerator = accelhost.Accelerator()
      if accelerator.is_main_process then accelerator:wait_for_everyone() else os.execute "sleep 5" end
    end, {num_processes = 2, timeout = 0.2, grace = 1}))
  end)

  it("restarts all processes when one failed, as often as configured", function()
    local result = script [[
      print(accelhost.launcher(function()
        if os.getenv "ACCELHOST_RESTART_COUNT" == "0" then error "once" end
        return os.getenv "ACCELHOST_RESTART_COUNT"
      end, {max_restarts = 2}))]]
    run.prints("1\n", result)
    assert.matches("launcher: rank 0 failed: [^\n]*once\n[^\n]*: in function\nlauncher: attempt 0 failed; "
      .. "all processes start again .restart 1 of at most 2.\n$", result.stderr)
  end)

  it("shows the processes' output as launch does", function()
    local result = script [[
      print "before"
      accelhost.launcher(function()
        print "all"
        print(accelhost.Accelerator().process_index)
      end, {num_processes = 2})
      print "after"]]
    run.succeeds(result)
    assert.same({[0] = "before\nall\n0\nafter\n", "all\n1\n"}, run.by_rank(result.stdout))
    assert.equal("", result.stderr)
  end)

  it("raises the error of a process with its traceback and its rank", function()
    local function inner() error "went wrong" end
    local message = message_of(function()
      local accelerator = accelhost.Accelerator()
      if accelerator.process_index == 1 then inner() end
      accelerator:wait_for_everyone()
    end, {num_processes = 2})
    assert.matches("^[^\n]*launcher_spec.lua:%d+: launcher: rank 1 failed: "
      .. "spec/launcher/launcher_spec.lua:%d+: went wrong", message)
    assert.matches("\n  spec/launcher/launcher_spec.lua:%d+: in inner\n", message)
    assert.matches("launcher: rank 0 ended because of it$", message)
    assert.is_nil(message:find("-e:1", 1, true))
  end)

  it("reports a process that was killed, or exited with an exit code", function()
    assert.matches("launcher: rank 0 was killed by SIGKILL", message_of(function()
      os.execute("kill -9 " .. io.open("/proc/self/stat"):read "*n")
    end))
    assert.matches("launcher: rank 0 exited with code 5", message_of(function() os.exit(5) end))
    assert.matches("launcher: the processes ended with code 2", message_of(function() os.exit(2) end))
    assert.equal(0, select("#", accelhost.launcher(function() os.exit(0) end)))
  end)

  it("limits the memory of each process", function()
    if run.no_memory_limit then return pending(run.no_memory_limit) end
    assert.matches("launcher: rank 0", message_of(function() return accelhost.zeros(4e7):sum():item() end,
      {max_memory = "100M"}))
  end)

  it("names values that cannot be serialized, arguments and results", function()
    local file = io.stdout
    local function train() return file end
    assert.matches("launcher: upvalue 'file' of train: a file cannot be serialized", message_of(train))
    assert.matches("launcher: args%[2%].log: a file cannot be serialized",
      message_of(print, {args = {1, {log = file}}}))
    assert.matches("rank 0 failed: launcher: its result.out: a file cannot be serialized",
      message_of(function() return {out = io.stdout} end))
  end)

  it("refuses arguments that it does not know, and to start from a rank", function()
    assert.matches("launcher: function: expected a function", message_of(3))
    assert.matches("launcher: unknown option 'num_proceses'.*num_processes", message_of(print, {num_proceses = 2}))
    assert.matches("launcher: args: expected a list of arguments, got the field 'x'",
      message_of(print, {args = {x = 1}}))
    assert.matches("launcher: unknown mixed_precision 'fp7'", message_of(print, {mixed_precision = "fp7"}))
    assert.matches("launcher: this process is rank 0 of a job", message_of(function() accelhost.launcher(print) end))
    local result = run.host {"launch", "--num_processes", "2", "-e", "require('accelhost').launcher(print)"}
    assert.equal(3, result.code)
    assert.matches("launcher: this process is rank %d of a job; call it from a script", result.stderr)
  end)

  it("runs functions of modules, which are loaded there by name, and copies the current values of data", function()
    local folder = require "spec.support.folder"
    local leave = folder.enter()
    local write = files.write
    write("settings.lua", "return {rate = 1}")
    write("work.lua", [[
      local ffi = require "ffi"
      local cell = ffi.new "int[1]"
      local work = {}
      function work.run(x) cell[0] = x return cell[0] + 1 end
      return work]])
    write("main.lua", [[
      local accelhost, settings, work = require "accelhost", require "settings", require "work"
      settings.rate = 5
      print(accelhost.launcher(function(x) return work.run(x), settings.rate, arg[1] end, {args = {6}}))]])
    local result = run.host({"main.lua", "word"}, {})
    leave()
    assert.equal("7\t5\tword\n", result.output)
  end)

  it("ends the processes at Ctrl-C, and then this one", function()
    local result = script [[
      local parent = accelhost.launcher(function() return 1 end) and io.open("/proc/self/stat"):read "*n"
      accelhost.launcher(function()
        os.execute("kill -INT " .. parent)
        os.execute "sleep 30"
      end, {num_processes = 2, grace = 5})
      print "never"]]
    assert.equal(130, result.code)
    run.prints("", result)
    assert.matches("accelhost: interrupted at", result.stderr)
  end)
end)

describe("accelhost.launcher at the prompt", function()
  -- The seconds of a slow input are left out.
  local function prompt(lines)
    local result = run.host({"repl"}, {stdin = lines})
    result.output = result.output:gsub("%(%d+%.%d s%)\n", "")
    return result
  end

  it("copies locals, functions and classes of the prompt, and names that are available there", function()
    local result = prompt [[
local Net = nn.Module:extend "Net"
function Net:init() self.fc = nn.Linear(4, 2) end
function Net:forward(x) return F.relu(self.fc(x)) end
local scale = 3
function helper(x) return x * scale end
local model = Net()
function train(n)
  local total = model(ones(1, 4)):numel()
  for i = 1, n do total = total + helper(i) end
  return model, accelerator.num_processes, total
end
scale = 4
accelhost.launcher(train, {num_processes = 2, args = {3}})
model._class == Net
rand(300, 300):matmul(rand(300, 300)):shape()[1]
accelhost.notebook_launcher(train, {1}, 2)
]]
    local net = "Net(\n  (fc): Linear(in_features=4, out_features=2, bias=True)\n)\n2\n"
    assert.equal(net .. "26\ntrue\n300\n" .. net .. "6\n", result.output)
    run.succeeds(result)
  end)

  it("shows a failure there, and continues", function()
    local result = prompt [[
function inner() error "boom" end
accelhost.launcher(function() inner() end, {num_processes = 2})
accelhost.launcher(function() return undefined.y end)
1 + 1
]]
    assert.matches("^%[2%]:1: launcher: rank [01] failed: %[1%]:1: boom\n  %[1%]:1: in inner\n  %[2%]:1: in function\n"
      .. "launcher: rank [01] failed in the same way", result.stdout)
    local _, hints = result.stdout:gsub("nothing is called 'undefined' here", "")
    assert.equal(1, hints)
    assert.matches("\n2\n$", result.stdout)
  end)

  it("returns to the prompt at Ctrl-C", function()
    local at = terminal.open {run.path, "repl"}
    at:wait "%[1%]> $"
    at:type "accelhost.launcher(function() print 'begun' while true do end end, {num_processes = 2})\n"
    at:wait "begun\n"
    at:type "\3"
    assert.matches("interrupted at %[1%]:1\n", at:wait "%[2%]> $")
    assert.equal("2\n", at:line "1 + 1")
    at:type "\4"
    assert.equal(0, at:close())
  end)

  it("ends with the lines of a file at Ctrl-C", function()
    local result = prompt [[
parent = io.open("/proc/self/stat"):read "*n"
accelhost.launcher(function() io.popen("sleep 0.3; kill -INT " .. parent) while true do end end, {num_processes = 2})
1 + 1
]]
    run.prints("", result)
    assert.equal(130, result.code)
  end)
end)

describe("Accelerate's launchers", function()
  it("accept Accelerate's arguments by position", function()
    local function train(rate, name) return accelhost.Accelerator().num_processes * rate .. name end
    assert.equal("1x", accelhost.notebook_launcher(train, {0.5, "x"}, 2))
    assert.equal("0.5x", accelhost.notebook_launcher(train, {0.5, "x"}, {use_port = "29501"}))
    assert.equal("1x", accelhost.debug_launcher(train, {0.5, "x"}))
    assert.error_matches(function() accelhost.notebook_launcher(train, {}, 2, {num_nodes = 2}) end,
      "notebook_launcher: num_nodes: processes start on this host only")
  end)

  it("do not mind that an Accelerator was made in the session before", function()
    local result = script [[
      local accelerator = accelhost.Accelerator()
      accelhost.rand(500, 500):matmul(accelhost.rand(500, 500))
      print(accelhost.notebook_launcher(function() return accelhost.Accelerator().num_processes end, {}, 2))
      print(accelerator.num_processes, accelhost.rand(300, 300):matmul(accelhost.rand(300, 300)):shape()[1])]]
    assert.equal("2\n1\t300\n", result.output)
  end)
end)
