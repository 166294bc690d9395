--- Indices and labels out of range on a CUDA device: the error's text, and its time. On the simulated GPU.
local sim = require "spec.support.sim"

local function on_sim(code, env)
  return sim.host("local accelhost = require 'accelhost'\nlocal F = accelhost.nn.functional\n" .. code, env)
end

local case = sim.case

local wrong = [[
  local table_ = accelhost.ones({5, 2}, {device = "cuda"})
  local at = accelhost.tensor({0, 4, 7, -1}):to "int64":to "cuda"
  local x = F.embedding(at, table_)
  print "asked"
  print(table_:sum():item())]]

describe("An index out of range", function()
  case("is reported by its op when checks are immediate", function()
    local result = on_sim(wrong, {ACCELHOST_CUDA_CHECKS = "now"})
    assert.equal(1, result.code)
    assert.equal("", result.stdout)
    assert.matches("embedding: index 7 at position 2 is outside 0%.%.4", result.stderr:match "^[^\n]*")
  end)

  case("is reported, with all that was known, when the host next waits", function()
    local result = on_sim(wrong, {ACCELHOST_CUDA_CHECKS = "later"})
    assert.equal(1, result.code)
    assert.equal("asked\n", result.stdout)
    assert.matches("embedding: index 7 at position 2 is outside 0%.%.4", result.stderr:match "^[^\n]*")
  end)

  case("is reported once, by the first of its kind, and the device works on", function()
    local result = on_sim([[
      local table_ = accelhost.ones({5, 2}, {device = "cuda"})
      local function pick(n) return table_:index_select(0, accelhost.tensor({n}):to "int64":to "cuda") end
      local right = pick(1)
      local first, second = pick(5), pick(6)
      local ok, text = pcall(function() return right:sum():item() end)
      print(ok, text)
      print(right:sum():item())
      print(pick(4):sum():item())]], {ACCELHOST_CUDA_CHECKS = "later"})
    assert.matches("^false\t[^\n]*index_select: index 5 at position 0 is outside 0%.%.4 %(dim 0 of %(5, 2%)%)\n2\n2\n$",
      result.stdout)
  end)
end)

describe("Of several indices out of range", function()
  case("the first is reported, however many blocks report, and earlier reports stay", function()
    local result = on_sim([[
      local table_ = accelhost.ones({5, 1}, {device = "cuda"})
      local function pick(...)
        local at = accelhost.zeros {50000}
        for _, wrong in ipairs {...} do at[wrong] = 100 + wrong % 7 end
        return table_:index_select(0, at:to "int64":to "cuda")
      end
      local function told() return select(2, pcall(function() return table_:sum():item() end)) end
      for _, wrong in ipairs {{49999, 4096, 20000}, {49999}, {30000, 8191, 1}, {4095, 1024}} do
        pick(unpack(wrong))
        pick(0)
        print((tostring(told()):match "index (.- at position %d+)"))
        print(told())
      end]], {ACCELHOST_CUDA_CHECKS = "later"})
    assert.equal("101 at position 4096\n5\n105 at position 49999\n5\n101 at position 1\n5\n"
      .. "102 at position 1024\n5\n", result.stdout, result.stderr)
  end)
end)

describe("A label out of range", function()
  for _, checks in ipairs {"now", "later"} do
    case("is reported " .. checks .. ", and one that is ignored is none", function()
      local result = on_sim([[
        local scores = accelhost.zeros({3, 4}, {device = "cuda"})
        local function loss(a)
          return F.cross_entropy(scores, accelhost.tensor({a, -100, 3}):to "int64":to "cuda"):item()
        end
        print(("%.6f"):format(loss(0)))
        print(pcall(loss, 4))]], {ACCELHOST_CUDA_CHECKS = checks})
      assert.matches("^1%.386294\nfalse\t[^\n]*cross_entropy: target 4 at position 0 is outside 0%.%.3", result.stdout)
    end)
  end
end)
