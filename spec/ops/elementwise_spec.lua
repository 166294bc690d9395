local accelhost = require "accelhost"
local activations = require "spec.cases.activations"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local C = require "accelhost._C"
local F = accelhost.nn.functional
local inf, nan = 1 / 0, 0 / 0
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local function T(values, dtype, requires_grad)
  return accelhost.tensor(values, {dtype = dtype or "float32", requires_grad = requires_grad})
end

local dtypes = {"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

describe("type promotion", function()
  it("depends on category, then on dims, for every pair", function()
    -- Rows and columns in the order of `dtypes`: the result of x * y.
    local letters = {b = "bool", u = "uint8", i = "int32", l = "int64", h = "float16", f = "bfloat16", s = "float32",
      d = "float64"}
    local rows = {"builhfsd", "uuilhfsd", "iiilhfsd", "llllhfsd", "hhhhhssd", "ffffsfsd", "sssssssd", "dddddddd"}
    for i, left in ipairs(dtypes) do
      for k, right in ipairs(dtypes) do
        local result = accelhost.ones({2}, {dtype = left}) * accelhost.ones({2}, {dtype = right})
        assert.equal(letters[rows[i]:sub(k, k)], result.dtype, left .. " * " .. right)
      end
    end
  end)

  it("lets a 0-dim tensor and a number yield within their category", function()
    local halves, double = T({1, 2}, "float16"), T(1.5, "float64")
    assert.equal("float16", (halves + double).dtype)
    assert.equal("float16", (halves + 1.5).dtype)
    assert.equal("float32", (T({1, 2}, "int32") + 1.5).dtype)
    assert.equal("int32", (T({1, 2}, "int32") + 1).dtype)
    assert.equal("float64", (T({1, 2}, "int32") + double).dtype)
    assert.equal("int64", (T({true, false}, "bool") * 2).dtype)
  end)

  it("keeps a number's digits where an op computes in a wider dtype than it stores", function()
    check.near(1.1 * 3, T({3}, "float64") * 1.1, 0)
    check.near(3.30078125, T({3}, "float16") * 1.1, 0)
  end)

  it("makes floats of divided integers and of their functions", function()
    assert.equal("float32", (T({1, 2}, "int64") / T({2, 4}, "int64")).dtype)
    assert.equal("float32", T({1, 2}, "int64"):exp().dtype)
    assert.equal("int64", T({1, 2}, "int64"):square().dtype)
  end)

  it("wraps integers around", function()
    assert.same({44}, (T({200}, "uint8") + 100):tolist())
    assert.same({-2147483648}, (T({2147483647}, "int32") + 1):tolist())
    assert.same({254}, (-T({2}, "uint8")):tolist())
  end)
end)

describe("in place", function()
  it("keeps the left side's dtype", function()
    local x = T({1, 2}, "float32")
    assert.equal(x, x:add_(T({0.5, 0.5}, "float64")))
    assert.equal("float32", x.dtype)
    assert.same({1.5, 2.5}, x:tolist())
    assert.same({1, 0}, T({1, 2}):eq_(T {1, 3}):tolist())
  end)

  it("refuses a result of a higher category", function()
    check.raises("add_: the result is float32, which cannot be stored in place into int64",
      function() T({1, 2}, "int64"):add_(1.5) end)
    check.raises("exp_: the result is float32, which cannot be stored in place into int32",
      function() T({1}, "int32"):exp_() end)
  end)

  it("refuses to stretch the left side", function()
    check.raises("(2, 3), which does not fit in place into (3,)",
      function() T({1, 2, 3}):add_(accelhost.ones(2, 3)) end)
    check.raises("copy_: a source of shape (2, 3) does not broadcast to (3,)",
      function() T({1, 2, 3}):copy_(accelhost.ones(2, 3)) end)
  end)

  it("refuses elements that share their place", function()
    local x = accelhost.zeros(1, 3):expand(2, 3)
    check.raises("clone() it first", function() x:add_(1) end)
  end)

  it("reads a source that overlaps as it was before", function()
    local x = accelhost.arange(6, {dtype = "float32"})
    x:narrow(0, 1, 5):add_(x:narrow(0, 0, 5))
    assert.same({0, 1, 3, 5, 7, 9}, x:tolist())
    local square = accelhost.arange(9, {dtype = "float32"}):view(3, 3)
    square:copy_(square:t())
    assert.same({{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}, square:tolist())
  end)

  it("writes through strided views", function()
    local x = accelhost.zeros(4, 6)
    x:t():narrow(0, 1, 2):fill_(3)
    x:select(1, 5):copy_(T {1, 2, 3, 4})
    assert.same({0, 3, 3, 0, 0, 4}, x:tolist()[4])
  end)
end)

-- Rows whose width 8 divides may be read several elements at once on a device; others, and places between, may not.
describe("views with dense rows", function()
  local function filled(dtype, ...)
    local x = accelhost.arange(accelhost.zeros(...):numel()):reshape(...)
    return dtype == "bool" and x:remainder(3):eq(1) or x:remainder(97):to(dtype)
  end
  -- The same from elements that are not adjacent.
  local function apart(x)
    return accelhost.stack({x, x}, x:dim()):select(x:dim(), 1)
  end

  it("are copied from and to any offset, in every dtype", function()
    for _, dtype in ipairs(dtypes) do
      local x = filled(dtype, 3, 5, 64)
      for _, range in ipairs {{0, 16}, {8, 32}, {16, 24}, {1, 32}, {4, 40}, {3, 17}} do
        local view = x:narrow(2, range[1], range[2])
        local want = apart(view)
        assert.is_true(accelhost.equal(want, view:contiguous()), dtype)
        local into = filled(dtype, 3, 5, 64)
        into:narrow(2, 64 - range[2], range[2]):copy_(view)
        assert.is_true(accelhost.equal(want, into:narrow(2, 64 - range[2], range[2])), dtype)
        local kept = 64 - range[2]
        assert.is_true(accelhost.equal(apart(x:narrow(2, 0, kept)), into:narrow(2, 0, kept)), dtype)
      end
      assert.is_true(accelhost.equal(apart(x:transpose(0, 1)), x:transpose(0, 1):contiguous()), dtype)
      local rejoined = accelhost.cat({x:narrow(1, 1, 2), x:narrow(1, 3, 1)}, 1)
      assert.is_true(accelhost.equal(apart(x:narrow(1, 1, 3)), rejoined), dtype)
      local wide = accelhost.cat({x:narrow(2, 8, 16), x:narrow(2, 0, 8)}, 2)
      assert.is_true(accelhost.equal(apart(wide), wide))
      assert.is_true(accelhost.equal(apart(x:narrow(2, 8, 16)), wide:narrow(2, 0, 16)))
    end
  end)

  it("are converted", function()
    for _, from in ipairs(dtypes) do
      local view = filled(from, 4, 48):narrow(1, 16, 24)
      for _, to in ipairs(dtypes) do
        assert.is_true(accelhost.equal(apart(view):to(to), view:to(to)), from .. " to " .. to)
      end
    end
  end)

  it("meet operands that are broadcast along them or across them", function()
    for _, dtype in ipairs {"uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
      local x = filled(dtype, 2, 6, 48):narrow(2, 16, 24)
      local row, column, each = filled(dtype, 24), filled(dtype, 6, 1), filled(dtype, 2, 1, 1)
      local off = filled(dtype, 25):narrow(0, 1, 24)
      for _, other in ipairs {row, column, each, off, x:narrow(1, 2, 1), T({3}, dtype)} do
        local full = apart(other:expand(2, 6, 24))
        assert.is_true(accelhost.equal(apart(x) + full, x + other), dtype)
        assert.is_true(accelhost.equal(full - apart(x), other - x), dtype)
        local mask = filled("bool", 6, 24)
        assert.is_true(accelhost.equal(accelhost.where(apart(mask), apart(x), full), accelhost.where(mask, x, other)),
          dtype)
        assert.is_true(accelhost.equal(apart(x):gt(full), x:gt(other)), dtype)
      end
      local into = filled(dtype, 6, 48)
      into:narrow(1, 8, 24):add_(row)
      assert.is_true(accelhost.equal(apart(filled(dtype, 6, 48):narrow(1, 8, 24)) + row, into:narrow(1, 8, 24)), dtype)
      assert.is_true(accelhost.equal(filled(dtype, 6, 48):narrow(1, 32, 16), into:narrow(1, 32, 16)), dtype)
    end
  end)

  it("of float32 meet halves", function()
    for _, half in ipairs {"float16", "bfloat16"} do
      local x, y = filled("float32", 5, 64):narrow(1, 4, 32), filled(half, 5, 64):narrow(1, 8, 32)
      assert.is_true(accelhost.equal(apart(x) * apart(y), x * y))
      assert.is_true(accelhost.equal(apart(y) * apart(x):to(half), y * x:to(half)))
    end
  end)
end)

describe("conversion", function()
  it("converts every dtype to every dtype", function()
    for _, from in ipairs(dtypes) do
      for _, to in ipairs(dtypes) do
        local values = from == "bool" and {1, 0, 1} or to == "bool" and {1, 0, 1} or {1, 0, 3}
        local x = T({1, 0, from == "bool" and 1 or 3}, from)
        assert.same(values, x:to(to):to("float64"):tolist(), from .. " to " .. to)
        local wide = accelhost.ones({40}, {dtype = from}):to(to)
        assert.equal(40, wide:to("float64"):sum():item())
      end
    end
  end)

  it("truncates towards zero and treats any number but 0 as true", function()
    assert.same({-1, 1, 0}, T({-1.9, 1.9, -0.9}):to("int32"):tolist())
    assert.same({true, false, true}, T({0.1, 0, nan}):to("bool"):tolist())
  end)

  it("rounds to the nearest half, ties to even", function()
    local halves = T({2048, 2049, 2051, 65520, 2 ^ -24, 2 ^ -26}):to("float16")
    check.near({2048, 2048, 2052, inf, 2 ^ -24, 0}, halves:to("float32"), 0)
    check.near({256, 256, 260, inf}, T({256, 257, 259, 3.4e38}):to("bfloat16"):to("float32"), 0)
    local x = T({nan, inf, -inf}):expand(20, 3):contiguous()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      check.near({nan, inf, -inf}, x:to(dtype):to("float32"):select(0, 17), 0)
    end
  end)

  it("converts runs of fp16 as single numbers", function()
    local x = accelhost.cat {accelhost.randn(700) * 300, accelhost.tensor {nan, inf, -inf, 65504, 2 ^ -24, neg0, 1e6}}
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64", "int32"} do
      local from = (dtype:find "^int" and x:narrow(0, 0, 700) or x):to(dtype)
      local single = accelhost.empty(from:size(0), 2, {dtype = "float16"}):select(1, 0) -- written one by one
      single:copy_(from)
      check.near(check.flat(single:float()), from:half(), 0)
      local back = accelhost.empty(from:size(0), 2, {dtype = dtype}):select(1, 0)
      back:copy_(from:half())
      check.near(check.flat(back), from:half():to(dtype), 0)
    end
  end)

  it("rounds runs of numbers to bfloat16 as single ones, NaN among them too", function()
    local bits = accelhost.randint(-2 ^ 31, 2 ^ 31, {70, 33}, {device = "cpu"}):to "int32"
    bits:select(1, 0):copy_(accelhost.arange(70):mul(0x8000):to "int32") -- ties
    local x = bits:view("float32"):to(accelhost.get_default_device())
    local single = accelhost.empty(70, 33, 2, {dtype = "bfloat16"}):select(2, 0) -- written one by one
    single:copy_(x)
    local run = x:to "bfloat16"
    check.near(check.flat(single), run, 0)
    check.near(check.flat(1 / single), 1 / run, 0)
    assert.is_true(run:isnan():any():item())
  end)

  it("returns the tensor itself when there is nothing to do", function()
    local x = T {1, 2}
    assert.equal(x, x:to("float32"))
    assert.equal(x, x:contiguous())
    assert.is_false(rawequal(x, x:clone()))
  end)

  it("copies transposes of every width", function()
    for _, dtype in ipairs {"uint8", "float16", "float32", "float64"} do
      local x = accelhost.arange(35 * 50):remainder(97):to(dtype):view(35, 50)
      local y = x:t():contiguous()
      assert.is_true(y:is_contiguous())
      assert.is_true(y:t():eq(x):all():item())
      local batched = accelhost.arange(2 * 17 * 33):remainder(97):to(dtype):view(2, 17, 33):transpose(1, 2)
      assert.is_true(batched:contiguous():transpose(1, 2):eq(batched:transpose(1, 2)):all():item())
    end
  end)
end)

describe("strided and broadcast operands", function()
  it("have the results of row-major ones, short rows and long ones", function()
    accelhost.manual_seed(4)
    for _, shape in ipairs {{5, 3}, {3, 70}, {70, 3}, {2, 5, 60}, {60, 2, 5}, {130, 140}} do
      local x = accelhost.randn(shape)
      local turned = x:transpose(0, #shape - 1):contiguous():transpose(0, #shape - 1)
      local last = accelhost.randn(shape[#shape])
      local first_shape = {}
      for d = 1, #shape do first_shape[d] = d == 1 and shape[1] or 1 end
      local first = accelhost.randn(first_shape)
      for _, other in ipairs {last, first, accelhost.randn({}), turned, x:to("float64")} do
        local expected = x:contiguous():add(other:expand(shape):contiguous())
        assert.is_true((turned + other):eq(expected):all():item())
        assert.is_true((other + turned):eq(expected):all():item())
        local inplace = turned:to("float64"):clone():add_(other)
        assert.is_true(inplace:eq(x:to("float64") + other:expand(shape):contiguous():to("float64")):all():item())
      end
    end
  end)

  it("walk rows of several dims from any row and element, on any number of threads", function()
    local threads = accelhost.get_num_threads()
    local shape = {6, 7, 9, 101}
    local a, b, c = accelhost.randn(6, 1, 9, 101), accelhost.randn(7, 1, 101), accelhost.randn(6, 7, 9, 1)
    local function spread(x) return x:expand(shape):contiguous() end
    local wide = accelhost.zeros(6, 7, 9, 120)
    for _, count in ipairs {1, 2, 3, 7} do
      accelhost.set_num_threads(count)
      for _, pair in ipairs {{a, b}, {b, a}, {a, c}, {c, b}, {b, c}} do
        local x, y = unpack(pair)
        local expected = spread(x):sub(spread(y))
        assert.is_true(expected:equal(accelhost.zeros(shape) + (x - y)))
        assert.is_true(expected:equal(spread(x) - y) and expected:equal(x - spread(y)))
        wide:zero_():narrow(3, 11, 101):copy_(spread(x)):sub_(y)
        assert.is_true(expected:equal(wide:narrow(3, 11, 101)))
        assert.equal(0, wide:narrow(3, 0, 11):abs():sum():item() + wide:narrow(3, 112, 8):abs():sum():item())
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("may be empty or 0-dim", function()
    local empty = accelhost.zeros(0, 3)
    assert.same({0, 3}, (empty + accelhost.ones(3)):shape())
    assert.same({0, 3}, empty:exp():shape())
    assert.same({2, 0, 3}, (empty + accelhost.ones(2, 1, 1)):shape())
    assert.equal(5, (T(2) + T(3)):item())
  end)

  it("report which shapes do not fit", function()
    check.raises("add: shapes do not broadcast: (2, 3) and (4,)",
      function() return accelhost.ones(2, 3) + accelhost.ones(4) end)
  end)
end)

describe("special values", function()
  it("have C's results", function()
    check.near({1, inf, 0, nan}, T({0, inf, -inf, nan}):exp(), 0)
    check.near({-inf, inf, nan, nan, 0}, T({0, inf, -1, nan, 1}):log(), 0)
    check.near({-1, 1, nan, 0}, T({-inf, inf, nan, 0}):tanh(), 0)
    check.near({0, 1, nan, 0.5}, T({-inf, inf, nan, 0}):sigmoid(), 0)
    check.near({-1, 1, nan, 0}, T({-inf, inf, nan, 0}):erf(), 0)
    check.near({0, inf, nan}, T({-inf, inf, nan}):relu(), 0)
    check.near({nan, nan, 1}, T({inf, nan, 0}):cos(), 0)
    check.near({-inf, inf, nan, 0}, T({-1, inf, -2, 0}):log1p(), 0)
    check.near({math.exp(-103), math.exp(88)}, T({-103, 88}):exp(), 1e-6)
  end)

  it("meet large angles with libm's precision", function()
    check.near({math.sin(1e6), math.sin(-3e7), math.sin(19999)}, T({1e6, -3e7, 19999}):sin(), 1e-6)
    check.near({math.cos(1e6), math.cos(123456)}, T({1e6, 123456}):cos(), 1e-6)
  end)

  it("win in maximum and minimum when they are NaN", function()
    check.near({nan, nan, 2}, accelhost.maximum(T {nan, 1, 2}, T {1, nan, 1}), 0)
    check.near({nan, nan, 1}, accelhost.minimum(T {nan, 1, 2}, T {1, nan, 1}), 0)
    check.near({nan, 0, 1}, T({nan, -5, 5}):clamp(0, 1), 0)
    check.near({1, 1}, T({0, 5}):clamp(3, 1), 0)
  end)

  it("are found", function()
    local x = T {nan, inf, -inf, 0}
    assert.same({true, false, false, false}, x:isnan():tolist())
    assert.same({false, true, true, false}, x:isinf():tolist())
    assert.same({false, false, false, true}, x:isfinite():tolist())
    assert.same({false, true}, T({1, 2}, "int64"):isfinite():eq(T({0, 1}):gt(0)):tolist())
  end)
end)

describe("a result", function()
  it("never is its input's memory", function()
    for _, op in ipairs {"floor", "ceil", "round", "trunc", "sign", "abs"} do
      local x = T({1, 2}, "int64")
      x[op](x):add_(9)
      assert.same({1, 2}, x:tolist(), op)
    end
    for _, op in ipairs {"sign", "abs"} do
      local x = T({true, true}, "bool")
      x[op](x):fill_(false)
      assert.same({true, true}, x:tolist(), op)
    end
    local x = T {1, 2}
    x:repeat_interleave(1):add_(9)
    F.pad(x, {0, 0}):add_(9)
    F.pad(x, {-1, 0}):add_(9)
    assert.same({1, 2}, x:tolist())
    local y = T({5}):repeat_interleave(3)
    y[0] = 1
    assert.same({1, 5, 5}, y:tolist())
  end)
end)

describe("hardsigmoid and hardswish", function()
  it("hand a nan on", function()
    for _, dtype in ipairs {"float32", "float64"} do
      local x = T({0 / 0, -4, 4}, dtype)
      check.near({0 / 0, 0, 1}, F.hardsigmoid(x):tolist(), 0)
      check.near({0 / 0, 0, 4}, F.hardswish(x):tolist(), 0)
    end
  end)
end)

describe("hardtanh", function()
  it("refuses bounds in the wrong order", function()
    check.raises("hardtanh: min_val 2 is greater than max_val 1", function() F.hardtanh(T {1}, {min_val = 2}) end)
  end)
end)

describe("add of bools", function()
  it("ignores the operand that alpha = 0 cancels", function()
    assert.same({false, true}, T({false, true}, "bool"):add(T({true, true}, "bool"), {alpha = 0}):tolist())
  end)
end)

describe("a number", function()
  it("keeps the sign of zero, and does not convert integers", function()
    assert.same({-inf, inf}, (1 / (T {1, -1} * neg0)):tolist())
    assert.equal("int64", (T({1, 2}, "int64") * neg0).dtype)
  end)

  it("that is stored must be in the dtype's range", function()
    local bytes, ints = T({1, 2}, "uint8"), T({1, 2}, "int32")
    check.raises("fill_: value: 300 is outside the range of uint8", function() bytes:fill_(300) end)
    check.raises("masked_fill: value: 300 is outside the range of uint8", function()
      bytes:masked_fill(T({true, false}, "bool"), 300)
    end)
    check.raises("index_fill: value: 300 is outside", function() bytes:index_fill(0, T({0}, "int64"), 300) end)
    check.raises("scatter: src: 300 is outside", function() bytes:scatter(0, T({0}, "int64"), 300) end)
    check.raises("full: fill_value: 300 is outside the range of uint8", function()
      accelhost.full({2}, 300, {dtype = "uint8"})
    end)
    check.raises("nan is outside the range of int64", function()
      accelhost.full({2}, nan, {dtype = "int64"})
    end)
    check.raises("tensor: 300 is outside the range of uint8", function() return T({300}, "uint8") end)
    check.raises("fill_: value: 4294967296 is outside the range of int32", function() ints:fill_(2 ^ 32) end)
    check.raises("clamp: max: -1 is outside the range of uint8", function() return bytes:clamp({max = -1}) end)
    check.raises("clamp: min: 256 is outside the range of uint8", function() return bytes:clamp(256) end)
    check.raises("hardtanh: min_val -1 is outside the range of uint8", function() return F.hardtanh(bytes) end)
    assert.same({255}, T({-1}, "uint8"):tolist()) -- as in PyTorch
    assert.same({1, 2}, ints:clamp(-2 ^ 40, 2 ^ 40):tolist())
  end)

  it("of a hard activation does not overflow a half", function()
    assert.equal(20000, F.hardswish(T({20000}, "float16")):item())
  end)
end)

describe("rounding and division", function()
  it("rounds half to even", function()
    assert.same({0, 2, 2, neg0, -2}, T({0.5, 1.5, 2.5, -0.5, -1.5}):round():tolist())
  end)

  it("has the divisor's sign in remainder, the dividend's in fmod", function()
    for _, dtype in ipairs {"int32", "int64", "float32", "float64"} do
      local x, y = T({7, -7, 7, -7}, dtype), T({3, 3, -3, -3}, dtype)
      assert.same({1, 2, -2, -1}, accelhost.remainder(x, y):tolist())
      assert.same({1, -1, 1, -1}, accelhost.fmod(x, y):tolist())
      assert.same({2, -3, -3, 2}, accelhost.floor_divide(x, y):tolist())
      assert.same({2, -2, -2, 2}, x:div(y, "trunc"):tolist())
    end
  end)

  it("of int64 are exact below and above 2^52", function()
    local high = accelhost.tensor({2 ^ 52, 2 ^ 53, 2 ^ 62}, {dtype = "int64"}):unsqueeze(1)
    local near = accelhost.arange(-600, 600)
    for _, a in ipairs {near, near * 1000003, (high + near):flatten(), (near - high):flatten()} do
      for _, divisor in ipairs {1, -1, 2, 3, -7, 1000003, 2 ^ 40 + 1, -(2 ^ 52)} do
        local quotient = accelhost.floor_divide(a, divisor)
        local rest = a - quotient * divisor
        assert.is_true((divisor > 0 and rest:ge(0):logical_and(rest:lt(divisor))
          or rest:le(0):logical_and(rest:gt(divisor))):all():item())
        local divisors = accelhost.full({a:numel()}, divisor, {dtype = "int64"})
        assert.is_true(quotient:equal(accelhost.floor_divide(a, divisors)))
      end
    end
  end)

  it("refuses integers divided by zero and lets floats go to infinity", function()
    check.raises("remainder: division of integers by zero", function() return T({1}, "int64"):remainder(0) end)
    check.raises("floor_divide: division of integers by zero",
      function() return accelhost.floor_divide(T({1, 2}, "int32"), T({1, 0}, "int32")) end)
    check.near({inf, -inf, nan}, T({1, -1, 0}) / 0, 0)
  end)

  it("checks for zeros in the dtype that divides", function()
    local bytes, ints = T({7}, "uint8"), T({7}, "int32")
    local divisor = T({2 ^ 32}, "int64")
    for _, op in ipairs {"floor_divide", "remainder", "fmod"} do
      check.raises(op .. ": division of integers by zero (the divisor in uint8, at position 0)", function()
        return bytes[op](bytes, 256)
      end)
      check.raises(op .. ": division of integers by zero (the divisor in int32", function()
        return ints[op](ints, 2 ^ 32)
      end)
      check.raises(op .. ": division of integers by zero (the divisor in int32", function()
        return ints[op](ints, divisor[0])
      end)
    end
    for _, mode in ipairs {"floor", "trunc"} do
      check.raises("div: division of integers by zero (the divisor in int32", function()
        return ints:div(2 ^ 32, mode)
      end)
    end
    assert.same({0}, ints:div(divisor, "floor"):tolist())
    assert.equal(0, T({}, "int64"):div(0, "floor"):numel())
  end)

  it("survives the smallest integer divided by -1", function()
    local x = T({-2147483648}, "int32")
    assert.same({0}, accelhost.remainder(x, -1):tolist())
    assert.same({0}, accelhost.fmod(x, -1):tolist())
  end)

  it("refuses negative powers of integers and other nonsense", function()
    check.raises("pow: integers cannot be raised to the negative power -1", function() return T({2}, "int64") ^ -1 end)
    check.raises("rounding_mode must be 'floor' or 'trunc'", function() return T({2}):div(2, "up") end)
    check.raises("sub: not defined for bool", function() return T({true}, "bool") - T({true}, "bool") end)
    check.raises("alpha must be an integer for int64", function() return T({2}, "int64"):add(1, 0.5) end)
    check.raises("bitwise_and: not defined for float32", function() return T({2}):bitwise_and(1) end)
    check.raises("expected a bool mask, got float32", function() return T({2}):masked_fill(T {1}, 0) end)
    check.raises("clamp: expected min, max or both", function() return T({2}):clamp() end)
    check.raises("gelu: approximate must be 'none' or 'tanh'", function() return F.gelu(T {2}, "fast") end)
    check.raises("silu: expected a floating input, got int64", function() return F.silu(T({2}, "int64")) end)
  end)
end)

describe("gradients at kinks", function()
  local function slope(fn, values)
    local x = T(values, "float64", true)
    fn(x):sum():backward()
    return x.grad:tolist()
  end

  it("are PyTorch's choice", function()
    assert.same({0, 0, 1}, slope(function(x) return x:relu() end, {-1, 0, 1}))
    assert.same({-1, 0, 1}, slope(function(x) return x:abs() end, {-1, 0, 1}))
    assert.same({0, 0, 1, 0, 0}, slope(function(x) return x:clamp(-1, 1) end, {-2, -1, 0, 1, 2}))
    assert.same({0, 0, 1, 0, 0}, slope(function(x) return F.hardtanh(x) end, {-2, -1, 0, 1, 2}))
    assert.same({0, 1, 1}, slope(F.hardswish, {-3, 3, nan}))
    assert.same({inf}, slope(function(x) return x:sqrt() end, {0}))
    assert.same({0, 0}, slope(function(x) return x:floor() end, {0.5, 1}))
    assert.same({0}, slope(function(x) return x ^ 0 end, {0}))
  end)

  it("are split between equals in maximum", function()
    local x, y = T({1, 2, 3}, "float64", true), T({1, 3, 2}, "float64", true)
    accelhost.maximum(x, y):sum():backward()
    assert.same({0.5, 0, 1}, x.grad:tolist())
    assert.same({0.5, 1, 0}, y.grad:tolist())
  end)

  it("stop at the untaken side of where", function()
    local x = T({0, 4}, "float64", true)
    accelhost.where(x:gt(1), x:sqrt(), 7):sum():backward()
    check.near({nan, 0.25}, x.grad, 0) -- infinity times 0, as in PyTorch
    local z = T({0, 4}, "float64", true)
    accelhost.where(z:gt(1), z * 2, z * 3):sum():backward()
    assert.same({3, 2}, z.grad:tolist())
  end)
end)

describe("fused gradients", function()
  local x = T({-2.3, -0.7, -0.1, 0.2, 0.9, 2.1}, "float64", true)
  local functions = {
    ["gelu by tanh"] = function(t) return F.gelu(t, "tanh") end,
    prelu = function(t) return F.prelu(t, t:narrow(0, 1, 1)) end,
    glu = function(t) return F.glu(t * t) end,
    mse_loss = function(t) return F.mse_loss(t, t:flip(0) * 2, {reduction = "none"}) end,
    erf = function(t) return t:erf() end,
    ["power of a number"] = function(t) return accelhost.pow(2.5, t) end,
  }
  for _, row in ipairs(activations) do
    local options = {}
    for option, values in pairs(row.values or {}) do options[option] = values[1] end
    if row.fn and not functions[row.fn] then
      functions[row.fn] = function(t) return F[row.fn](t, options) + F[row.fn](t, options) * t end
    end
  end
  for name, fn in pairs(functions) do
    it("of " .. name .. " are right twice", function()
      assert.is_true(gradcheck.gradcheck(fn, {x}))
      assert.is_true(gradcheck.gradgradcheck(fn, {x}))
    end)
  end

  it("stay exact where exp overflows", function()
    local far = T({-800, 800}, "float64", true)
    F.elu(far):sum():backward()
    assert.same({0, 1}, far.grad:tolist())
    far.grad = nil
    F.celu(far, 0.5):sum():backward()
    assert.same({0, 1}, far.grad:tolist())
  end)

  it("of a step are cut, not multiplied, in the other branch", function()
    local step, slope = T({-1, 0, 2}, "float64", true), T({3}, "float64", true)
    F.prelu(step, slope):backward(T({inf, 1, inf}, "float64"))
    assert.same({inf, 3, inf}, step.grad:tolist())
    assert.same({-inf}, slope.grad:tolist())
    local shrunk = T({-2, 0.5, 3}, "float64", true)
    F.softshrink(shrunk):backward(T({1, inf, inf}, "float64"))
    assert.same({1, 0, inf}, shrunk.grad:tolist())
    local cut = T({-2, 0.5, 3}, "float64", true)
    F.threshold(cut, 0.5, 7):backward(T({inf, inf, 3}, "float64"))
    assert.same({0, 0, 3}, cut.grad:tolist())
  end)

  it("of threshold cover every dtype of numbers", function()
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int32", "int64"} do
      local numbers = T({-1, 2, 3, 5}, dtype)
      local result = F.threshold(numbers, 2, -4)
      assert.equal(dtype, result.dtype)
      assert.same({-4, -4, 3, 5}, result:tolist())
      assert.same({-4, -4, 3, 5}, F.threshold_(numbers, 2, -4):tolist())
    end
    assert.same({{9, 9}, {3, 4}}, F.threshold(T({{1, 3}, {2, 4}}, "float32"):t(), 2, 9):tolist())
  end)

  it("keep nan through the activations that cut", function()
    local none = accelhost.tensor {0 / 0}
    for _, name in ipairs {"hardshrink", "softshrink", "elu", "selu", "celu"} do
      assert.is_true(F[name](none):isnan():all():item(), name)
    end
    assert.is_true(F.prelu(none, accelhost.ones(1)):isnan():all():item())
    assert.is_true(F.threshold(none, 0, 1):isnan():all():item())
    check.raises("softshrink: lambd: expected a number of at least 0, got -1", function() F.softshrink(none, -1) end)
  end)
end)

describe("writing over values", function()
  it("cuts their gradient and passes the source's", function()
    local x, source = T({1, 2}, "float64", true), T({3}, "float64", true)
    local y = x * 2
    y:copy_(source)
    local weighted = y * T({5, 7}, "float64")
    weighted:sum():backward()
    assert.same({0, 0}, x.grad:tolist())
    assert.same({12}, source.grad:tolist())
  end)

  it("keeps an old value that an in-place op's gradient needs", function()
    local x, y = T({1, 2}, "float64", true), T({3, 4}, "float64", true)
    local z = x * 1
    z:mul_(y)
    z:sum():backward()
    assert.same({3, 4}, x.grad:tolist())
    assert.same({1, 2}, y.grad:tolist())
  end)
end)

describe("lerp by one number", function()
  it("is lerp by a tensor of it", function()
    for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
      local a, b = accelhost.randn(7, 70):to(dtype), accelhost.randn(70):to(dtype)
      a[0][1], b[2] = inf, nan
      for _, weight in ipairs {-2, 0, 0.25, 0.5, 0.75, 1, nan} do
        local weights = accelhost.full({7, 70}, weight, {dtype = dtype})
        check.near(check.flat(a:lerp(b, weights)), a:lerp(b, weight), 0)
        check.near(check.flat(a:t():lerp(b:view(70, 1), weights:t())), a:t():lerp(b:view(70, 1), weight), 0)
      end
    end
  end)
end)

describe("exponentials of float32", function()
  it("are those of float64, wherever vectors end", function()
    for _, name in ipairs {"exp", "exp2"} do
      for _, count in ipairs {1, 15, 16, 17, 63, 1000} do
        local x = accelhost.linspace(-110, 100, count)
        local got, wanted = x[name](x):double(), x:double()[name](x:double())
        local finite = wanted:lt(3.4e38)
        assert.is_true(got:isinf():equal(finite:logical_not()))
        local near = (got - wanted):masked_select(finite):abs() - wanted:masked_select(finite) * 2 ^ -22.5
        assert.is_true(near:max():item() <= 2 ^ -149)
      end
    end
  end)

  it("have exact whole powers of 2, subnormal ones too, and ends", function()
    local powers = accelhost.arange(-149, 128):float()
    assert.is_true(powers:exp2():double():log2():equal(powers:double()))
    for _, name in ipairs {"exp", "exp2"} do
      local ends = accelhost.tensor({inf, -inf, nan, -nan, 1e30, -1e30, 0})
      local found = ends[name](ends)
      check.near({inf, 0, inf, 0, 1}, accelhost.cat {found:narrow(0, 0, 2), found:narrow(0, 4, 3)}, 0)
      assert.equal(2, found:isnan():sum():item())
    end
  end)
end)

describe("dropout's mask", function()
  it("is saved as a bit per element", function()
    local x = accelhost.randn({1024, 1024}, {device = "cpu"}):requires_grad_()
    collectgarbage()
    local before = accelhost.memory_stats().live
    local y = F.dropout(x, 0.1, true)
    assert.truthy(y.requires_grad)
    assert.equal(4 * 2 ^ 20 + 2 ^ 17, accelhost.memory_stats().live - before)
  end)

  -- Gradients are multiplied by the mask in chunks of bits, or by bytes where their memory has another order.
  for _, size in ipairs {1, 7, 8, 1023, 1024, 1025, 3 * 1024 + 5} do
    it("multiplies gradients of " .. size .. " elements in each memory order", function()
      local x = accelhost.ones(size, 3):requires_grad_()
      local y = F.dropout(x, 0.5, true)
      local g = accelhost.randn(size, 3)
      y:backward(g, {retain_graph = true})
      check.near(check.flat(y:detach() * g), x.grad, 0)
      x.grad = nil
      y:backward(g:t():contiguous():t(), {retain_graph = true})
      check.near(check.flat(y:detach() * g), x.grad, 0)
      x.grad = nil
      y:backward(accelhost.ones(1, 1):expand(size, 3))
      check.near(check.flat(y:detach()), x.grad, 0)
    end)
  end
end)

describe("channels-last memory", function()
  local function marked(shape)
    local image = accelhost.randn(shape)
    local weight = accelhost.zeros(shape[2], shape[2], 1, 1)
    for i = 0, shape[2] - 1 do weight[i][i][0][0]:fill_(1) end
    return image, F.conv2d(image, weight)
  end

  it("returns the same numbers alone and mixed with row-major tensors", function()
    accelhost.manual_seed(0)
    local shape = {2, 3, 5, 4}
    local plain, image = marked(shape)
    local other = accelhost.randn(shape)
    local bias = accelhost.randn(3, 1, 1)
    check.near(check.flat((plain + other):relu()), (image + other):relu(), 1e-6)
    local _, second = marked(shape)
    check.near(check.flat(plain * 2), (image:relu() - (-image):relu()) * 2, 1e-5)
    check.near(check.flat(second + plain), second + image, 1e-5)
    check.near(check.flat(plain + bias), image + bias, 1e-6)
    check.near(check.flat(plain:exp()), image:exp_(), 1e-5)
    local _, third = marked(shape)
    check.near(check.flat(other + plain), other:clone():add_(third:mul_(0):add_(plain)), 1e-6)
  end)
end)

describe("internal rows", function()
  it("undo broadcasting", function()
    local x = accelhost.ones(2, 3, 4)
    assert.same({{6}, {6}, {6}}, C.sum_to(accelhost.ones(2, 3, 3), {3, 1}):tolist())
    assert.equal(24, C.sum_to(x, {}):item())
    assert.equal(x, C.sum_to(x, {2, 3, 4}))
    check.raises("sum_to: (2, 3, 4) is not a broadcast of (2, 4)", function() C.sum_to(x, {2, 4}) end)
  end)
end)

describe("expm1", function()
  it("is within two units in the last place of float32 over its range", function()
    accelhost.manual_seed(0)
    for _, range in ipairs {{-1e-3, 1e-3}, {-1, 1}, {-30, -1}, {1, 88.7}} do
      local x = accelhost.empty(20000):uniform_(range[1], range[2])
      local exact = x:double():expm1()
      local units = ((x:expm1():double() - exact):abs() / (exact:abs() * 2 ^ -23)):max():item()
      assert.is_true(units < 2, ("%g units in %g..%g"):format(units, range[1], range[2]))
    end
    check.near({-1, 1e-30, math.huge, 0 / 0}, accelhost.tensor({-math.huge, 1e-30, 89, 0 / 0}):expm1(), 1e-30)
  end)
end)
