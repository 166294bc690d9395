-- accelhost repl, on a pseudo-terminal and from a pipe.
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

local at, state

-- A prompt, as soon as it is printed.
local function open(words, options)
  options = options or {}
  options.env = options.env or {}
  options.env.XDG_STATE_HOME = options.env.XDG_STATE_HOME or state
  at = terminal.open(words or {run.path}, options)
  at:wait "%[1%]> "
end

local function has_editor()
  local result = run.script "print((require('accelhost._C').edit.open(nil, print)))"
  return result.stdout:find "true" ~= nil
end
local edits = has_editor()

local function needs_editor()
  if not edits then pending "needs accelhost-edit.so, which is built where libedit is" end
  return not edits
end

describe("the prompt", function()
  before_each(function()
    state = os.tmpname()
    os.remove(state)
  end)
  after_each(function()
    if at then at:close() end
    at = nil
    os.execute("rm -rf " .. run.quote(state))
  end)

  it("begins without arguments on a terminal, soon, shows values, and ends at Ctrl-D with 0", function()
    local C = require "accelhost._C"
    local began = C.system.now()
    open()
    assert.truthy(C.system.now() - began < 5)
    assert.equal("3\n", at:line "1 + 2")
    assert.equal("", at:line "local x = randn(2, 3);")
    assert.equal("2\n", at:line "#x")
    assert.equal("Linear(in_features=2, out_features=1, bias=True)\n", at:line "nn.Linear(2, 1)")
    assert.matches("^%[6%]:1: Linear: 'out_features' is missing [^\n]*\n$",
      (at:line "zeros(1);" and at:line "nn.Linear(3)"))
    at:type "\4"
    assert.equal(0, at:close())
    at = nil
  end)

  it("continues in the next line until a chunk is whole", function()
    open()
    at:type "for i = 1, 2 do\n"
    at:wait "\n +%.%. "
    at:type "print(i)\n"
    at:wait "\n +%.%. "
    assert.equal("1\n2\n", at:line "end")
    at:type "local t = {\n"
    at:wait "%.%. "
    at:type "\3"
    at:wait "%[2%]> "
    assert.equal("nil\n", at:line "t")
  end)

  it("ends a line that has no open block by an empty one", function()
    open()
    at:type "x =\n"
    at:wait "\n +%.%. "
    assert.matches("^%[1%]:1: unexpected symbol near '<eof>'\n$", (at:line ""))
    assert.equal("3\n", at:line "1 + 2")
  end)

  it("shows descriptions that do not fit on the terminal in the pager, others not", function()
    local paged = "sed 's/^/PAGED:/'"
    open(nil, {columns = 80, env = {PAGER = paged}})
    assert.matches("^PAGED:[^\n]*accelhost%.Trainer", (at:line "? Trainer"))
    assert.matches("^[^\n]*accelhost%.zeros_like%(", (at:line "? zeros_like"))
    assert.matches("^A line runs once", (at:line "?"))
    assert.matches("^PAGED:", (at:line "?? Trainer"))
    at:close()
    open({run.path, "repl", "--num_processes", "2"}, {columns = 80, env = {PAGER = paged}})
    assert.matches("^PAGED:[^\n]*accelhost%.Trainer", (at:line "? Trainer"))
    assert.equal("1\n", at:line "1")
  end)

  it("reads a paste as one chunk, line ends and tabs included", function()
    if needs_editor() then return end
    open()
    at:type "\27[200~local a = 1\rlocal function f()\r\treturn a + 1\rend\r\r\27[201~"
    at:wait "end"
    at:type "\n"
    at:wait "%[2%]> "
    assert.equal("2\n", at:line "f()")
  end)

  it("keeps typed lines for later prompts, of several at once, in a private file", function()
    if needs_editor() then return end
    open()
    at:line "local first = 11"
    local other = at
    open()
    at:line "local second = 22"
    other:line "first + 100"
    at:type "\4"
    at:close()
    other:type "\4"
    other:close()
    open()
    at:type "\16\16\16\n" -- the Up key
    at:wait "%[2%]> "
    assert.equal("11\n", at:line "first")
    local path = state .. "/accelhost/history"
    assert.equal("rw-------", require("lfs").attributes(path).permissions)
    local file = assert(io.open(path))
    assert.equal("local first = 11\nlocal second = 22\nfirst + 100\nlocal first = 11\nfirst\n", file:read "*a")
    file:close()
  end)

  it("recalls a chunk of several lines as one", function()
    if needs_editor() then return end
    open()
    at:type "for i = 1, 2 do\nprint(i * 10)\nend\n"
    at:wait "20\n%[2%]> "
    at:type "\16"
    at:wait "print%(i %* 10%)"
    at:type "\n"
    at:wait "10\n20\n%[3%]> "
  end)

  it("bounds its history: of over 10,000 entries the newest 5,000 stay", function()
    if needs_editor() then return end
    os.execute(("mkdir -p %s/accelhost"):format(state))
    local path = state .. "/accelhost/history"
    local file = assert(io.open(path, "w"))
    for i = 1, 10001 do file:write("entry_", i, "\n") end
    file:close()
    open()
    at:line "1 + 1"
    local count, first, last = 0, nil, nil
    for line in io.lines(path) do
      count, first, last = count + 1, first or line, line
    end
    assert.same({5001, "entry_5002", "1 + 1"}, {count, first, last})
  end)

  it("accepts characters of any width, in a terminal of another locale too", function()
    for _, locale in ipairs {"C.UTF-8", "C"} do
      open(nil, {env = {LC_ALL = locale}})
      assert.equal('"é訓練"\n', at:line "'é訓練'")
      at:close()
    end
    at = nil
  end)

  it("works where no history can be kept", function()
    open(nil, {env = {XDG_STATE_HOME = "/proc/nowhere"}})
    assert.equal("2\n", at:line "1 + 1")
    at:close()
    open(nil, {env = {XDG_STATE_HOME = "", HOME = ""}})
    assert.equal("2\n", at:line "1 + 1")
  end)

  it("completes at Tab, and lists choices when there are several", function()
    if needs_editor() then return end
    open()
    at:line "local wonderful, wonderland = 1, 2"
    at:type "wonderf\t + 5\n"
    at:wait "\n6\n"
    at:wait "%[3%]> "
    at:type "wond\t"
    at:wait "er"
    at:type "\t"
    at:wait "wonderful +wonderland\n"
    at:type "land\n"
    at:wait "\n2\n"
  end)

  it("works without an editor: in a dumb terminal lines are read as they arrive", function()
    open(nil, {env = {TERM = "dumb"}})
    assert.equal("2\n", at:line "1 + 1")
    at:type "half\3"
    at:wait "%[2%]> "
    assert.equal("3\n", at:line "3")
    at:type "print 'runs' while true do end\n" -- echoed text may not have been read, and ^C would discard it
    at:wait "\nruns\n"
    at:type "\3"
    at:wait "interrupted at %[3%]:1\n"
    at:type "\4"
    assert.equal(0, at:close())
    at = nil
  end)

  it("reports the missing file where the editor is not installed, and reads plain lines", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute(("mkdir %s && cp %s %s/accelhost"):format(folder, run.quote(run.path), folder))
    open({folder .. "/accelhost"})
    assert.matches("Lines cannot be edited: .*libedit%-dev.*accelhost%-edit%.so is not here", at:shown())
    assert.equal("2\n", at:line "1 + 1")
    at:type "half\3"
    at:wait "%[2%]> "
    assert.equal("3\n", at:line "3")
    os.execute("rm -r " .. folder)
  end)

  it("colors only a terminal that wants it", function()
    open()
    assert.is_nil(at:shown():find("\27[1m", 1, true))
    at:line "error 'plain'"
    assert.is_nil(at:shown():find("\27[31m", 1, true))
    at:close()
    at = terminal.open({run.path}, {env = {NO_COLOR = "", XDG_STATE_HOME = state}})
    at:wait "\27%[1m%[1%]>\27%[0m "
    at:type "error 'red'\n"
    at:wait "\27%[31m%[1%]:1: red\27%[0m\n"
  end)

  it("redraws the line when the window changes its size", function()
    if needs_editor() then return end
    open(nil, {columns = 60})
    at:line "$ tty > /dev/null"
    local name = at:line("$ tty"):match "/dev/%S+"
    at:type "local long = 'abc'"
    at:wait "abc'"
    os.execute("stty cols 30 < " .. name)
    at:wait "local long"
    at:type "\n"
    at:wait "%]> "
    assert.equal('"abc"\n', at:line "long")
  end)

  it("ends with the exit code of the terminal or of os.exit, the terminal in order", function()
    open()
    at:type "os.exit(5)\n"
    assert.equal(5, at:close())
    open()
    at:type "\28"
    assert.equal(128 + 3, at:close())
    open()
    at:type "$ kill -TERM $PPID\n"
    assert.equal(128 + 15, at:close())
    at = nil
  end)

  it("stops at Ctrl-Z and continues with the line that was half typed", function()
    if needs_editor() then return end
    at = terminal.open({"bash", "--norc", "-i"}, {env = {PS1 = "shell: ", XDG_STATE_HOME = state}})
    at:wait "shell: "
    at:type(run.path .. "\n")
    at:wait "%[1%]> "
    at:type "40 + "
    at:wait "40 %+ "
    at:type "\26"
    at:wait "Stopped"
    at:wait "shell: "
    at:type "fg\n"
    at:wait "40 %+ "
    at:type "2\n"
    at:wait "\n42\n"
    at:type "\4"
    at:wait "shell: "
    at:type "exit\n"
  end)

  it("prints the time of a chunk that runs for over a second", function()
    open()
    assert.matches("^%(1%.%d s%)\n$", (at:line "os.execute 'sleep 1.1';"))
  end)

  it("runs a script first with -i, its locals available, and reports its failure", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "local a, b = ...\nlocal net = 'a net'\nmade_of_spec = arg[1]\nif b then error 'stopped' end\n"
    file:close()
    at = terminal.open({run.path, "-i", path, "one"}, {env = {XDG_STATE_HOME = state}})
    at:wait "%[1%]> "
    assert.equal('"one"\t"a net"\t"one"\n', at:line "a, net, made_of_spec")
    at:close()
    at = terminal.open({run.path, "repl", "-i", path, "one", "--two"}, {env = {XDG_STATE_HOME = state}})
    at:wait(":4: stopped\nThe script failed; its variables are as they were then.\n%[1%]> ")
    assert.equal('"one"\t"--two"\t"a net"\n', at:line "a, b, net")
    at:close()
    at = nil
    os.remove(path)
  end)
end)

-- Texts that run until they are interrupted, one each.
local endless = {
  {"a compiled loop", "while true do end"},
  {"a loop in a function of a module", "require 'endless_of_spec'()"},
  {"a loop in a coroutine", "coroutine.wrap(function() while true do end end)()"},
  {"a loop that catches errors", "while true do pcall(function() while true do end end) end"},
  {"a loop of ops", "local t = ones(4) while true do t = t + 1 end"},
  {"a recursion", "local function f(n) if n > 0 then f(n - 1) f(n - 1) end end f(100)"},
  {"a loader", "while true do for batch in data.DataLoader(data.SyntheticDigits(), {batch_size = 7}) do end end"},
  {"a convolution", "local x, w = randn(4, 8, 32, 32), randn(8, 8, 3, 3) while true do F.conv2d(x, w) end"},
  {"a backward", "local w = ones(4, {requires_grad = true}) while true do (w * w):sum():backward() end"},
  {"waiting for input", "io.read()"},
  {"a program", "os.execute 'sleep 30' while true do end"},
}

describe("Ctrl-C at the prompt", function()
  local folder
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    local file = assert(io.open(folder .. "/endless_of_spec.lua", "w"))
    file:write "return function()\n  local n = 0\n  while true do\n    n = n + 1\n  end\nend\n"
    file:close()
  end)
  teardown(function() os.execute("rm -rf " .. run.quote(folder)) end)
  after_each(function()
    if at then at:close() end
    at = nil
  end)

  -- Type statements that run until they are interrupted, and wait until they run.
  local function run_endless(text)
    at:type("print 'runs' " .. text .. "\n")
    at:wait "\nruns\n"
    os.execute "sleep 0.2"
  end

  it("clears a line that is half typed", function()
    open()
    at:type "this is nothing"
    at:wait "nothing"
    at:type "\3"
    at:wait "%[1%]> "
    assert.equal("7\n", at:line "7")
  end)

  it("ends the running code, wherever it is, and nothing else", function()
    open(nil, {dir = folder})
    at:line "local kept = 'kept'"
    for i, case in ipairs(endless) do
      run_endless(case[2])
      at:type "\3"
      local text = at:wait "%[%d+%]> "
      assert.matches("interrupted at %S+:%d+\n", text, case[1])
      assert.equal('"kept"\ttrue\n', at:line "kept, accelhost.is_grad_enabled()", case[1] .. i)
    end
    at:type "half a line"
    at:wait "half a line"
    at:type "\3"
    at:wait "%[%d+%]> "
    assert.equal("", at:line "local w = ones(2, {requires_grad = true}); (w * w):sum():backward()")
  end)

  it("names the line of a module, and its callers", function()
    open(nil, {dir = folder})
    run_endless "require 'endless_of_spec'()"
    at:type "\3"
    at:wait "interrupted at %./endless_of_spec%.lua:%d\n"
    at:wait "in main chunk\n%[2%]> "
  end)

  it("leaves gradient mode, autocast and modules as they were", function()
    open()
    run_endless "accelhost.no_grad(function() accelhost.autocast('cpu', function() while true do end end) end)"
    at:type "\3"
    at:wait "interrupted at %[1%]:1\n"
    at:wait "%[2%]> "
    assert.equal("true\tfalse\n", at:line "accelhost.is_grad_enabled(), accelhost.is_autocast_enabled()")
    at:line "local N = nn.Module:extend 'N' function N:forward(x) while x do end return 1 end local n = N()"
    run_endless "n(true)"
    at:type "\3"
    at:wait "%[5%]> "
    assert.equal("[5]:1: view: shape [3] does not fit 2 elements\n", (at:line "zeros(2):view(3)"):gsub("view: .*\n",
      "view: shape [3] does not fit 2 elements\n"))
  end)

  it("lets a script clean up, and reads a file to its end afterwards", function()
    open()
    run_endless "local ok, why = pcall(function() while true do end end) cleaned = 'up'"
    at:type "\3"
    at:wait "%[2%]> "
    assert.equal('"up"\tfalse\t"[1]:1: interrupted"\n', at:line "cleaned, ok, why")
  end)

  it("reports the function that still runs at the second one, and ends the program at the third", function()
    open()
    at:type "local x = randn(4000, 4000)\n"
    at:wait "%[2%]> "
    run_endless "for i = 1, 3 do accelhost.linalg.svd(x) end"
    at:type "\3"
    os.execute "sleep 2" -- the first one must have been handled: two that are pending are one
    at:type "\3"
    at:wait "accelhost: still runs [%w_]+ at %[2%]:1; Ctrl%-C once more ends the program\n"
    at:type "\3"
    assert.equal(128 + 2, at:close())
    at = nil
  end)
end)

describe("accelhost repl from a pipe", function()
  it("runs lines without prompts, and answers with 1 when one failed", function()
    local result = run.host({"repl"}, {stdin = "1 + 1\nlocal x = 3\nfor i = 1, 2 do\n  print(i * x)\nend\nx\n"})
    run.prints("2\n3\n6\n3\n", result)
    run.succeeds(result)
    result = run.host({"repl"}, {stdin = "error 'a'\n2\nfor"})
    run.prints("[1]:1: a\n2\n[3]:1: '<name>' expected near '<eof>'\n", result)
    assert.equal(1, result.code)
  end)

  it("ends at Ctrl-C like a script, with the line where it was", function()
    local result = run.host({"repl"}, {stdin = "1\nio.popen 'sleep 0.3; kill -INT $PPID' while true do end\n2\n"})
    run.prints("1\n", result)
    assert.matches("accelhost: interrupted.* %[2%]:1\n", result.stderr)
    assert.equal(128 + 2, result.code)
  end)

  it("lets a chunk read the lines behind it", function()
    local result = run.host({"repl"}, {stdin = "local line = io.read()\nthis is data\nline\n"})
    assert.equal('"this is data"\n', result.stdout)
  end)

  it("shows the comment above a function as its help", function()
    local result = run.host({"repl"}, {stdin = "-- Adds.\n-- Twice.\nlocal function add(a, b, ...) end\n? add\n?? add\n"
      .. "add ?\n"})
    assert.equal("add(a, b, ...)   [1]:3\n  Adds.\n  Twice.\n[1]:3\n-- Adds.\n-- Twice.\n"
      .. "local function add(a, b, ...) end\nadd(a, b, ...)   [1]:3\n  Adds.\n  Twice.\n", result.stdout)
  end)

  it("describes names, and shows sources, of the library too", function()
    local function said(text) return run.host({"repl"}, {stdin = text .. "\n"}).stdout end
    assert.matches("^nn%.Linear%(in_features, out_features, bias = true", said "? nn.Linear")
    assert.matches("^optim%.SGD%(params", said "local opt = optim.SGD({ones(1)})\n? opt")
    assert.matches("^optim%.Optimizer:step%(closure%)", said "local opt = optim.SGD({ones(1)})\n? opt.step")
    assert.matches("^Tensor:view%(size%)", said "? x.view")
    assert.matches("^accelhost/nn/linear%.lua:%d+\n%-%-%- y = x W%^T %+ b%.\n.*function Linear:forward",
      said "?? nn.Linear")
    assert.matches("^randn is written in C %(host/", said "?? randn")
    assert.equal("nothing is called 'nosuchthing'\n", said "? nosuchthing")
    assert.equal("nothing is called 'nosuchthing'\n", said "?? nosuchthing")
    assert.equal("class Net(width)   [1]:2\n  A net.\n", said("-- A net.\nlocal Net = nn.Module:extend 'Net'\n"
      .. "function Net:init(width) end\nlocal net = Net(1)\n? net"))
    for _, line in ipairs {"?", "help", "help()"} do assert.matches("^A line runs once it is complete", said(line)) end
    assert.matches("^nn%.Linear%(in_features", said "help(nn.Linear)")
    assert.matches("^nn%.Linear%(in_features", said "help 'nn.Linear'")
    assert.equal("3\n", said "local help = 3\nhelp")
  end)

  it("wraps the text of ? to the terminal's width", function()
    for _, width in ipairs {"60", "90"} do
      local text = run.host({"repl"}, {stdin = "?\n", env = {COLUMNS = width}}).stdout
      for line in text:gmatch "[^\n]+" do assert.is_true(#line <= 80, line) end
      assert.is_nil(text:find "%S%-?\n%l+ly")
    end
  end)

  it("ends at exit and quit, unless they are variables", function()
    for _, word in ipairs {"exit", "quit()", "exit ()"} do
      local result = run.host({"repl"}, {stdin = "1\n" .. word .. "\n2\n"})
      assert.same({"1\n", 0}, {result.stdout, result.code})
    end
    assert.equal("5\n6\n", run.host({"repl"}, {stdin = "local quit = 5\nquit\n6\n"}).stdout)
  end)

  it("loads a module that was changed again, into the table that variables hold", function()
    local lines = [[$ echo 'return {value = 1, old = true}' > changed_of_spec.lua
local m = require "changed_of_spec"
m.value
$ echo 'return {value = 2}' > changed_of_spec.lua
%reload
m.value, m.old
$ echo 'return {' > changed_of_spec.lua
%reload changed_of_spec
m.value
%reload nothing_of_spec
]]
    local result
    require "spec.support.folder".with(function(dir) result = run.host({"repl"}, {stdin = lines, dir = dir}) end)
    assert.equal(1, result.code)
    assert.matches("^1\nreloaded changed_of_spec\n2\tnil\n%%reload: 'changed_of_spec' stays as it was: [^\n]*\n",
      result.stdout)
    assert.matches("\n2\n%%reload: no module 'nothing_of_spec' of yours is loaded\n$", result.stdout)
  end)

  it("runs programs and commands", function()
    local function said(text) return run.host({"repl"}, {stdin = text .. "\n"}) end
    assert.equal("hi\n", said("$ echo hi").stdout)
    assert.equal(1, said("$ false").code)
    assert.equal("Net          2\nglobal made  \"here\"\ntotal        tensor (2, 3) float32\n",
      said("local total, Net = zeros(2, 3), 2\nmade = 'here'\n%who").stdout:gsub("global made +", "global made  "))
    assert.matches("^3\n[%d.]+ ms, [%d.]+ ms of processor time\n$", said("%time 1 + 2").stdout)
    assert.equal("[2]:1: makes the global 'found'\n",
      said("local x\n%globals\nfound = 1\n%globals off\nother = 1").stdout)
    assert.equal("there is no %tim (did you mean '%time'?)\n", said("%tim").stdout)
    assert.equal("%globals: expected on or off, got 'maybe'\n", said("%globals maybe").stdout)
    assert.equal("%run: expected a file\n", said("%run").stdout)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "local inside = ..."
    file:close()
    assert.equal('"word"\n', said("%run " .. path .. " word\ninside").stdout)
    os.remove(path)
  end)

  it("ends with 1 when the script of -i fails, and refuses files that it cannot read", function()
    local result = run.host {"-i", "/nowhere.lua"}
    assert.equal(2, result.code)
    assert.matches("cannot read '/nowhere.lua'", result.stderr)
    result = run.host {"repl", "script.lua"}
    assert.equal(2, result.code)
    assert.matches("expected %-i before a script, got 'script.lua'", result.stderr)
    assert.matches("%-i expects a script", run.host({"repl", "-i"}).stderr)
    assert.matches("%-i is for a prompt", run.host({"run", "-i", "x.lua"}).stderr)
    assert.matches("unknown option '%-%-jot' %(did you mean '%-%-jit'%?%)", run.host({"repl", "--jot"}).stderr)
    assert.equal(2, run.host({}).code)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "error 'no'"
    file:close()
    assert.equal(1, run.host({"repl", "-i", path}).code)
    os.remove(path)
  end)
end)
