local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional
local nan, inf = 0 / 0, math.huge

local leaf = tensors.leaf

describe("softmax", function()
  it("returns nan for a row of -inf, and for one with nan", function()
    local x = accelhost.tensor {{-inf, -inf}, {0, -inf}, {nan, 0}}
    check.near({nan, nan, 1, 0, nan, nan}, accelhost.softmax(x, 1), 0)
    check.near({nan, nan, 0, -inf, nan, nan}, accelhost.log_softmax(x, 1), 0)
    check.near({nan, 1, nan, nan, 0, nan}, accelhost.softmax(x:t():contiguous(), 0), 0)
  end)

  it("does not overflow", function()
    check.near({0.5, 0.5}, accelhost.softmax(accelhost.tensor {1e4, 1e4}, 0), 1e-6)
    check.near({0, -2e4}, accelhost.log_softmax(accelhost.tensor {1e4, -1e4}, -1), 1e-6)
  end)

  it("accepts the dtype to compute in", function()
    local x = accelhost.tensor {1, 2}
    assert.equal("float64", accelhost.softmax(x, 0, "float64").dtype)
    assert.equal("float32", accelhost.softmax(accelhost.tensor({1, 2}, {dtype = "int64"}), 0, "float32").dtype)
    x:requires_grad_()
    accelhost.softmax(x, 0, "float64")[0]:backward()
    assert.equal("float32", x.grad.dtype)
  end)

  it("has first and second derivatives along any dim", function()
    for _, name in ipairs {"softmax", "log_softmax"} do
      for dim = 0, 2 do
        local function f(x) return accelhost[name](x, dim) end
        gradcheck.gradcheck(f, {leaf(2, 3, 2)})
        gradcheck.gradgradcheck(f, {leaf(2, 3, 2)})
      end
    end
  end)

  it("agrees between float32 and float64", function()
    for _, name in ipairs {"softmax", "log_softmax"} do
      for dim = 0, 2 do
        precision.agree(function(x) return accelhost[name](x, dim) end, {{7, 70, 67}})
      end
    end
  end)

  it("of rows of any length is that of float64, with its subnormal numbers", function()
    accelhost.manual_seed(2)
    for _, n in ipairs {1, 7, 15, 16, 17, 31, 33, 47, 48, 49, 63, 64, 65, 79, 95, 96, 97, 143, 1001} do
      local x = accelhost.randn(3, n) * 4
      x[1][n - 1], x[2][0], x[2][n - 1] = 95, -inf, x[2][0] -- the largest and the least at the ends
      if n > 1 then x[1][0] = -5 end
      local labels = accelhost.full({3}, n - 1, {dtype = "int64"})
      check.near(check.flat(x:double():softmax(1)), x:softmax(1), 2e-7)
      check.near(check.flat(x:double():log_softmax(1)), x:log_softmax(1), 2e-5)
      check.near(check.flat(F.cross_entropy(x:double(), labels, {reduction = "none"})),
        F.cross_entropy(x, labels, {reduction = "none"}), 2e-5)
      local low = accelhost.full({2, n}, -95)
      low[1]:fill_(0)
      low:select(1, n - 1):fill_(0)
      if n > 1 then assert.equal(low[0]:double():softmax(0):float()[0]:item(), low:softmax(1)[0][0]:item()) end
    end
  end)

  it("of halves is that of float32, rounded once, as is its gradient", function()
    accelhost.manual_seed(3)
    for _, dtype in ipairs {"float16", "bfloat16"} do
      for _, n in ipairs {5, 48, 100} do
        for _, name in ipairs {"softmax", "log_softmax"} do
          local x, g = accelhost.randn(4, 7, n):to(dtype), accelhost.randn(7, 4, n):to(dtype)
          local half = x:clone():requires_grad_()
          local y = half:transpose(0, 1)[name](half:transpose(0, 1), 2)
          check.near(check.flat(x:float():transpose(0, 1)[name](x:float():transpose(0, 1), 2):to(dtype)), y, 0)
          y:backward(g)
          local p, gf = y:detach():float(), g:float()
          local wanted = name == "softmax" and p * (gf - (gf * p):sum(2, true)) or gf - p:exp() * gf:sum(2, true)
          wanted = wanted:transpose(0, 1)
          local off = (half.grad:float() - wanted):abs() - wanted:abs() * (dtype == "float16" and 2 ^ -11 or 2 ^ -8)
          assert.is_true(off:max():item() < 1e-6)
          check.near(check.flat(y:detach():float()), F[name](x:transpose(0, 1), 2, {dtype = "float32"}):to(dtype), 0)
        end
      end
    end
  end)

  it("accepts 0-dim and empty tensors", function()
    assert.equal(1, accelhost.softmax(accelhost.tensor(3), 0):item())
    assert.same({0, 3}, accelhost.softmax(accelhost.zeros(0, 3), 1):shape())
    assert.same({3, 0}, accelhost.softmax(accelhost.zeros(3, 0), 1):shape())
  end)

  it("reports the expected arguments", function()
    check.raises("softmax", function() accelhost.softmax(accelhost.zeros(2, 3), 2) end)
    check.raises("softmax: expected a floating input, got int64", function()
      accelhost.softmax(accelhost.zeros({2}, {dtype = "int64"}), 0)
    end)
  end)
end)
