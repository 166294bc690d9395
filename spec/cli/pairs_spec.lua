-- Loops over tables that LuaJIT may compile; some of its versions did so wrongly (host/bind/lua/pairs.c). A process of
-- its own, in which nothing is compiled yet.
local run = require "spec.support.run"

local function prints(expected, script)
  local result = run.script(script, {timeout = 60})
  assert.same({expected, ""}, {result.stdout, result.stderr})
end

describe("pairs", function()
  it("yields values that stay unchanged while the next one is read", function()
    prints("0\n", [[
      local function make()
        return loadstring [=[
          return function(given)
            local best
            for _, value in pairs(given) do
              if value == value and not (best and best <= value) then best = value end
            end
            return best
          end]=]()
      end
      math.randomseed(1)
      local wrong = 0
      for round = 1, 300 do
        local compiled, interpreted, most = make(), make(), math.random(12)
        jit.off(interpreted)
        for i = 1, 400 do
          local values = {}
          for k = 1, math.random(0, most) do
            values[math.random(0, 20)] = math.random() < 0.1 and 0 / 0 or math.random() < 0.5 and math.random() or k
          end
          if compiled(values) ~= interpreted(values) then wrong = wrong + 1 end
        end
        jit.flush()
      end
      print(wrong)]])
  end)

  it("walks to the end, also where compiling is aborted", function()
    prints("100000\n", [[
      local inner = {1, 2, 3, 4, 5}
      local outer = {a = inner, b = inner, c = inner, d = inner, e = inner}
      local function interpret(...)
        for j = 1, 100 do end
      end
      local whole = 0
      for i = 1, 100000 do
        interpret()
        local count = 0
        for _, list in pairs(outer) do
          for _ in pairs(list) do end
          count = count + 1
        end
        if count == 5 then whole = whole + 1 end
      end
      print(whole)]])
  end)

  it("and next refuse other values than tables, and keys that are not in it", function()
    local function told(...) return select(2, pcall(...)) end
    assert.equal("bad argument #1 to '?' (table expected, got nil)", told(pairs, nil):gsub("'%a+'", "'?'"), nil)
    assert.equal("bad argument #1 to '?' (table expected, got no value)", told(next):gsub("'%a+'", "'?'"), nil)
    assert.equal("invalid key to 'next'", told(next, {}, "a"))
    assert.is_nil(next {})
    assert.same({1, "a"}, {next {"a"}})
  end)
end)
