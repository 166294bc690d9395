-- The functions that are written as vector code: of float32 (cpu/elementwise/angle_vector.h,
-- cpu/elementwise/pair_vector.h) against float64, of float64 (cpu/elementwise/float64_vector.h) against libm.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local inf, nan = math.huge, 0 / 0

-- The largest relative error of a float32 function over float32 inputs, the truth being the same function in float64.
local function worst(name, ...)
  local wide = {}
  for i, input in ipairs {...} do wide[i] = input:double() end
  local wanted, got = accelhost[name](unpack(wide)), accelhost[name](...)
  return ((got:double() - wanted) / wanted:abs():clamp_min(1e-37)):abs():max():item()
end

local function same(wanted, got)
  got = got:tolist()
  assert.equal(#wanted, #got)
  for i, value in ipairs(wanted) do
    assert.is_true(value == got[i] or value ~= value and got[i] ~= got[i], ("element %d: %s, wanted %s"):format(i,
      tostring(got[i]), tostring(value)))
    if value == 0 then assert.equal(1 / value, 1 / got[i]) end
  end
end

describe("float64 functions in vector code", function()
  -- Elements of the inputs against LuaJIT's functions, which are libm's.
  local function off(name, x, wanted)
    local most = 0
    for i, value in ipairs(accelhost[name](x):tolist()) do
      local right = wanted(x[i - 1]:item())
      most = math.max(most, math.abs(value - right) / math.abs(right))
    end
    return most
  end
  local function T(values) return accelhost.tensor(values, {dtype = "float64"}) end

  it("are right to a unit or two in the last place", function()
    accelhost.manual_seed(4)
    local unit = accelhost.randn({2003}, {dtype = "float64"})
    assert.is_true(off("exp", unit * 200, math.exp) < 2.3e-16)
    assert.is_true(off("log", (unit * 200):exp(), math.log) < 2.3e-16)
    assert.is_true(off("log", 1 + unit:tanh() * 0.9, math.log) < 2.3e-16)
    assert.is_true(off("tanh", unit, math.tanh) < 4.5e-16)
    local size = (unit * 10 - 15):exp()
    assert.is_true(((size:log1p():expm1() - size) / size):abs():max():item() < 9e-16)
  end)

  it("of angles are right to a unit or two in the last place, large ones too", function()
    accelhost.manual_seed(5)
    local unit = accelhost.rand({2003}, {dtype = "float64"}) * 2 - 1
    local any = accelhost.cat {unit * 7, unit * 3e4, (unit * 90):exp(), accelhost.arange(1, 700):double() * math.pi / 2}
    for _, name in ipairs {"sin", "cos", "tan"} do
      assert.is_true(off(name, any, math[name]) < 4.5e-16, name)
    end
    for _, name in ipairs {"asin", "acos"} do assert.is_true(off(name, unit, math[name]) < 3e-16, name) end
    assert.is_true(off("atan", any, math.atan) < 3e-16)
    local other = any:flip(0)
    local got = accelhost.atan2(any, other):tolist()
    for i, value in ipairs(got) do
      local right = math.atan2(any[i - 1]:item(), other[i - 1]:item())
      assert.is_true(math.abs(value - right) <= math.abs(right) * 4.5e-16)
    end
  end)

  it("of exponentials are right to a unit or two in the last place", function()
    accelhost.manual_seed(6)
    local unit = accelhost.randn({2003}, {dtype = "float64"})
    for _, name in ipairs {"sinh", "cosh"} do
      assert.is_true(off(name, accelhost.cat {unit, unit * 100, unit * 1e-3}, math[name]) < 6.7e-16, name)
    end
    local size = (unit * 10):exp()
    assert.is_true(off("log10", size, math.log10) < 2.3e-16)
    assert.is_true(off("exp2", unit * 200, function(x) return 2 ^ x end) < 2.3e-16)
    for name, inverse in pairs {sinh = "asinh", tanh = "atanh", erf = "erfinv"} do
      local x = unit:clamp(-2, 2)
      local back = accelhost[inverse](accelhost[name](x))
      assert.is_true(((back - x) / x):abs():max():item() < (name == "sinh" and 1e-15 or 1e-14), name)
    end
    assert.is_true(((1 + size):acosh():cosh() / (1 + size) - 1):abs():max():item() < 4e-14)
    assert.is_true(((unit * 2):erf() + (unit * 2):erfc() - 1):abs():max():item() < 5e-16)
    same({0, 3, 10, -5, 1023, -1074}, T({1, 8, 1024, 2 ^ -5, 2 ^ 1023, 2 ^ -1074}):log2())
    same({0, 1, 2, 3, 15, -inf, nan, inf}, T({1, 10, 100, 1000, 1e15, 0, -1, inf}):log10())
  end)

  it("of the gamma function's logarithm keep to their recurrences", function()
    accelhost.manual_seed(7)
    local x = accelhost.cat {accelhost.rand({999}, {dtype = "float64"}) * 30,
      accelhost.randn({999}, {dtype = "float64"}) * 5}
    local near = ((x + 1):digamma() - x:digamma()) * x - 1
    assert.is_true((near:abs() / (1 + (x * x:digamma()):abs())):max():item() < 4e-15)
    near = (accelhost.polygamma(1, x) - accelhost.polygamma(1, x + 1)) * x * x - 1
    assert.is_true((near:abs() / (1 + x * x * accelhost.polygamma(1, x + 1))):max():item() < 5e-15)
    same({inf, nan, inf, nan}, T({neg0, -3, inf, nan}):digamma())
    same({inf, inf, 0, nan}, accelhost.polygamma(1, T {0, -2, inf, nan}))
  end)

  it("of two numbers know large and small ones", function()
    accelhost.manual_seed(8)
    local a, b = accelhost.randn({1003}, {dtype = "float64"}) * 50, accelhost.randn({1003}, {dtype = "float64"})
    a[7], b[7] = 1e300, 1.5e-310 -- one of a block for libm
    for i, rest in ipairs(a:fmod(b):tolist()) do
      assert.equal(math.fmod(a[i - 1]:item(), b[i - 1]:item()), rest)
    end
    local rest = a:fmod(b)
    local modulo = accelhost.where(rest:ne(0):logical_and(rest:lt(0):ne(b:lt(0))), rest + b, rest)
    assert.is_true(accelhost.equal(modulo, a:remainder(b)))
    assert.is_true(accelhost.equal(modulo, a:flip(0):remainder(b:flip(0)):flip(0)))
    local x, y = T {5, -6, 6, inf, 5, -5, nan, 5, 5, neg0}, T {3, 3, -3, 2, inf, inf, 1, 0, nan, 2}
    same({2, neg0, 0, nan, 5, -5, nan, nan, nan, neg0}, x:fmod(y))
    same({2, neg0, 0, nan, 5, inf, nan, nan, nan, neg0}, x:remainder(y))
    same({1, -2, -2, inf, nan, neg0}, T({5, -6, 6, 1, 0, neg0}):div(T {3, 3, -3, 0, 0, 2}, {rounding_mode = "floor"}))
    x, y = T {inf, nan, nan, 3 * 2 ^ 1000, 3 * 2 ^ -1000, 2 ^ -1074}, T {nan, -inf, 1, 2 ^ 1002, -2 ^ -998, 0}
    same({inf, inf, nan, 5 * 2 ^ 1000, 5 * 2 ^ -1000, 2 ^ -1074}, x:hypot(y))
    local least, largest = 2 ^ -1074, (2 - 2 ^ -52) * 2 ^ 1023
    same({1 + 2 ^ -52, 1 - 2 ^ -53, least, -least, 0, neg0, inf, largest, nan, neg0},
      T({1, 1, 0, neg0, least, -least, largest, inf, nan, 0}):nextafter(T {2, 0, 1, -1, 0, 0, inf, 0, 1, neg0}))
    local pi = math.pi
    same({0, pi, -pi, neg0, pi / 2, pi / 4, 3 * pi / 4, 0, nan}, T({0, 0, neg0, neg0, 1, inf, inf, 1, nan}):atan2(
      T {0, neg0, neg0, 1, 0, inf, -inf, inf, 1}))
  end)

  it("raise to powers to a unit in the last place, with libm's ends", function()
    accelhost.manual_seed(9)
    local unit = accelhost.randn({2003}, {dtype = "float64"})
    local base = accelhost.cat {(unit * 6):exp(), 1 + unit:clamp(-3, 3) * 1e-4}
    local power = accelhost.cat {unit:flip(0) * 9, unit:flip(0) * 1e5}
    for i, value in ipairs(base:pow(power):tolist()) do
      local right = base[i - 1]:item() ^ power[i - 1]:item()
      assert.is_true(value == right or math.abs(value - right) < 2.3e-16 * right)
    end
    local ends = {inf, -inf, 0, neg0, 1, -1, 2, -2, 0.5, nan, 1e300, -3, 2 ^ -1074}
    local powers = {inf, -inf, 0, 1, -1, 2, 3, -3, 0.5, nan, 1e300, 2 ^ 53 + 2, -1074, 1023}
    local got = T(ends):view(-1, 1):pow(T(powers):view(1, -1))
    for i, x in ipairs(ends) do
      for k, y in ipairs(powers) do
        local value, right = got[i - 1][k - 1]:item(), x ^ y
        if y == 0.5 and right > 0 and right < inf then right = math.abs(value / right - 1) < 2.3e-16 and value end
        same({right}, T {value})
      end
    end
    same({1000, 1e22, 2 ^ 60}, T({10, 10, 2}):pow(T {3, 22, 60}))
  end)

  it("know their ends", function()
    same({nan, nan, nan, neg0, 0}, T({inf, -inf, nan, neg0, 0}):sin())
    same({nan, nan, 1}, T({inf, nan, 0}):cos())
    same({nan, nan, neg0, 0}, T({inf, nan, neg0, 0}):tan())
    same({math.pi / 2, -math.pi / 2, nan, neg0}, T({inf, -inf, nan, neg0}):atan())
    same({math.pi / 2, -math.pi / 2, nan, nan, neg0}, T({1, -1, 1.01, nan, neg0}):asin())
    same({0, math.pi, nan, nan}, T({1, -1, -inf, nan}):acos())
    same({inf, -inf, nan, neg0, 1e-300, inf}, T({inf, -inf, nan, neg0, 1e-300, 711}):sinh())
    same({inf, inf, nan, 1}, T({inf, -inf, nan, 0}):cosh())
    same({inf, -inf, nan, neg0, 1e-300}, T({inf, -inf, nan, neg0, 1e-300}):asinh())
    same({inf, 0, nan, nan, nan}, T({inf, 1, 0.9, -inf, nan}):acosh())
    same({inf, -inf, nan, nan, neg0, 1e-300}, T({1, -1, 2, nan, neg0, 1e-300}):atanh())
    same({inf, 0, nan, 1, inf, 2 ^ -1074, 8}, T({inf, -inf, nan, 0, 1024, -1074, 3}):exp2())
    same({1, -1, nan, 0, neg0, 1}, T({inf, -inf, nan, 0, neg0, 9}):erf())
    same({0, 2, nan, 1, 0}, T({inf, -inf, nan, 0, 30}):erfc())
    same({inf, -inf, nan, nan, 0, neg0}, T({1, -1, 1.1, nan, 0, neg0}):erfinv())
    same({inf, 0, nan, 1, inf, 0, 2 ^ -1074}, T({inf, -inf, nan, 0, 710, -746, -745}):exp())
    same({inf, nan, nan, -inf, -inf, 0, math.log(2 ^ -1074), math.log(1.7e308)},
      T({inf, -inf, nan, 0, neg0, 1, 2 ^ -1074, 1.7e308}):log())
    same({inf, nan, nan, 0, neg0, -inf, nan, 1e-300}, T({inf, -inf, nan, 0, neg0, -1, -2, 1e-300}):log1p())
    same({inf, -1, nan, 0, neg0, 1e-300, -1, inf}, T({inf, -inf, nan, 0, neg0, 1e-300, -80, 710}):expm1())
    same({1, -1, nan, 0, neg0, 1, 1e-300}, T({inf, -inf, nan, 0, neg0, 40, 1e-300}):tanh())
    same({1, 0, nan, 0.5}, T({inf, -inf, nan, 0}):sigmoid())
  end)
end)

describe("float32 functions in vector code", function()
  setup(function() accelhost.manual_seed(3) end)

  it("of one number are right to about a unit in the last place", function()
    local unit, any = accelhost.rand(20011) * 2 - 1, accelhost.randn(20011) * 30
    for _, name in ipairs {"asin", "acos"} do assert.is_true(worst(name, unit) < 2.2e-7, name) end
    for _, name in ipairs {"atan", "tan", "tanh", "erf"} do
      assert.is_true(worst(name, unit) < 2.2e-7, name)
      assert.is_true(worst(name, any) < 2.2e-7, name)
    end
    for _, name in ipairs {"sinh", "cosh", "asinh"} do
      assert.is_true(worst(name, accelhost.cat {unit, any:clamp(-85, 85), unit * 1e-4}) < 2.2e-7, name)
    end
    assert.is_true(worst("expm1", accelhost.cat {unit, any:clamp(-85, 88.7), unit * 1e-4, unit * 1e-30}) < 2.2e-7)
    assert.is_true(worst("acosh", accelhost.cat {1 + any:abs(), 1 + unit:abs() * 1e-3}) < 1.2e-7)
    assert.is_true(worst("sinc", unit * 0.9) < 1e-6) -- pi x is rounded
    assert.is_true(worst("tan", accelhost.arange(1, 12000):float() * (math.pi / 2)) < 2.2e-7)
  end)

  it("of 1 + e^x are right to a unit or two in the last place, with the ends of e^x", function()
    local x = accelhost.cat {accelhost.randn(20011), accelhost.randn(20011) * 20}
    local softplus = accelhost.nn.functional.softplus
    for _, beta in ipairs {1, -1, 0.5} do
      local wanted = softplus(x:double(), beta, 200)
      local off = (softplus(x, beta, 200):double() - wanted):abs() / wanted:abs():clamp_min(1e-37)
      assert.is_true(off:max():item() < 3e-7, ("beta %g: %g"):format(beta, off:max():item()))
    end
    same({0, 10, 30, inf, nan}, softplus(accelhost.tensor {-inf, 10, 30, inf, nan}, 1, 9))
    same({inf, nan, 0}, softplus(accelhost.tensor {inf, nan, -200}, 1, inf))
    assert.is_true(worst("logaddexp", x:abs(), x:flip(0):abs() + 1) < 2.4e-7)
    assert.is_true(worst("logaddexp2", x:abs(), x:flip(0):abs() + 1) < 2.4e-7)
  end)

  it("of a share of the normal distribution are right to the end of float32's digits", function()
    local x = accelhost.linspace(-6, 6, 50021)
    local wide, F = x:double(), accelhost.nn.functional
    local wanted = F.gelu(wide)
    local off = (F.gelu(x):double() - wanted):abs() / wanted:abs():clamp_min(1e-30)
    assert.is_true(off[x:gt(-2)]:max():item() < 8e-7)
    assert.is_true(off:max():item() < 2e-5)
    x, wide = x:requires_grad_(), wide:requires_grad_()
    F.gelu(x):sum():backward()
    F.gelu(wide):sum():backward()
    assert.is_true((x.grad:double() - wide.grad):abs():max():item() < 3e-7)
    same({nan, inf, nan, neg0, 0, neg0, neg0, accelhost.tensor({3e38}):item()},
      F.gelu(accelhost.tensor {-inf, inf, nan, neg0, 0, -30, -3e38, 3e38}))
  end)

  it("of GELU's form with tanh are right where the sum in it is close to zero", function()
    local x = accelhost.linspace(-5, 8, 50021)
    local wide, F = x:double(), accelhost.nn.functional
    local wanted = F.gelu(wide, "tanh")
    local off = (F.gelu(x, "tanh"):double() - wanted):abs() / wanted:abs():clamp_min(1e-30)
    assert.is_true(off[x:gt(-1)]:max():item() < 4e-7)
    assert.is_true(off:max():item() < 4e-6)
    x, wide = x:requires_grad_(), wide:requires_grad_()
    F.gelu(x, "tanh"):sum():backward()
    F.gelu(wide, "tanh"):sum():backward()
    assert.is_true((x.grad:double() - wide.grad):abs():max():item() < 4e-7)
    local repeated = x.grad
    x.grad = nil
    F.gelu(x, "tanh"):backward(accelhost.ones_like(x))
    assert.is_true(accelhost.equal(repeated, x.grad))
    for _, n in ipairs {1, 15, 16, 17} do
      assert.is_true(accelhost.equal(F.gelu(x, "tanh"):narrow(0, 7, n), F.gelu(x:narrow(0, 7, n), "tanh")))
    end
    same({nan, inf, nan, neg0, 0, neg0, neg0, accelhost.tensor({3e38}):item()},
      F.gelu(accelhost.tensor {-inf, inf, nan, neg0, 0, -30, -3e38, 3e38}, "tanh"))
  end)

  it("of one number know their ends", function()
    local function f(values) return accelhost.tensor(values) end
    local quarter = f {math.pi / 4, math.pi / 2, math.pi}:tolist()
    same({quarter[2], -quarter[2], 0, neg0, nan, nan, nan}, f {1, -1, 0, neg0, 1.0001, -inf, nan}:asin())
    same({0, quarter[3], quarter[2], quarter[2], nan, nan}, f {1, -1, 0, neg0, 1.0001, nan}:acos())
    same({quarter[1], -quarter[2], quarter[2], 0, neg0, nan}, f {1, -inf, inf, 0, neg0, nan}:atan())
    same({nan, nan, 0, neg0, nan}, f {inf, -inf, 0, neg0, nan}:tan())
    same({1, -1, 1, 0, neg0, nan, 2 ^ -149}, f {inf, -inf, 20, 0, neg0, nan, 2 ^ -149}:tanh())
    same({1, -1, 1, 0, neg0, nan}, f {inf, -inf, 5, 0, neg0, nan}:erf())
    same({inf, -inf, nan, 0, neg0, inf, 2 ^ -149}, f {inf, -inf, nan, 0, neg0, 90, 2 ^ -149}:sinh())
    same({inf, -1, nan, 0, neg0, inf, -1, 2 ^ -149}, f {inf, -inf, nan, 0, neg0, 89, -30, 2 ^ -149}:expm1())
    same({inf, inf, nan, 1}, f {inf, -inf, nan, 0}:cosh())
    same({inf, -inf, nan, 0, neg0, 2 ^ -149}, f {inf, -inf, nan, 0, neg0, 2 ^ -149}:asinh())
    same({inf, 0, nan, nan}, f {inf, 1, 0.99, nan}:acosh())
    same({nan, nan, 1, 1}, f {inf, nan, 0, neg0}:sinc())
  end)

  it("leave rests that are exact, whatever the size of the quotient", function()
    local a, b = accelhost.randn(4099) * 50, accelhost.randn(4099)
    a[7], b[7] = 3e38, 1.5e-40 -- one of a block for libm
    for _, name in ipairs {"fmod", "remainder"} do
      local wanted = accelhost.fmod(a:double(), b:double())
      if name == "remainder" then -- added in float32, as PyTorch does
        wanted = wanted:float()
        wanted = accelhost.where(wanted:ne(0):logical_and(wanted:lt(0):ne(b:lt(0))), wanted + b, wanted)
      end
      assert.is_true(accelhost.equal(wanted:float(), accelhost[name](a, b)), name)
      local strided = accelhost[name](a:view(-1):flip(0), b:flip(0)):flip(0)
      assert.is_true(accelhost.equal(wanted:float(), strided), name)
    end
    local x = accelhost.tensor {5, -6, 6, inf, 5, -5, nan, 5, 5, neg0}
    local y = accelhost.tensor {3, 3, -3, 2, inf, inf, 1, 0, nan, 2}
    same({2, neg0, 0, nan, 5, -5, nan, nan, nan, neg0}, x:fmod(y))
    same({2, neg0, 0, nan, 5, inf, nan, nan, nan, neg0}, x:remainder(y))
    same({1, -2, -2, inf, nan, neg0}, accelhost.tensor {5, -6, 6, 1, 0, neg0}:div(accelhost.tensor {3, 3, -3, 0, 0, 2},
      {rounding_mode = "floor"}))
    assert.equal(0, accelhost.empty(0):fmod(accelhost.empty(0)):numel())
  end)

  it("step to the neighbour of a number", function()
    local least, largest = 2 ^ -149, (2 - 2 ^ -23) * 2 ^ 127
    local from = accelhost.tensor {1, 1, -1, -1, 0, neg0, least, -least, largest, -largest, inf, nan, 1, 0}
    local to = accelhost.tensor {2, 0, 0, -2, 1, -1, 0, 0, inf, -inf, 0, 1, nan, neg0}
    same({1 + 2 ^ -23, 1 - 2 ^ -24, -1 + 2 ^ -24, -1 - 2 ^ -23, least, -least, 0, neg0, inf, -inf, largest, nan, nan,
      neg0}, from:nextafter(to))
  end)

  it("of two numbers neither over- nor underflow in between", function()
    local big, small = accelhost.tensor {3e38, inf, nan, -inf, 3e-40}, accelhost.tensor {3e38, nan, 1, 0, 4e-40}
    local length = accelhost.hypot(big, small)
    same({inf, inf, nan, inf}, length:narrow(0, 0, 4))
    check.near(5e-40, length[4], 1e-44)
    assert.is_true(worst("hypot", accelhost.randn(1001) * 1e30, accelhost.randn(1001)) < 1e-7)
  end)

  it("raise to powers rightly rounded, whole ones of whole numbers exactly", function()
    assert.is_true(worst("pow", accelhost.rand(20011) * 9 + 0.01, accelhost.randn(20011) * 9) < 6.1e-8)
    local tens = {}
    for k = 0, 10 do tens[k + 1] = 10 ^ k end
    same(tens, accelhost.pow(accelhost.full({11}, 10), accelhost.arange(11):float()))
    same({-8, 4, inf, -inf, 1, 1, 1, 0, -inf, 2 ^ -149, nan, nan, inf, neg0, 0},
      accelhost.pow(accelhost.tensor {-2, -2, 0, neg0, 0, 1, -1, inf, -inf, 2, -2, nan, 3e38, -2, -3e38},
        accelhost.tensor {3, 2, -1, -3, 0, nan, inf, -1, 3, -149, 0.5, 1, 2, -301, -40}))
  end)
end)
