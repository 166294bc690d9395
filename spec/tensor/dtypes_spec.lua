--- int8, int16, uint16, uint32 and uint64, which have no arithmetic: conversions and promotion as in PyTorch
--- (scripts/fixtures/dtypes.py), indexing, comparison, joining, printing, and the refusal of every other op.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixture = require("spec.support.fixtures").load "dtypes"

local NEW = {"int8", "int16", "uint16", "uint32", "uint64"}

local function source(name)
  if name == "bool" then return accelhost.tensor {false, true} end
  local real = name:find "float" ~= nil
  local numbers = accelhost.tensor(real and fixture.real or fixture.whole, {dtype = real and "float64" or "int64"})
  return numbers:to(name)
end

-- Integers by their bits as int64, floats by their value.
local function numbers(tensor)
  return tensor:to(tensor:is_floating_point() and "float64" or "int64"):tolist()
end

describe("a dtype without arithmetic", function()
  local device = accelhost.get_default_device()
  before_each(function() accelhost.set_default_device "cpu" end) -- the only one with kernels for these
  after_each(function() accelhost.set_default_device(device) end)

  it("is converted to and from every other one with PyTorch's numbers", function()
    local pairs_seen = 0
    for _, case in ipairs(fixture.conversions) do
      local from, to, expected = unpack(case)
      local got = numbers(source(from):to(to))
      for i = 1, #expected do
        assert(got[i] == expected[i] or got[i] ~= got[i] and expected[i] ~= expected[i],
          ("%s to %s, number %d: expected %.17g, got %.17g"):format(from, to, i, expected[i], got[i]))
      end
      pairs_seen = pairs_seen + 1
    end
    assert.equal(13 * 12 - 8 * 7, pairs_seen)
    local strided = source "int16":view(-1, 1):expand(-1, 3):t()
    assert.is_true(strided:to "uint64":equal(strided:contiguous():to "uint64"))
  end)

  it("promotes as in PyTorch, and not where PyTorch does not", function()
    for _, case in ipairs(fixture.promote) do
      local a, b, expected = unpack(case)
      if expected == "none" then
        check.raises(("%s and %s have no common dtype"):format(a, b), function() accelhost.promote_types(a, b) end)
      else
        assert.equal(expected, accelhost.promote_types(a, b))
      end
    end
    local u, i = accelhost.ones({2}, {dtype = "uint16"}), accelhost.ones({2}, {dtype = "int32"})
    for _, run in ipairs {
      function() return u:eq(i) end, function() return accelhost.cat {u, i} end,
      function() return accelhost.stack {i, u} end, function() return accelhost.where(u:gt(0), u, i) end,
    } do
      check.raises("uint16, uint32 and uint64 have no common dtype with other integers", run)
    end
    check.raises("result_type: uint16 and int32", function() accelhost.result_type(u, i) end)
    assert.equal("uint16", accelhost.result_type(u, 3))
    assert.equal("float32", accelhost.result_type(u, 0.5))
  end)

  it("is created by every constructor, with the numbers of its range only", function()
    for _, dtype in ipairs(NEW) do
      local limits = accelhost.iinfo(dtype)
      local most = dtype == "uint64" and 2 ^ 64 - 2048 or limits.max
      assert.equal(dtype, accelhost.empty({2}, {dtype = dtype}).dtype)
      assert.same({0, 0}, accelhost.zeros({2}, {dtype = dtype}):tolist())
      assert.same({1, 1}, accelhost.ones({2}, {dtype = dtype}):tolist())
      assert.same({0, 1, 2}, accelhost.arange(3, {dtype = dtype}):tolist())
      assert.equal(most, accelhost.full({1}, most, {dtype = dtype}):to("float64"):item())
      assert.equal(most, accelhost.tensor({most}, {dtype = dtype}):to("float64"):item())
      assert.equal(limits.min, accelhost.tensor({limits.min}, {dtype = dtype}):item())
      check.raises("outside the range of " .. dtype, function()
        accelhost.tensor({limits.max + 1}, {dtype = dtype})
      end)
      check.raises("outside the range of " .. dtype, function()
        accelhost.full({2}, dtype == "uint64" and 2 ^ 64 or limits.max + 1, {dtype = dtype})
      end)
      assert.equal(dtype, accelhost.randint(0, 9, {4}, {dtype = dtype}).dtype)
      assert.equal(limits.bits / 8, accelhost.ones({1}, {dtype = dtype}):element_size())
    end
    check.raises("outside the range of int8", function() accelhost.tensor({-129}, {dtype = "int8"}) end)
    check.raises("outside the range of uint64", function() accelhost.tensor({-1}, {dtype = "uint64"}) end)
    assert.equal(65535, accelhost.tensor({-1}, {dtype = "uint16"}):item())
    assert.equal("int16", accelhost.short)
    assert.equal("int8", accelhost.ones(1):char().dtype)
    assert.equal("int16", accelhost.ones(1):short().dtype)
  end)

  it("is indexed, viewed, joined, written and compared like int64", function()
    for _, dtype in ipairs(NEW) do
      local wide = accelhost.arange(24):view(2, 3, 4)
      local x = wide:to(dtype)
      local at = accelhost.tensor({1, 0, 1}, {dtype = "int64"})
      local mask = wide:remainder(3):eq(0)
      for name, run in pairs {
        select = function(t) return t[1] end,
        slice = function(t) return t[{{}, {0, 3, 2}}] end,
        transpose = function(t) return t:permute(2, 0, 1):contiguous() end,
        flatten = function(t) return t:transpose(0, 1):reshape(-1) end,
        cat = function(t) return accelhost.cat({t, t}, 1) end,
        stack = function(t) return accelhost.stack({t, t}, 1) end,
        flip = function(t) return t:flip(0, 2) end,
        roll = function(t) return t:roll(1, 1) end,
        tile = function(t) return t:tile(2, 1, 2) end,
        tril = function(t) return t:tril() end,
        index_select = function(t) return t:index_select(0, at) end,
        index = function(t) return t[at] end,
        gather = function(t) return t:gather(0, accelhost.zeros({1, 3, 4}, {dtype = "int64"})) end,
        masked_select = function(t) return t:masked_select(mask) end,
        nonzero = function(t) return t:nonzero() end,
        split = function(t) return t:split(2, 2)[2] end,
        clone = function(t) return t:clone() end,
        assign = function(t) local y = t:clone(); y[{1, 2}] = 7; y[0] = y[1]; return y end,
        copy = function(t) local y = t:clone(); return y:copy_(wide:flip(0)) end,
        fill = function(t) local y = t:clone(); return y:fill_(9) end,
        where = function(t) return accelhost.where(mask, t, t:flip(0)) end,
        where_number = function(t) return accelhost.where(mask, t, 3) end,
        masked_fill = function(t) return t:masked_fill(mask, 9) end,
        put = function(t) return t:index_put(mask, 5) end,
        scatter = function(t) return t:scatter(0, accelhost.zeros({1, 3, 4}, {dtype = "int64"}), 3) end,
        add_at = function(t) return t:view(-1):index_put(at, t:view(-1)[{{0, 3}}], true) end,
        lt = function(t) return t:lt(7) end, ge = function(t) return t:ge(t:flip(0)) end,
        eq = function(t) return t:eq(wide:to "float32") end,
      } do
        local got, expected = run(x), run(wide)
        local kept = expected.dtype ~= "bool" and name ~= "nonzero"
        assert.equal(kept and dtype or expected.dtype, got.dtype, name)
        assert.same(expected:tolist(), got:tolist(), dtype .. " " .. name)
      end
      assert.is_true(accelhost.equal(x, x:clone()))
      assert.is_false(accelhost.equal(x, x:flip(0)))
    end
    local large = accelhost.tensor({-1, 1}, {dtype = "int64"}):to "uint64"
    assert.same({true, false}, large:gt(5):tolist())
    assert.same({false, true}, accelhost.tensor({-1, 1}, {dtype = "int8"}):gt(0):tolist())
  end)

  it("prints exactly; item and tolist raise beyond 2^53 instead of rounding", function()
    assert.equal("tensor([-128,  127], dtype=int8)", tostring(accelhost.tensor({-128, 127}, {dtype = "int8"})))
    local large = accelhost.tensor({-1, 3}, {dtype = "int64"}):to "uint64"
    assert.equal("tensor([18446744073709551615,                    3], dtype=uint64)", tostring(large))
    assert.equal(3, large[1]:item())
    check.raises("item: 18446744073709551615 is beyond 2^53 and no exact Lua number", function() large[0]:item() end)
    check.raises("beyond 2^53", function() large:tolist() end)
    assert.equal(2 ^ 53, accelhost.full({1}, 2 ^ 53, {dtype = "uint64"}):item())
  end)

  it("is handed to a compiled loop as its C type", function()
    for dtype, value in pairs {int8 = -3, int16 = -300, uint16 = 65535, uint32 = 2 ^ 32 - 1} do
      accelhost.full({2}, value, {dtype = dtype}):with_data(function(pointer) assert.equal(value, pointer[1]) end)
    end
  end)

  it("is refused by name by every op that computes, before anything is written", function()
    for _, dtype in ipairs(NEW) do
      local x = accelhost.arange(4, {dtype = dtype})
      local text = "expected a dtype with arithmetic, got " .. dtype
      for _, run in ipairs {
        function() return x + 1 end, function() return x * 0.5 end, function() return -x end,
        function() return x:sum() end, function() return x:max() end, function() return x:sort() end,
        function() return x:argmax() end, function() return x:cumsum(0) end, function() return x:abs() end,
        function() return x:add_(1) end, function() return accelhost.ones({4}, {dtype = "int64"}):add_(x) end,
        function() return x:view(2, 2):matmul(x:view(2, 2)) end,
        function() return accelhost.rand({2}, {dtype = dtype}) end, function() return x:unique() end,
        function() return x:bincount() end, function() return accelhost.ones({4}):sum {dtype = dtype} end,
        function() return x:random_() end,
      } do
        local message = check.raises(text, run)
        assert.matches('convert it first, for instance x:to "int64"', message, 1, true)
      end
      assert.same({0, 1, 2, 3}, x:tolist())
    end
  end)
end)
