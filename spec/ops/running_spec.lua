-- Running products, order statistics and folds: tests beyond the table of cases (spec/fixtures/ops).
local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"
local nan = 0 / 0

local function leaf(values) return accelhost.tensor(values, {dtype = "float64", requires_grad = true}) end

local whole = tensors.long

describe("running products", function()
  it("have right derivatives of both orders, whatever is 0", function()
    for _, values in ipairs {{1.5, -2, 0.5}, {1.5, 0, 0.5, 2}, {0, 2, 0, 3}, {{1, 0, 2}, {0.5, 3, -1}}} do
      local x = leaf(values)
      local function f(t) return t:cumprod(-1) end
      gradcheck.gradcheck(f, {x})
      gradcheck.gradgradcheck(f, {x})
    end
  end)

  it("multiply bytes in int64, floats in the requested dtype", function()
    assert.equal("int64", accelhost.tensor({2, 200, 3}, {dtype = "uint8"}):cumprod(0).dtype)
    check.near({2, 400, 1200}, accelhost.tensor({2, 200, 3}, {dtype = "uint8"}):cumprod(0), 0)
    assert.equal("float64", accelhost.ones(2):cumprod(0, {dtype = "float64"}).dtype)
    check.near({2, 6}, accelhost.tensor({2, 3}, {dtype = "float16"}):cumprod(0), 0)
  end)
end)

describe("running sums, products and log-sums along the last dim", function()
  it("are those of each line alone, to the bit", function()
    accelhost.manual_seed(6)
    local threads = accelhost.get_num_threads()
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64"} do
      local x = (accelhost.rand(11, 9) * 4):to(dtype)
      for _, name in ipairs {"cumsum", "cumprod", dtype ~= "int64" and "logcumsumexp" or nil} do
        local lines = {}
        for i = 0, 10 do lines[#lines + 1] = x[i][name](x[i], 0) end
        for count = 1, 3 do
          accelhost.set_num_threads(count)
          assert.is_true(accelhost.stack(lines, 0):equal(x[name](x, 1)), name .. dtype)
        end
        accelhost.set_num_threads(threads)
      end
    end
    local ones = accelhost.ones(6, 3):requires_grad_()
    ones:cumsum(1):sum():backward() -- sums from the end
    assert.same({3, 2, 1}, ones.grad[5]:tolist())
    assert.same({3, 2, 1}, ones.grad[0]:tolist())
  end)
end)

describe("running log-sums", function()
  it("have right derivatives of both orders", function()
    local x = leaf {{0.5, -1, 2}, {0.1, 0.2, -0.3}}
    for dim = 0, 1 do
      local function f(t) return t:logcumsumexp(dim) end
      gradcheck.gradcheck(f, {x})
      gradcheck.gradgradcheck(f, {x})
    end
    local far = leaf {-1 / 0, 1, 2}
    far:logcumsumexp(0):narrow(0, 1, 2):sum():backward()
    check.near({0, 1 + 1 / (1 + math.exp(1)), 1 / (1 + math.exp(-1))}, far.grad, 1e-12)
  end)

  it("are of floats only", function()
    check.raises("logcumsumexp: expected a floating input, got int64", function() whole({1}):logcumsumexp(0) end)
  end)
end)

describe("order statistics", function()
  it("refuse the arguments that PyTorch refuses", function()
    local x = accelhost.ones(2, 3)
    check.raises("kthvalue: k is 4, but dim 1 of (2, 3) has 3 entries", function() x:kthvalue(4) end)
    check.raises("quantile: q: expected values in 0..1", function() x:quantile(1.5) end)
    check.raises("quantile: input: expected float32 or float64, got int64", function() whole({1}):quantile(0.5) end)
    check.raises("quantile: q is float64 but input is float32", function() x:quantile(leaf {0.5}) end)
    check.raises("mode: dim 1 of (2, 0) has no entries", function() accelhost.ones(2, 0):mode() end)
    check.raises("median: not defined for bool", function() x:gt(0):median() end)
    check.raises("cov: fweights: expected shape (3,), got (2,)", function() x:cov{fweights = whole({1, 2})} end)
    check.raises("histc: input: expected a floating dtype, got int64", function() whole({1}):histc() end)
  end)

  it("of no elements are nan", function()
    local empty = accelhost.ones(0):median():item()
    assert.is_true(empty ~= empty)
  end)

  it("spread a median's gradient over nan as well", function()
    local x = leaf {nan, 1, nan}
    x:median():backward()
    check.near({0.5, 0, 0.5}, x.grad, 0)
  end)

  it("have right derivatives", function()
    local x = leaf {{0.3, 2, -1, 0.7}, {1.5, -0.2, 0.9, 4}}
    for name, f in pairs {
      quantile = function(t) return t:quantile(0.4, 1) end, kthvalue = function(t) return (t:kthvalue(2)) end,
      cov = function(t) return t:cov() end, corrcoef = function(t) return t:corrcoef() end,
      diff = function(t) return t:diff() end, trapezoid = function(t) return accelhost.trapezoid(t) end,
    } do
      assert(gradcheck.gradcheck(f, {x}), name)
      assert(gradcheck.gradgradcheck(f, {x}), name)
    end
  end)
end)

describe("distinct slices", function()
  it("are found along any dim, with their places and counts", function()
    local x = whole {{1, 0, 1}, {2, 5, 2}}
    local values, inverse, counts = x:unique {dim = 1, return_inverse = true, return_counts = true}
    assert.same({{0, 1}, {5, 2}}, values:tolist())
    assert.same({1, 0, 1}, inverse:tolist())
    assert.same({1, 2}, counts:tolist())
  end)

  it("of nothing are nothing", function()
    assert.same({0}, accelhost.ones(0):unique_consecutive():shape())
    assert.same({0, 2}, accelhost.ones(0, 2):unique({dim = 0}):shape())
  end)
end)

describe("folds by index", function()
  local index = whole({0, 1, 0})

  it("have right derivatives", function()
    local x, src = leaf {2, 3}, leaf {0.5, -1.5, 4}
    for _, how in ipairs {"sum", "prod", "mean", "amax", "amin"} do
      for _, include in ipairs {true, false} do
        gradcheck.gradcheck(function(a, b) return a:scatter_reduce(0, index, b, how, include) end, {x, src})
      end
    end
    gradcheck.gradgradcheck(function(a, b) return a:scatter_reduce(0, index, b, "prod") end, {x, src})
    local function prod(a, b) return a:scatter_reduce(0, index, b, "prod") end
    gradcheck.gradcheck(prod, {x, leaf {0, 0, 2}})
    gradcheck.gradcheck(prod, {x, leaf {0, 1, 0}})
  end)

  it("keep integers that no Lua number holds", function()
    local far = whole {2 ^ 62, 2 ^ 61, -2 ^ 63} + 1
    local x = whole {0, 0}
    assert.is_true(x:scatter_reduce(0, index, far, "amin", false):equal(whole {-2 ^ 63, 2 ^ 61} + 1))
    assert.is_true(x:scatter_reduce(0, index, far, "amax", false):equal(whole {2 ^ 62, 2 ^ 61} + 1))
  end)

  it("are the same bits for any number of threads", function()
    accelhost.manual_seed(3)
    local x, many = accelhost.randn(50, 400), accelhost.randint(0, 50, {300, 400})
    local src, threads, results = accelhost.randn(300, 400), accelhost.get_num_threads(), {}
    for count = 1, 3 do
      accelhost.set_num_threads(count)
      results[count] = x:scatter_reduce(0, many, src, "prod")
    end
    accelhost.set_num_threads(threads)
    assert.is_true(results[1]:equal(results[2]) and results[1]:equal(results[3]))
  end)

  it("name mismatched arguments", function()
    local x = accelhost.ones(2)
    check.raises("scatter_reduce: src is int64 but input is float32", function()
      x:scatter_reduce(0, index, whole({1, 2, 3}), "sum")
    end)
    check.raises("scatter_reduce: index (3,) is larger than src (2,)", function()
      x:scatter_reduce(0, index, x, "sum")
    end)
    check.raises("scatter_reduce: unknown reduce 'max' (known: sum, prod, mean, amax, amin)", function()
      x:scatter_reduce(0, index, accelhost.ones(3), "max")
    end)
    check.raises("index_reduce: source (2,) does not fit 3 indices on dim 0 of (2,)", function()
      x:index_reduce(0, index, x, "prod")
    end)
    check.raises("select_scatter: src (2,) does not have the shape () of the part", function()
      x:select_scatter(x, 0, 1)
    end)
    check.raises("index_put: index 5 is outside -2..1 (dim 0 of (2, 2))", function()
      accelhost.ones(2, 2):index_put({whole({5}), whole({0})}, 1)
    end)
  end)
end)

describe("diagonals", function()
  it("are filled in place, wrapped where that is wanted", function()
    local tall = accelhost.zeros(7, 2)
    assert.equal(tall, tall:fill_diagonal_(1, true))
    assert.same({{1, 0}, {0, 1}, {0, 0}, {1, 0}, {0, 1}, {0, 0}, {1, 0}}, tall:tolist())
    assert.same({{1, 0, 0}, {0, 1, 0}}, accelhost.zeros(2, 3):fill_diagonal_(1):tolist())
    assert.equal(2, accelhost.zeros(2, 2, 2):fill_diagonal_(1):sum():item())
  end)
end)
