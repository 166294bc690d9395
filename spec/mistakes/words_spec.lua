-- Words of Python where Lua has others.
local mistake = require "spec.support.mistake"

describe("The message translates", function()
  mistake.each {
    {"!=", "if x != y then end", "Lua writes ~= for \"is not equal\""},
    {"+=", "x += 1", "Lua has no +=: write x = x + 1"},
    {"++", "i++", "Lua has no ++: write x = x + 1"},
    {"an if with a colon", "if x == 1: print(x)", "an `if` ends its condition with `then`"},
    {"a for with a colon", "for i = 1, 3: print(i)", "a loop ends its head with `do`"},
    {"an if with one =", "if x = 1 then end", "a comparison is ==, a single = assigns"},
    {"def", "def f(x): return x", "Lua writes function name(arguments) ... end"},
    {"class", "class Net(nn.Module):", 'a class is local Net = nn.Module:extend "Net"'},
    {"import", "import torch", 'Lua writes local accelhost = require "accelhost"'},
    {"print as a statement", "print x", "Lua writes print(x)"},
    {"with", "with accelhost.no_grad():", "a `with` block is a function: accelhost.no_grad(function() ... end)"},
    {"assert", 'assert x == 1, "no"', "assert is a function: assert(condition, message)"},
    {"a list in brackets", "local l = [1, 2]", "a list is {1, 2, 3}"},
    {"a dictionary", "local t = {lr: 1}", "a table's names are written {lr = 0.1}"},
    {"a dictionary with quotes", 'local t = {"lr": 1}', "a table's names are written {lr = 0.1}"},
    {"a comment", "# the loop", "comments begin with --"},
    {"continue", "for i = 1, 3 do if i == 2 then continue end end", "Lua has no continue"},
    {"&&", "local a = 1 && 2", "Lua writes `and`"},
    {"&", "local a = x & y", "of bool tensors a * b, a + b; of bits bit.band(a, b)"},
    {"a power", "local z = x ** 2", "Lua writes x ^ 2 for a power"},
    {"//", "local n = 7 // 2", "LuaJIT has no //: write math.floor(a / b)"},
    {"!", "if not x and !y then end", "Lua writes `not` for !"},
    {"?:", "local z = x and 1 ? 2 : 3", "Lua writes condition and one or other"},
    {"<const>", "local n <const> = 3", "LuaJIT has no attributes of variables"},
    {"a number with _", "local n = 1_000", "numbers have no _ in them"},
    {"a docstring", 'local n = """text"""', "a text of several lines is [[...]]"},
    {"is", "local n = x is nil", "Lua writes == for `is`, ~= for `is not`"},
    {"a while with a colon", "while x == 1: y = 2", "a loop ends its head with `do`"},
    {"a product of matrices", "local z = x @ x", "a product of matrices is a:matmul(b)"},
    {"a slice", "local z = x[:, 0]", "a column t[{{}, 0}]"},
    {"a slice in braces", "local z = x[{0:3}]", "a slice of a tensor is t[{{0, 3}}]"},
    {"a position of two dims", "local z = x[0, 1]", "a position of a tensor is t[{0, 1}]"},
    {"a choice", "local d = 1 if x else 2", "Lua writes condition and one or other"},
    {"`in`", "if not y in x then end", "Lua has no `in` for values"},
    {"an if without then", "if x print(x) end", "an `if` ends its condition with `then`"},
    {"a named argument", "local l = nn.Linear(4, 4, bias = false)",
      "named arguments are written in a table: f(x, {name = value})"},
    {"braces", "while true { print(1) }", "a block is do ... end"},
  }
end)

describe("A piece of code on the command line gets", function()
  local run = require "spec.support.run"

  local function told(code)
    return run.host({"-e", code}).stderr:match "^[^\n]*"
  end

  it("the hints of scripts", function()
    assert.equal("-e:1: '=' expected near '+' (Lua has no +=: write x = x + 1)", told "x += 1")
    assert.equal("-e:1: attempt to call global 'len' (a nil value) ('len' is nothing here: #x is the length of x)",
      told "len({})")
    assert.matches("write m:parameters%(%.%.%.%), with a colon$",
      told 'local m = require("accelhost").nn.Linear(2, 3) m.parameters()')
  end)
end)
