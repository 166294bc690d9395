-- Lua values as bytes between the processes of a job.
local accelhost = require "accelhost"
local run = require "spec.support.run"
local codec = require("accelhost._C").codec

local function there_and_back(value) return codec.unpack(codec.pack(value)) end

describe("the codec of values", function()
  it("restores numbers, texts, booleans, nil and tables of them", function()
    local value = {1, -0.5, "text", true, false, {a = {b = "c"}}, [2 ^ 53] = "large", [""] = math.huge}
    assert.same(value, there_and_back(value))
    assert.is_nil(there_and_back(nil))
    assert.equal(7, there_and_back(7))
    assert.same({}, there_and_back {})
    local long = ("x"):rep(100000)
    assert.equal(long, there_and_back(long))
  end)

  it("restores tensors: views, scalars, empty ones, any dtype", function()
    for _, tensor in ipairs {
      accelhost.arange(12):reshape(3, 4):t(), accelhost.tensor(2.5), accelhost.zeros(0, 3),
      accelhost.tensor {true, false}, accelhost.ones(2):to "bfloat16",
    } do
      local got = there_and_back({x = tensor}).x
      assert.equal(tensor.dtype, got.dtype)
      assert.same(tensor:shape(), got:shape())
      assert.same(tensor:tolist(), got:tolist())
    end
  end)

  it("names values that cannot be serialized by the keys that lead to them", function()
    local bytes, reason = codec.pack {a = {[3] = print}}
    assert.is_nil(bytes)
    assert.matches("^item 'a': item .*3: a function", reason)
    assert.matches("an object", select(2, codec.pack(accelhost.nn.Linear(1, 1))))
    local deep = {}
    for _ = 1, 200 do deep = {deep} end
    assert.matches("tables nested deeper than 100", select(2, codec.pack(deep)))
    local ring = {}
    ring.self = ring
    assert.equal("item 'self': a table that holds itself", select(2, codec.pack(ring)))
    assert.equal("a key that is no number, text or boolean", select(2, codec.pack {[{}] = 1}))
  end)

  it("checks a value by the same rule, and reports the refused value", function()
    local refusal = {}
    assert.is_true(codec.check {1, {a = accelhost.ones(2)}})
    assert.is_nil((codec.check({a = {print}}, false, refusal)))
    assert.same({1, "a", value = print, why = ""}, refusal)
    assert.is_nil((codec.check({x = accelhost.empty({2}, {device = "meta"})}, true)))
    local kinds = {}
    for i, value in ipairs {1, "a", false, accelhost.ones(1), {}, print, accelhost.nn.ReLU()} do
      kinds[i] = codec.kind(value) or "none"
    end
    assert.same({"scalar", "scalar", "scalar", "tensor", "table", "none", "none"}, kinds)
  end)

  it("refuses bytes that are none", function()
    assert.error_matches(function() codec.unpack(accelhost.ones(3)) end, "expected the bytes that pack returned")
    local bytes = codec.pack {1, 2, x = accelhost.ones(3)}
    for length = 0, #bytes - 1 do
      assert.error_matches(function() codec.unpack(bytes:narrow(0, 0, length):clone()) end, "damaged")
    end
  end)

  it("shares bytes with another process for as long as their keeper lives", function()
    local held = {codec.share(codec.pack {x = accelhost.arange(5), n = 3})}
    local path = held[1]
    local command = ([[local codec = require("accelhost._C").codec
      print(codec.unpack(codec.map %q).x:sum():item())]]):format(path)
    assert.equal("10\n", run.host({"-e", command}).stdout)
    local bytes = codec.map(path)
    bytes:fill_(0)
    assert.equal(3, codec.unpack(codec.map(path)).n)
    held[2] = nil
    collectgarbage()
    collectgarbage()
    assert.error_matches(function() codec.map(path) end, "codec.map: .*/fd/.*No such file")
  end)
end)
