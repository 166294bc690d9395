-- A prompt whose lines run in several processes.
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

local function prompt(ranks, lines, options)
  options = options or {}
  options.stdin = lines
  return run.host({"repl", "--num_processes", tostring(ranks)}, options)
end

-- Are lines edited? The plugin is built where libedit is.
local plugin = io.open((run.path:gsub("[^/]+$", "accelhost-edit.so")))
local edits = plugin ~= nil
if plugin then plugin:close() end

-- Return the prompt's output for lines in three processes, when none fails.
local function shown(lines, ranks)
  local result = prompt(ranks or 3, lines)
  assert.equal("", result.stderr)
  run.succeeds(result)
  return result.stdout
end

-- A line that presses Ctrl-C at the prompt a second later, in rank 0.
local press = [[if accelerator.process_index == 0 then io.popen("sleep 1; kill -INT " .. ]]
  .. [[io.open("/proc/self/stat"):read("*a"):match "%) %a (%d+)") end ]]

describe("a prompt in several processes", function()
  it("shows output common to all ranks once, and other output per rank", function()
    assert.equal("2\n[r0] 0\n[r1] 1\n[r2] 2\ntensor([6.])\n[r0-r1] \"low\"\n[r2] \"high\"\n", shown [[
1 + 1
accelerator.process_index
accelerator:reduce(tensor{accelerator.process_index + 1.0})
accelerator.process_index < 2 and "low" or "high"
]])
  end)

  it("shows printed text in the same way, before values", function()
    -- A rank that a busy machine delays arrives too late to be joined.
    local text, lines
    for _ = 1, 10 do
      text, lines = shown [[
print("all") io.write("un", "ended") return 7
print(accelerator.process_index)
]], {}
      for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
      if #lines == 6 then break end
    end
    table.sort(lines, function(a, b) return a < b end)
    assert.same({"7", "[r0] 0", "[r1] 1", "[r2] 2", "all", "unended"}, lines)
    assert.matches("unended\n7\n", text)
  end)

  it("keeps locals, globals and functions of several lines in every process", function()
    assert.equal("[r0] 10\n[r1] 11\n[r2] 12\n[r0] 20\n[r1] 22\n[r2] 24\n", shown [[
local base = 10
function f(x)
  return x + accelerator.process_index
end
f(base)
2 * _
]])
  end)

  it("runs a line on some ranks, and on others when requested", function()
    assert.equal("20\n[r0] 0\n[r2] 2\nlines run on [r0-r1]; %ranks all makes it all again\n[r0] 0\n[r1] 1\n"
      .. "lines run on all ranks\n1\n", shown [[
r = accelerator.process_index
%rank 2 10 * r
%ranks 0,2 r
%ranks 0-1
r
%ranks all
1
]])
  end)

  it("continues on all ranks after an error everywhere, or on one before a collective", function()
    local result = prompt(3, [[
r = accelerator.process_index
error "all"
if r == 1 then error "one" end accelerator:wait_for_everyone()
accelerator:reduce(tensor{1.0})
if r == 0 then accelerator:wait_for_everyone() end
accelerator:reduce(tensor{1.0})
if r == 2 then accelerator:reduce(tensor{1.0, 2}) else accelerator:wait_for_everyone() end
accelerator:reduce(tensor{1.0})
]], {timeout = 30})
    assert.equal(1, result.code)
    local text = result.stdout
    assert.matches("^%[2%]:1: all\n", text)
    assert.matches("%[r0,r2%] %[3%]:1: barrier #%d at %[3%]:1: rank 1 ended this line without it", text)
    assert.matches("%[r1%] %[3%]:1: one\n", text)
    assert.matches("%[r0%] %[5%]:1: barrier #%d at %[5%]:1: rank [12] ended this line without it", text)
    assert.matches("%[7%]:1: collective #%d differs: rank 0 barrier", text)
    local _, count = text:gsub("\ntensor%(%[3%.%]%)", "")
    assert.equal(3, count)
  end)

  it("reports at once that the others are not in a line when one rank waits for them", function()
    local result = prompt(2, [[
%rank 1 accelerator:wait_for_everyone()
accelerator:reduce(tensor{1.0})
%rank 0 accelerator:reduce(tensor{1.0})
accelerator:reduce(tensor{1.0})
]], {timeout = 20})
    assert.matches("barrier #1 at %[1%]:1: rank 0 ended this line without it", result.stdout)
    local _, count = result.stdout:gsub("tensor%(%[2%.%]%)", "")
    assert.equal(2, count)
  end)

  it("forgets works and messages of a group that restarts, and reports it where one is waited for", function()
    local result = prompt(2, [[
C = require "accelhost._C"
r, t = accelerator.process_index, tensor{1.0};
work = C.comm.all_reduce_async(t)
if r == 0 then C.comm.barrier() end
if r == 0 then C.comm.send(t, 1) end
work:wait()
C.comm.all_reduce(t)
t
if r == 0 then C.comm.recv(tensor{0.0}, 1) end
work = C.comm.all_reduce_async(t)
work:wait()
t
]], {timeout = 20})
    assert.matches("%[6%]:1: all_reduce_async: a collective failed since it began, and its group was restarted",
      result.stdout)
    assert.matches("tensor%(%[2%.%]%)", result.stdout)
    assert.matches("%[r0%] %[9%]:1: recv[^\n]*rank 1 ended this line", result.stdout)
    assert.matches("tensor%(%[4%.%]%)", result.stdout)
  end)

  it("trains the digits line by line, and continues after a failure in backward", function()
    local result = prompt(2, [[
manual_seed(0)
local r = accelerator.process_index
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = 3e-3})
local loader = data.DataLoader(data.SyntheticDigits{size = 640}, {batch_size = 32, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
function epoch()
  local total = 0
  for images, labels in loader do
    local loss = F.cross_entropy(model(images), labels)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    total = total + loss:item()
  end
  return accelerator:reduce(tensor{total / #loader}, "mean"):item()
end
first = epoch();
x = rand(8, 1, 28, 28)
if r == 1 then error "before" end accelerator:backward(model(x):sum())
optimizer:zero_grad()
second = epoch();
accelerator:gather(model[2].weight:sum():reshape(1)):unique():numel()
second < first
]], {timeout = 60})
    assert.matches("%[r1%] %[10%]:1: before\n", result.stdout)
    assert.matches("%[r0%] %[10%]:1: all_reduce_async #%d+ at %[10%]:1: rank 1 ended this line", result.stdout)
    assert.matches("\n1\ntrue\n$", result.stdout)
  end)

  it("ends a line by Ctrl-C on all ranks: a loop, a wait for each other, a wait for another program", function()
    local result = prompt(2, [[
C = require "accelhost._C"
r = accelerator.process_index
]] .. press .. [[while true do end
]] .. press .. [[C.comm.recv(tensor{0.0}, 1 - r)
]] .. press .. [[if r == 1 then os.execute "sleep 20" end accelerator:wait_for_everyone()
accelerator:reduce(tensor{1.0})
]], {timeout = 40})
    assert.matches("^interrupted at %[3%]:1\n", result.stdout)
    assert.matches("interrupted at %[4%]:1[^\n]*\n", result.stdout)
    assert.matches("\ntensor%(%[2%.%]%)\n", result.stdout)
  end)

  it("lets subgroups of the job restart too", function()
    local text = prompt(3, [[
C = require "accelhost._C"
r = accelerator.process_index
part = C.comm.split(r == 2 and 1 or 0, r)
t = tensor{1.0};
if r == 0 then part:barrier() end
t = tensor{1.0}; part:all_reduce(t)
t
if r < 2 then part:barrier() else C.comm.barrier() end
C.comm.all_reduce(t)
t
]], {timeout = 20}).stdout
    assert.matches("%[r0%] %[5%]:1: barrier #%d of group 1 at [^\n]*rank 1 ended this line", text)
    assert.matches("%[r0%-r1%] tensor%(%[2%.%]%)\n%[r2%] tensor%(%[1%.%]%)\n", text)
    assert.matches("tensor%(%[5%.%]%)\n$", text)
  end)

  it("is edited, completed and interrupted at a terminal", function()
    local at = terminal.open({run.path, "repl", "--num_processes", "2"})
    at:wait "Lines run in 2 processes"
    at:wait "%[1%]> $"
    assert.equal("2\n", at:line "1 + 1")
    assert.equal("[r0] 0\n[r1] 1\n", at:line "accelerator.process_index")
    at:line "local wonderful = {deeper = 7}"
    if edits then
      at:type "wond\t.dee\t\n"
      assert.matches("\n7\n", at:wait "%[5%]> $")
      at:type "%rest\t\n"
      at:wait "2 new processes\n"
      at:wait "%[5%]> $"
    else
      at:line "wonderful.deeper"
    end
    at:type "print 'runs' while true do end\n"
    at:wait "runs\n"
    os.execute "sleep 0.5"
    at:type "\3"
    assert.matches("interrupted at %[5%]:1\n", at:wait "%[6%]> $")
    at:type "for i = 1, 2 do\n"
    at:wait "%.%. "
    at:type "print(i) end\n"
    assert.matches("\n1\n2\n", at:wait "%[7%]> $")
    at:type "\4"
    assert.equal(0, at:close())
  end)

  it("names a rank that dies, continues without processes, and starts new ones", function()
    local result = prompt(2, [[
kept = 1
if accelerator.process_index == 1 then os.execute("kill -9 " .. io.open("/proc/self/stat"):read "*n") end
1 + 1
%restart
accelerator:reduce(tensor{1.0})
kept
]], {timeout = 30})
    assert.equal(1, result.code)
    assert.matches("^accelhost repl: rank 1 was killed by SIGKILL[^\n]*\naccelhost repl: rank 0 ended because of it\n$",
      result.stderr)
    assert.equal("the processes have ended, and with them their variables; %restart starts new ones\n"
      .. "there are no processes; %restart starts new ones\n2 new processes\ntensor([2.])\nnil\n", result.stdout)
  end)

  it("notices at the next line that a rank has died while none ran", function()
    local path = os.tmpname()
    local result = prompt(2, ([[
pid = io.open("/proc/self/stat"):read "*n"
if accelerator.process_index == 1 then file = io.open("%s", "w") file:write(pid) file:close() end
$ p=$(cat %s); kill -9 $p; while grep -qv ') Z' /proc/$p/stat 2> /dev/null; do sleep 0.02; done
1 + 1
%%restart
1 + 1
]]):format(path, path), {timeout = 30})
    os.remove(path)
    assert.matches("rank 1 was killed by SIGKILL", result.stderr)
    assert.equal("the processes have ended, and with them their variables; %restart starts new ones\n"
      .. "2 new processes\n2\n", result.stdout)
  end)

  it("ends with os.exit", function()
    local result = prompt(2, "1\nos.exit()\n2\n")
    assert.equal("1\n", result.output)
    run.succeeds(result)
  end)

  it("starts new processes on request", function()
    assert.equal("2 new processes\nnil\n", shown("kept = 1\n%restart\nkept\n", 2))
  end)

  it("runs a script first, whose locals are available", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "local accelhost = require 'accelhost' local n = accelhost.Accelerator().num_processes + #arg"
    file:close()
    local result = run.host({"repl", "--num_processes", "2", "-i", path, "word"}, {stdin = "n\narg[1]\n"})
    os.remove(path)
    assert.equal('3\n"word"\n', result.output)
  end)

  it("runs programs of the shell once", function()
    assert.equal("once\n", shown "$ echo once\n")
  end)

  it("refuses ranks that there are not, and lines that are none", function()
    local result = prompt(2, "%rank 2 1\n%ranks x\n%rank 0\n)\n1\n")
    assert.equal(1, result.code)
    assert.matches("^expected ranks from 0 to 1, such as 0,2 or 1%-3 or all, got '2'\n"
      .. "expected ranks from 0 to 1, such as 0,2 or 1%-3 or all, got 'x'\n"
      .. "%%rank: expected a statement after the rank\n[^\n]*unexpected symbol[^\n]*\n1\n$", result.stdout)
  end)

  it("leaves no process behind, however it ends", function()
    local mark = "cluster_spec_" .. tostring({}):match "0x(%x+)"
    local result = prompt(2, "os.execute 'exec -a " .. mark .. " sleep 30 &'\n"
      .. "if accelerator.process_index == 0 then os.execute('kill -9 ' .. io.open('/proc/self/stat'):read('*a')"
      .. ":match '%) %a (%d+)') end\n")
    assert.equal(137, result.code)
    local left
    for _ = 1, 1000 do
      local pipe = io.popen("pgrep -f -- '" .. mark .. " ' | wc -l")
      left = pipe:read "*n"
      pipe:close()
      if left <= 1 then break end
      os.execute "sleep 0.05"
    end
    assert.is_true(left <= 1)
  end)
end)
