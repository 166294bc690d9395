-- The float32 functions that are written as vector code (cpu/elementwise/angle_vector.h,
-- cpu/elementwise/pair_vector.h), against float64.
local accelhost = require "accelhost"
local check = require "spec.support.check"

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

  it("know their ends", function()
    same({inf, 0, nan, 1, inf, 0, 2 ^ -1074}, T({inf, -inf, nan, 0, 710, -746, -745}):exp())
    same({inf, nan, nan, -inf, -inf, 0, math.log(2 ^ -1074), math.log(1.7e308)},
      T({inf, -inf, nan, 0, -0.0, 1, 2 ^ -1074, 1.7e308}):log())
    same({inf, nan, nan, 0, -0, -inf, nan, 1e-300}, T({inf, -inf, nan, 0, -0.0, -1, -2, 1e-300}):log1p())
    same({inf, -1, nan, 0, -0, 1e-300, -1, inf}, T({inf, -inf, nan, 0, -0.0, 1e-300, -80, 710}):expm1())
    same({1, -1, nan, 0, -0, 1, 1e-300}, T({inf, -inf, nan, 0, -0.0, 40, 1e-300}):tanh())
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
    assert.is_true(worst("tan", accelhost.arange(1, 12000):float() * (math.pi / 2)) < 2.2e-7)
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
    same({nan, inf, nan, -0, 0, -0, -0, accelhost.tensor({3e38}):item()},
      F.gelu(accelhost.tensor {-inf, inf, nan, -0, 0, -30, -3e38, 3e38}))
  end)

  it("of one number know their ends", function()
    local function f(values) return accelhost.tensor(values) end
    local quarter = f {math.pi / 4, math.pi / 2, math.pi}:tolist()
    same({quarter[2], -quarter[2], 0, -0, nan, nan, nan}, f {1, -1, 0, -0, 1.0001, -inf, nan}:asin())
    same({0, quarter[3], quarter[2], quarter[2], nan, nan}, f {1, -1, 0, -0, 1.0001, nan}:acos())
    same({quarter[1], -quarter[2], quarter[2], 0, -0, nan}, f {1, -inf, inf, 0, -0, nan}:atan())
    same({nan, nan, 0, -0, nan}, f {inf, -inf, 0, -0, nan}:tan())
    same({1, -1, 1, 0, -0, nan, 2 ^ -149}, f {inf, -inf, 20, 0, -0, nan, 2 ^ -149}:tanh())
    same({1, -1, 1, 0, -0, nan}, f {inf, -inf, 5, 0, -0, nan}:erf())
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
    local x = accelhost.tensor {5, -6, 6, inf, 5, -5, nan, 5, 5, -0}
    local y = accelhost.tensor {3, 3, -3, 2, inf, inf, 1, 0, nan, 2}
    same({2, -0, 0, nan, 5, -5, nan, nan, nan, -0}, x:fmod(y))
    same({2, -0, 0, nan, 5, inf, nan, nan, nan, -0}, x:remainder(y))
    same({1, -2, -2, inf, nan, -0}, accelhost.tensor {5, -6, 6, 1, 0, -0}:div(accelhost.tensor {3, 3, -3, 0, 0, 2},
      {rounding_mode = "floor"}))
    assert.equal(0, accelhost.empty(0):fmod(accelhost.empty(0)):numel())
  end)

  it("step to the neighbour of a number", function()
    local least, largest = 2 ^ -149, (2 - 2 ^ -23) * 2 ^ 127
    local from = accelhost.tensor {1, 1, -1, -1, 0, -0, least, -least, largest, -largest, inf, nan, 1, 0}
    local to = accelhost.tensor {2, 0, 0, -2, 1, -1, 0, 0, inf, -inf, 0, 1, nan, -0}
    same({1 + 2 ^ -23, 1 - 2 ^ -24, -1 + 2 ^ -24, -1 - 2 ^ -23, least, -least, 0, -0, inf, -inf, largest, nan, nan, -0},
      from:nextafter(to))
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
    same({-8, 4, inf, -inf, 1, 1, 1, 0, -inf, 2 ^ -149, nan, nan, inf, -0, 0},
      accelhost.pow(accelhost.tensor {-2, -2, 0, -0, 0, 1, -1, inf, -inf, 2, -2, nan, 3e38, -2, -3e38},
        accelhost.tensor {3, 2, -1, -3, 0, nan, inf, -1, 3, -149, 0.5, 1, 2, -301, -40}))
  end)
end)
