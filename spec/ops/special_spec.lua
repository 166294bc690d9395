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

  it("gives entropies and products with logarithms their limits at 0", function()
    local inf = math.huge
    assert.same({0, 0, -inf}, special.entr(double {0, 1, -1}):tolist())
    assert.same({0, -inf, 0}, special.xlog1py(double {0, 1, 2}, double {-1, -1, 0}):tolist())
    assert.is_true(special.xlog1py(double {0}, double {0 / 0}):isnan():item() ~= 0)
  end)

  it("has gradients that agree with finite differences", function()
    local x, y = double({0.3, 0.8}, {requires_grad = true}), double({0.2, 1.5}, {requires_grad = true})
    for _, name in ipairs {"ndtr", "ndtri", "entr"} do assert.is_true(gradcheck.gradcheck(special[name], {x})) end
    assert.is_true(gradcheck.gradcheck(special.xlog1py, {x, y}))
  end)

  it("names what it does not know", function()
    check.raises("special has no 'digama' (did you mean 'digamma'?)", function() return special.digama end)
  end)
end)
