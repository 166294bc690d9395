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
    {"with", "with accelhost.no_grad():", "a `with` block is a function: accelhost.no_grad(function() ... end)"},
    {"assert", 'assert x == 1, "no"', "assert is a function: assert(condition, message)"},
    {"a list in brackets", "local l = [1, 2]", "a list is {1, 2, 3}"},
    {"a dictionary", "local t = {lr: 1}", "a table's names are written {lr = 0.1}"},
    {"a dictionary with quotes", 'local t = {"lr": 1}', "a table's names are written {lr = 0.1}"},
    {"a comment", "# the loop", "comments begin with --"},
    {"continue", "for i = 1, 3 do if i == 2 then continue end end", "Lua has no continue"},
    {"&&", "local a = 1 && 2", "Lua writes `and`"},
    {"braces", "while true { print(1) }", "a block is do ... end"},
  }
end)
