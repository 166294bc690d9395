-- Chunks typed at a prompt: values that show themselves, locals that live on, errors that leave nothing behind.
local accelhost = require "accelhost"
local evaluate = require "accelhost.repl.evaluate"

local e, shown

local function run(text)
  shown = {}
  local fine = e:run(text)
  return table.concat(shown), fine
end

-- Return the output of the last of several lines.
local function after(...)
  local text
  for _, line in ipairs {...} do text = run(line) end
  return text
end

describe("a chunk at the prompt", function()
  before_each(function()
    shown = {}
    e = evaluate.new{write = function(text) shown[#shown + 1] = text end}
  end)

  it("shows the values of an expression, several in a row, nil too, and nothing for statements", function()
    assert.equal("2\n", run "1 + 1")
    assert.equal("1\tnil\t\"x\"\n", run "1, nil, 'x'")
    assert.equal("nil\n", run "nil")
    assert.equal("", run "local x = 3")
    assert.equal("", run "y_of_spec = 3")
    assert.equal("3\t3\n", run "= x, y_of_spec")
    assert.equal("4\n", run "-- a comment\n4 -- and one more")
    assert.equal("", run "-- a comment")
    assert.equal("", run "(function() end)()")
    assert.equal("5\n", run "return 5")
    rawset(_G, "y_of_spec", nil)
  end)

  it("shows the expressions that a chunk of statements ends with", function()
    assert.equal("tensor(2.)\n", run "local t = tensor {1, 2}; t[1]")
    assert.equal("3\n", run "local a, b = 1, 2; a + b")
    assert.equal("3\n", run "local function f(x) return x end f(3)")
    assert.equal("-7\n", run "local c = 7; -c")
    assert.equal("6\n", run "local s = 0 for i = 1, 3 do s = s + i end s")
    assert.equal("1\t2\n", run "local d = 1 d, 2")
    assert.equal("\"x\"\n", run "local e = 1; 'x'")
    assert.equal("tensor(3.)\n", run "local u = ones(3) u:sum()")
  end)

  it("shows no nil of a call that ends statements, and runs a continuation as a part of its statement", function()
    assert.equal("", run "local w = 1; (function() return nil end)()")
    assert.equal("", run "local function g(x) return function(y) return x + y end end")
    assert.equal("", run "local sum = g (1) (2)")
    assert.equal("3\n", run "sum")
    assert.equal("", run "local difference = sum\n-1")
    assert.equal("2\n", run "difference")
    assert.equal("", run "local z = 5;")
  end)

  it("is complete where a statement and an expression are, and refused where neither can become whole", function()
    for _, text in ipairs {"t = 1; t[5]", "a, b = 1, 2; a + b", "function f(x) return x end f", "t.x y"} do
      assert.is_true(e:is_complete(text), text)
    end
    for _, text in ipairs {"t = {", "t = 1; f(", "for i = 1, 3 do", "x ="} do
      assert.is_false(e:is_complete(text), text)
    end
  end)

  it("prints advice on a name that is undefined and near another, and on a method that is not called", function()
    run "local model = 3"
    assert.equal("nil\n(did you mean 'model'?)\n", run "modle")
    assert.equal("nil\n", run "k")
    assert.equal("nil\n", run "nil")
    run "local t = ones(2)"
    assert.matches("^function shape.*\n%(a method: t:shape%(%) calls it%)\n$", (run "t.shape"))
  end)

  it("shows nothing behind a last semicolon", function()
    assert.equal("", run "1 + 1;")
    assert.equal("", run "1 + 1 ; -- quiet")
    assert.equal("\";\"\n", run "';'")
  end)

  it("keeps the last three results", function()
    run "10"
    run "20"
    assert.equal("30\n", run "_ + __")
    assert.equal("60\n", run "_ + __ + ___")
    run "7;"
    assert.equal("60\n", run "_")
    run "nil"
    assert.equal("nil\t60\n", run "_, ___")
    run "'first', 'second'"
    assert.equal("\"first\"\n", run "_")
  end)

  it("shows tensors, modules, texts, tables and functions", function()
    assert.equal("tensor([[1., 2.],\n        [3., 4.]])\n", run "tensor{{1, 2}, {3, 4}}")
    assert.equal("Linear(in_features=2, out_features=3, bias=True)\n", run "nn.Linear(2, 3)")
    assert.equal("\"a\\\"b\\n\\0\\\\\"\n", run "'a\"b\\n\\0\\\\'")
    assert.equal("{1, 2, {3}, a = {}, b = \"c\", [true] = 1}\n", run "{1, 2, {3}, b = 'c', a = {}, [true] = 1}")
    assert.equal("function ([5]:2)\n", run "\nfunction() end")
    assert.equal("function (built in)\n", run "math.sin")
    assert.equal("{1, {2, {3, {4, {...}}}}}\n", run "{1, {2, {3, {4, {5}}}}}")
    assert.equal("{{...}}\n", after("t_of_spec = {}", "t_of_spec[1] = t_of_spec", "t_of_spec"))
    rawset(_G, "t_of_spec", nil)
    assert.equal("{\n  Linear(in_features=1, out_features=1, bias=True),\n  x = tensor([[1.],\n              [2.]])\n"
      .. "}\n", run "{nn.Linear(1, 1), x = tensor{{1}, {2}}}")
  end)

  it("bounds tables by items and width, and never calls __index", function()
    local text = run "(function() local t = {} for i = 1, 1000 do t[i] = i end return t end)()"
    assert.truthy(text:find("... (960 more)", 1, true))
    for line in text:gmatch "[^\n]+" do assert.truthy(#line <= 80, line) end
    assert.equal("{1}\n", run "setmetatable({1}, {__index = function() error 'asked' end})")
    assert.equal("table (its __tostring failed)\n", run "setmetatable({}, {__tostring = function() error 'no' end})")
  end)

  it("provides the library's modules and constructors, which the user's own names hide", function()
    assert.equal("true\n", run "accelhost == require 'accelhost' and F == nn.functional and optim == accelhost.optim")
    assert.equal("tensor([0., 0.])\n", run "zeros(2)")
    assert.equal("3\n", after("local zeros = 3", "zeros"))
    assert.is_nil(rawget(_G, "nn"))
    assert.equal("nil\n", run "nothing_is_called_so")
  end)

  it("has locals live on, of every form of local statement", function()
    after("local a, b = 1, 2 local c", "local function f(n) return n == 0 and 'done' or f(n - 1) end",
      "local s = 'x' local q = s:rep(2) local t = {1} local u = -a + b local w = not a or b",
      "local g = function() return g end local v = (f)(3) local z = f 'x' == nil;", "local m = t[1] local k = #t")
    assert.equal("1\t2\tnil\n", run "a, b, c")
    assert.equal("\"done\"\n", run "f(3)")
    assert.equal("\"xx\"\t1\t2\t\"done\"\t1\t1\n", run "q, u, w, v, m, k")
    assert.equal("nil\n", run "g()")
    assert.equal("1\n", after("local n = 1 do local n = 2 end for i = 1, 2 do local n = i end", "n"))
    assert.equal("nil\n", after("if true then local inner = 1 end while false do local inner = 2 end", "inner"))
    assert.equal("nil\n", after("repeat local inner = 1 until inner == 1", "inner"))
  end)

  it("distinguishes a local's end from a call that continues", function()
    assert.equal("3\n", after("local f = function(x) return x end", "local r = f\n{3}", "r[1]"))
    assert.equal("4\n", after("local one = 1 (function() two = one + 3 end)()", "two"))
    assert.equal("5\n", after("local text = 'a' (function() two = 5 end)()", "two"))
    assert.equal("6\n", after("local h = f (6) local i = h", "i"))
    rawset(_G, "two", nil)
  end)

  it("keeps one variable for all functions that see it, and a new one of the name apart", function()
    after("local x = 1", "function seen_of_spec() return x end", "x = x + 1")
    assert.equal("2\n", run "seen_of_spec()")
    assert.equal("\"new\"\t2\n", after("local x = 'new'", "x, seen_of_spec()"))
    rawset(_G, "seen_of_spec", nil)
  end)

  it("has compiled code read the value that a later line assigns", function()
    after("local limit = 1", "local function total() local s = 0 for i = 1, 1000 do s = s + limit end return s end")
    assert.equal("1000\n", after("for i = 1, 100 do total() end", "total()"))
    assert.equal("2000\n", after("limit = 2", "total()"))
  end)

  it("keeps declarations before an error", function()
    run "local before = 1 error 'stop' local behind = 2"
    assert.equal("1\tnil\n", run "before, behind")
  end)

  it("accepts 70 locals in one statement, and reports how many earlier ones a chunk can refer to", function()
    local names = {}
    for i = 1, 70 do names[i] = "n" .. i end
    local list = table.concat(names, ", ")
    run("local " .. list .. " = " .. list:gsub("n", ""))
    assert.equal("1\t70\n", run "n1, n70")
    assert.equal("this refers to 70 variables of earlier lines, and LuaJIT's limit is 59\n",
      run("local all = {" .. list .. "}"))
  end)

  it("recognises an incomplete chunk", function()
    for _, text in ipairs {
      "-- for the lines below", "%time for i = 1, 2 do", "for i = 1, 2 do", "f(", "x +", "local t = {", "[[", "--[[",
      "function f()", "x =", "'a\\",
    } do
      assert.is_false(e:is_complete(text), text)
    end
    for _, text in ipairs {"", "x", "f()", "'abc", "x y", ")", "for", "= 3", "for i = 1, 2 do end", "'<eof>' x",
      "--[[ ]] 1"} do
      assert.equal(text ~= "for", e:is_complete(text), text)
    end
  end)

  it("ends an incomplete chunk by an empty line where no block, bracket or long string is open", function()
    for _, text in ipairs {"x =", "1 +", "for i = 1, 3", "while x", "f(1) +", "t = {1} ..", "%time x ="} do
      assert.is_false(e:is_complete(text), text)
      assert.is_true(e:ends_when_empty(text), text)
    end
    for _, text in ipairs {"for i = 1, 2 do", "f(", "local t = {", "[[", "--[[", "function f()", "if x then", "'a\\",
      "%time for i = 1, 2 do"} do
      assert.is_false(e:ends_when_empty(text), text)
    end
  end)

  it("refuses a method without its arguments at once", function()
    run "local t = ones(2)"
    assert.is_true(e:is_complete "t:shape")
    assert.equal("[2]:1: function arguments expected near '<eof>' (a method is called, x:name(); a field is x.name)\n",
      run "t:shape")
  end)

  it("names the chunk and line of an error, and its callers", function()
    assert.equal("[1]:1: stop\n", run "error 'stop'")
    assert.equal("[2]:2: stop\n", run "\nerror 'stop'")
    run "local function inner() error 'deep' end\nfunction outer_of_spec() inner() return 1 end"
    assert.equal("[3]:1: deep\n  [3]:1: in inner\n  [3]:2: in outer_of_spec\n  [4]:1: in main chunk\n",
      run "outer_of_spec()")
    rawset(_G, "outer_of_spec", nil)
    assert.matches("^%[5%]:1: Linear: 'out_features' is missing %(its arguments [^\n]*%)\n$", (run "nn.Linear(3)"))
  end)

  it("accepts errors of any kind", function()
    assert.equal("(error value of type table)\n  [1]:1: in main chunk\n", run "error {}")
    assert.equal("(error value of type nil)\n  [2]:1: in main chunk\n", run "error()")
    assert.equal("custom\n  [3]:1: in main chunk\n",
      run "error(setmetatable({}, {__tostring = function() return 'custom' end}))")
    local text = run "local function f() return f() + 1 end f()"
    assert.matches("stack overflow", text)
    assert.equal("1\n", run "1")
  end)

  it("explains a line that is no Lua, and one that fails, as in scripts", function()
    assert.equal("[1]:1: '<eof>' expected near 'y'\n", run "x y")
    assert.equal("[2]:1: unexpected symbol near ')'\n", run "x = )")
    assert.matches("Lua has no %+=", (run "x += 1"))
    assert.matches("%(did you mean 'wonderful'%?%)", (after("local wonderful = ones(2)", "wonderfull:sum()")))
    assert.matches("%(did you mean 'zeros'%?%)", (run "zeroes(2)"))
    assert.matches("write ':' instead of '.' %(x:sum%(...%)%)", (after("local x = ones(2)", "x.sum()")))
  end)

  it("leaves gradient mode, autocast and default device as they were before an error, not after success", function()
    run "accelhost.set_grad_enabled(false) accelhost.set_autocast_enabled(true) error 'stop'"
    assert.is_true(accelhost.is_grad_enabled())
    assert.is_false(accelhost.is_autocast_enabled())
    run "accelhost.set_default_device 'meta' error 'stop'"
    assert.equal("cpu", accelhost.get_default_device())
    run "accelhost.set_grad_enabled(false)"
    assert.is_false(accelhost.is_grad_enabled())
    run "accelhost.set_grad_enabled(true)"
  end)

  it("names no module in an error after one that failed inside a module", function()
    run "nn.Sequential(nn.Linear(2, 2))(ones(3))"
    assert.matches("^in 0 %(Linear%)", (table.concat(shown):gsub("^%[%d%]:1: ", "")))
    assert.not_matches("Linear", (run "zeros(2):view(3)"))
  end)

  it("prints the time of a chunk that runs for over a second", function()
    local C = require "accelhost._C"
    local now = C.system.now
    local clock = 0
    C.system.now = function() return clock end
    rawset(_G, "wait_of_spec", function(seconds) clock = clock + seconds end)
    local fine, text = pcall(after, "wait_of_spec(1.26)")
    C.system.now = now
    rawset(_G, "wait_of_spec", nil)
    assert.is_true(fine)
    assert.equal("(1.3 s)\n", text)
    assert.equal("", run "local x = 1")
  end)

  it("runs a script with its arguments and has its locals available, after an error too", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "#!/usr/bin/accelhost\nlocal a, b = ...\nlocal function twice() return a .. a end\nerror 'stop'\n"
    file:close()
    assert.is_false(e:run_file(path, "x", "y"))
    assert.equal(("%s:4: stop\n"):format(path), table.concat(shown))
    assert.equal("\"x\"\t\"y\"\t\"xx\"\n", run "a, b, twice()")
    file = assert(io.open(path, "w"))
    file:write "local = 3"
    file:close()
    shown = {}
    assert.is_false(e:run_file(path))
    assert.matches("'<name>' expected near '='", table.concat(shown))
    os.remove(path)
    shown = {}
    assert.is_false(e:run_file(path))
    assert.matches("No such file", table.concat(shown))
  end)

  it("accepts any bytes without failing itself", function()
    local pieces = {
      "local ", "x", " = ", "(", ")", "{", "}", "[[", "]]", "'", '"', "\n", "function ", " end ", ";", "--", "1", "..",
      "...", "::", "goto ", "\\", "return ", "\0", "\200", "if ", " then ", ",", "[", "]", ":", ".", "=",
    }
    local state = 1
    local function random(n)
      state = (state * 16807) % 2147483647
      return state % n + 1
    end
    for _ = 1, 3000 do
      local parts = {}
      for k = 1, random(12) do parts[k] = pieces[random(#pieces)] end
      local text = table.concat(parts)
      -- Texts that could loop are read and not run.
      local complete = e:is_complete(text)
      assert.equal("boolean", type(complete))
      if complete and not text:find "goto" then assert.equal("boolean", type(e:run(text))) end
    end
  end)
end)

describe("a command that changes the engine", function()
  before_each(function()
    shown = {}
    e = evaluate.new{write = function(text) shown[#shown + 1] = text end}
  end)

  it("forgets variables, globals and results by %restart", function()
    assert.equal("nil\tnil\tnil\n", after("local x = 1", "y_of_restart = 2", "3", "%restart", "x, y_of_restart, _"))
    assert.is_nil(rawget(_G, "y_of_restart"))
  end)

  it("asks for other processes by %procs, and refuses other numbers", function()
    local asked
    e.switch = function(count) asked = count end
    assert.equal("later lines run in 4 processes, without the variables until now\n", run "%procs 4")
    assert.equal(4, asked)
    for _, text in ipairs {"%procs", "%procs 0", "%procs 1.5", "%procs many"} do
      assert.matches("%%procs: expected a number of processes from 1 to 256", (run(text)))
    end
    e.switch = nil
    assert.matches("lines run in one process of several already", (run "%procs 2"))
  end)

  it("prints the times of ops by %profile", function()
    local text, fine = run "%profile randn(3):sum();"
    assert.is_true(fine)
    assert.matches("\n *sum +", text)
    assert.equal("incomplete", e:state_of "%profile for i = 1, 2 do")
  end)
end)

describe("a cell of a notebook", function()
  local cell = require "accelhost.repl.cell"

  before_each(function()
    shown = {}
    e = evaluate.new{write = function(text) shown[#shown + 1] = text end}
  end)

  it("is divided at commands, whose places in the cell the parts keep", function()
    assert.same({"local x = 1", "%who", "\n\nx"}, cell.parts(e, "local x = 1\n%who\nx"))
    assert.same({"%time for i = 1, 2 do\nend", "\n\n1"}, cell.parts(e, "%time for i = 1, 2 do\nend\n1"))
    assert.same({"%time local x = 1\nx"}, cell.parts(e, "%%time\nlocal x = 1\nx"))
    assert.same({"$ echo", "? nn", "nn ??"}, cell.parts(e, "$ echo\n? nn\nnn ??"))
    assert.same({"local a = 7\n  % b"}, cell.parts(e, "local a = 7\n  % b"))
    assert.same({"local t = [[\n%who\n]]"}, cell.parts(e, "local t = [[\n%who\n]]"))
    assert.same({}, cell.parts(e, "\n  \n"))
  end)

  it("names its lines in errors, and ends at the first part that fails", function()
    assert.is_false(cell.run(e, "%who\nlocal x = 1\nerror 'bad'\n%who", 7))
    assert.equal("[7]:3: bad\n", table.concat(shown))
    assert.equal(8, e.number)
  end)
end)
