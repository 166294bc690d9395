local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local special = accelhost.special

local function double(values, options)
  options = options or {}
  options.dtype = "float64"
  return accelhost.tensor(values, options)
end

describe("accelhost.special", function()
  it("has the functions of accelhost under PyTorch's other names", function()
    local x = double {0.25, 0.5}
    assert.same(x:sigmoid():tolist(), special.expit(x):tolist())
    assert.same(x:digamma():tolist(), special.psi(x):tolist())
    assert.same(x:lgamma():tolist(), special.gammaln(x):tolist())
  end)

  it("knows the normal distribution and its inverse", function() -- numbers of PyTorch 2.15
    local p = special.ndtr(double {-2, 0, 1})
    for i, wanted in ipairs {0.022750131948179212, 0.5, 0.8413447460685429} do check.near(wanted, p[i - 1], 1e-15) end
    check.near({math.log(4)}, special.xlog1py(double {1}, accelhost.tensor {3}), 1e-15)
    assert.equal(-math.huge, special.ndtri(accelhost.zeros({}, {dtype = "uint8"})):item())
    local x = special.ndtri(double {0.022750131948179212, 0.5, 0.8413447460685429})
    for i, wanted in ipairs {-2, 0, 1} do check.near(wanted, x[i - 1], 1e-12) end
  end)

  it("returns the limits at 0 of entropies and products with logarithms", function()
    local inf = math.huge
    assert.same({0, 0, -inf}, special.entr(double {0, 1, -1}):tolist())
    assert.same({0, -inf, 0}, special.xlog1py(double {0, 1, 2}, double {-1, -1, 0}):tolist())
    assert.is_true(special.xlog1py(double {0}, double {0 / 0}):isnan():item() ~= 0)
  end)

  it("has the inverse of the normal distribution near 0 and in float32", function() -- numbers of PyTorch 2.15
    local x = special.ndtri(double {1e-300, 1e-20, 1e-6, 0.24, 1 - 1e-9})
    for i, wanted in ipairs {-37.0470962993612, -9.262340089798409, -4.753424308822899, -0.7063025628400874,
      5.997807019601637} do check.near(wanted, x[i - 1], 1e-12) end
    check.near(-4.753424, special.ndtri(accelhost.tensor {1e-6}):item(), 1e-6)
    assert.same({-math.huge, math.huge}, special.ndtri(double {0, 1}):tolist())
    assert.is_true(special.ndtri(double {-0.1, 1.1}):isnan():all():item())
  end)

  it("accepts a number in the place of either factor of xlog1py", function()
    check.near(3 * math.log(2), special.xlog1py(3, double {1}):item(), 1e-15)
    check.near(math.log(4), special.xlog1py(double {1}, 3):item(), 1e-15)
    assert.equal("float16", special.xlog1py(3, accelhost.ones({1}, {dtype = "float16"})).dtype)
    assert.equal("float32", special.xlog1py(accelhost.ones({1}, {dtype = "int64"}), 1.5).dtype)
    check.raises("xlog1py: expected a tensor, got two numbers", function() special.xlog1py(1, 2) end)
  end)

  it("has PyTorch's gradients at the ends of domains", function()
    local function slope(fn, values)
      local x = double(values, {requires_grad = true})
      return accelhost.autograd.grad({fn(x):sum()}, {x})[1]
    end
    local inf = math.huge
    assert.same({inf, inf}, slope(accelhost.asin, {1, -1}):tolist())
    assert.same({-inf, -inf}, slope(accelhost.acos, {1, -1}):tolist())
    assert.same({inf, inf}, slope(accelhost.atanh, {1, -1}):tolist())
    local entropy = slope(special.entr, {-1, 0, 1})
    assert.is_true(entropy[0]:isnan():item())
    assert.same({inf, -1}, entropy:narrow(0, 1, 2):tolist())
    local function product(other) return function(x) return special.xlog1py(x, double {other}) end end
    check.near({math.log(3), math.log(3)}, slope(product(2), {0, 1}), 1e-15)
    assert.same({0}, slope(product(-1), {0}):tolist())
  end)

  it("has gradients that agree with finite differences", function()
    local x, y = double({0.3, 0.8}, {requires_grad = true}), double({0.2, 1.5}, {requires_grad = true})
    for _, name in ipairs {"ndtr", "ndtri", "entr"} do assert.is_true(gradcheck.gradcheck(special[name], {x})) end
    assert.is_true(gradcheck.gradcheck(special.xlog1py, {x, y}))
  end)

  it("names unknown functions", function()
    check.raises("special has no 'digama' (did you mean 'digamma'?)", function() return special.digama end)
  end)
end)
