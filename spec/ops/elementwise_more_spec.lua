local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local D = tensors.double
local function leaf(values) return D(values):requires_grad_() end

describe("tests of whole numbers", function()
  it("find all finite, and their signs", function()
    for _, dtype in ipairs {"bool", "uint8", "int32", "int64"} do
      local x = accelhost.arange(-2, 3):to(dtype):expand(3, 5)
      for name, wanted in pairs {isfinite = 15, isinf = 0, isnan = 0, isposinf = 0, isneginf = 0} do
        local found = accelhost[name](x)
        assert.same({3, 5}, found:shape())
        assert.equal(wanted, found:sum():item(), name)
      end
      assert.equal(dtype:find "^int" and 6 or 0, x:signbit():sum():item())
    end
  end)
end)

describe("special functions", function()
  it("have known values", function()
    check.near(-0.57721566490153287, D {1}:digamma(), 1e-15)
    check.near(math.pi ^ 2 / 6, accelhost.polygamma(1, D {1}), 1e-15)
    check.near(math.pi ^ 2 / 2, accelhost.polygamma(1, D {0.5}), 1e-15)
    check.near(math.pi ^ 2 / 2, accelhost.special.polygamma(1, D {0.5}), 1e-15)
    check.near(-2 * 1.2020569031595942, accelhost.polygamma(2, D {1}), 1e-15)
    check.near(math.pi ^ 2 / math.sin(math.pi * 0.3) ^ 2,
      accelhost.polygamma(1, D {-1000.3}) + accelhost.polygamma(1, D {1001.3}), 1e-9)
    check.near({1.2660658777520084, 781672297823.97748}, D {1, 30}:i0(), 1e-12)
    check.near({1, 0, -1, 0.3}, accelhost.erf(accelhost.erfinv(D {1, 0, -1, 0.3})), 1e-15)
  end)

  it("undo each other", function()
    local x = accelhost.linspace(-0.999, 0.999, 301, {dtype = "float64"})
    check.near(check.flat(x), x:erfinv():erf(), 1e-15)
    check.near(check.flat(x), x:tanh():atanh(), 1e-14)
    check.near(check.flat(x), x:sigmoid():logit(), 1e-14)
    check.near(check.flat(x), x:deg2rad():rad2deg(), 1e-15)
    local tail = D {1e-20, 1e-100, 1e-300}
    check.near(check.flat(tail:log()), (1 - (1 - tail):erfinv():erf()):clamp_min(0):add(tail):log(), 1e-9)
  end)

  it("have right derivatives of both orders", function()
    local unit, above, any = leaf {-0.7, 0.2, 0.55}, leaf {1.2, 1.9, 3}, leaf {-1.4, 0.3, 2.6}
    for name, x in pairs {
      asin = unit, acos = unit, atanh = unit, erfinv = unit, acosh = above, sinh = any, cosh = any, asinh = any,
      exp2 = any, erfc = any, lgamma = above, digamma = above, i0 = any, sinc = any, logit = leaf {0.2, 0.5, 0.9},
      frac = any, deg2rad = any, rad2deg = any, nan_to_num = any,
    } do
      gradcheck.gradcheck(function(t) return t[name](t) end, {x})
      gradcheck.gradgradcheck(function(t) return t[name](t) end, {x}, {atol = 1e-4})
    end
    gradcheck.gradcheck(function(t) return t:polygamma(2) end, {above})
    gradcheck.gradcheck(function(t) return t:digamma() end, {leaf {-0.4, -3.7}})
  end)

  it("of pairs have right derivatives of both orders", function()
    local x, y = leaf {{0.5, 1.5, -0.7}, {2, 0.4, 1.1}}, leaf {0.6, 1.2, 2.5}
    for _, name in ipairs {"atan2", "hypot", "copysign", "logaddexp", "logaddexp2", "ldexp", "fmax", "fmin"} do
      gradcheck.gradcheck(accelhost[name], {x, y})
      gradcheck.gradgradcheck(accelhost[name], {x, y}, {atol = 1e-4})
    end
    gradcheck.gradcheck(accelhost.xlogy, {x, y})
    gradcheck.gradcheck(accelhost.rsub, {x, y})
    gradcheck.gradcheck(accelhost.float_power, {x:abs():detach():requires_grad_(), y})
  end)

  it("of pairs accept whole numbers with floats that require gradients", function()
    local x = leaf {1, 2}
    accelhost.atan2(accelhost.tensor({1, 3}, {dtype = "int64"}), x):sum():backward()
    check.near({-1 / 2, -3 / 13}, x.grad, 1e-15)
    assert.equal("float64", x.grad.dtype)
  end)

  it("refuse dtypes that PyTorch refuses", function()
    local whole, flags = accelhost.tensor({1, 2}, {dtype = "int64"}), accelhost.ones(2):gt(0)
    check.raises("hypot: expected floating inputs, got int64", function() whole:hypot(whole) end)
    check.raises("logaddexp: expected floating inputs, got int64", function() whole:logaddexp(whole) end)
    check.raises("gcd: expected integers, got bool", function() flags:gcd(flags) end)
    check.raises("lcm: expected integers, got float32", function() accelhost.ones(2):lcm(whole) end)
    check.raises("frac: expected a floating input, got int64", function() whole:frac() end)
    check.raises("heaviside: values must be float32 like input, got int64", function()
      accelhost.ones(2):heaviside(whole)
    end)
    check.raises("float_power_: input: expected float64, got float32", function()
      accelhost.ones(2):float_power_(2)
    end)
    check.raises("polygamma: n: expected an integer in 0..170, got 171", function()
      accelhost.ones(2):polygamma(171)
    end)
  end)

  it("count halves in float32", function()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local x = accelhost.tensor({0.5, -0.25}, {dtype = dtype})
      for _, name in ipairs {"asin", "erfinv", "sinc", "exp2", "lgamma"} do
        assert.is_true(accelhost.equal(x:to("float32")[name](x:to("float32")):to(dtype), x[name](x)))
      end
    end
    local strange = accelhost.tensor({0 / 0, 1 / 0, -1 / 0}, {dtype = "float16"})
    check.near({0, 65504, -65504}, strange:nan_to_num(), 0)
  end)

  it("replace nan and infinities wherever they are", function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
      local x = accelhost.arange(1000):to(dtype)
      local expected = x:clone()
      for at, value in pairs {[0] = 0 / 0, [300] = 1 / 0, [301] = -1 / 0, [999] = 0 / 0} do
        x[at] = value
        expected[at] = value ~= value and 5 or value > 0 and 6 or 7
      end
      assert.is_true(expected:equal(x:nan_to_num(5, 6, 7)))
      local columns = x:view(100, 10):t()
      assert.is_true(expected:view(100, 10):t():equal(columns:nan_to_num(5, 6, 7)))
      assert.is_true(expected:equal(x:nan_to_num_(5, 6, 7)))
    end
  end)

  it("of integers keep to their width", function()
    local bytes = accelhost.tensor({200, 3}, {dtype = "uint8"})
    check.near({144, 6}, bytes:bitwise_left_shift(1), 0)
    check.near({40, 1}, bytes:gcd(accelhost.tensor({80, 7}, {dtype = "uint8"})), 0)
    local least = accelhost.tensor({-2 ^ 63}, {dtype = "int64"})
    assert.is_true(accelhost.equal(least, least:gcd(least)))
  end)
end)

describe("other names", function()
  it("are the same functions, methods and in-place forms", function()
    local x = accelhost.tensor {-0.5, 0.25}
    for alias, name in pairs {
      absolute = "abs", arccos = "acos", arcsin = "asin", arctan = "atan", negative = "neg", fix = "trunc",
      sgn = "sign",
    } do
      assert.is_true(accelhost.equal(x[name](x), x[alias](x)))
      assert.is_true(accelhost.equal(x[name](x), accelhost[alias](x)))
      assert.is_true(accelhost.equal(x[name](x), x:clone()[alias .. "_"](x:clone())))
    end
    check.near({0, 0.25}, x:clip(0, 1), 0)
    check.near({2, 4}, x:true_divide(accelhost.tensor {-0.25, 0.0625}), 0)
    assert.is_true(x:less_equal(0.25):all():item())
  end)

  it("name the row in messages", function()
    check.raises("clamp: expected min, max or both", function() accelhost.ones(2):clip() end)
  end)
end)

describe("closeness", function()
  it("is decided element by element, as PyTorch's isclose", function()
    local nan, inf = 0 / 0, 1 / 0
    local a, b = accelhost.tensor {1, nan, inf, -inf, 10}, accelhost.tensor {1 + 1e-6, nan, inf, inf, 10.1}
    assert.same({true, false, true, false, false}, a:isclose(b):tolist())
    assert.same({true, true, true, false, true}, a:isclose(b, {rtol = 0.02, equal_nan = true}):tolist())
    assert.is_false(a:allclose(b))
    check.raises("isclose: dtypes differ: float32 and float64", function() a:isclose(b:double()) end)
  end)
end)
