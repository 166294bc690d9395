local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local C = require "accelhost._C"
local F = accelhost.nn.functional
local inf, nan = 1 / 0, 0 / 0

local function T(values, dtype, requires_grad)
  return accelhost.tensor(values, {dtype = dtype or "float32", requires_grad = requires_grad})
end

-- sum over some dims by selecting every element: slow and obviously right.
local function slow_sum(x, dims)
  local reduced = {}
  for _, d in ipairs(dims) do reduced[d] = true end
  local result = x
  for d = x:dim() - 1, 0, -1 do
    if reduced[d] then
      local sum
      for i = 0, result:size(d) - 1 do
        local part = result:select(d, i)
        sum = sum and sum + part or part
      end
      result = sum
    end
  end
  return result
end

describe("sums", function()
  it("fold any set of dims of any layout", function()
    accelhost.manual_seed(1)
    for _, shape in ipairs {{3, 4, 5}, {2, 70, 3}, {130, 3, 2}, {2, 2, 600}, {1, 9, 1}} do
      local x = accelhost.randint(-50, 50, shape):to("float64")
      for _, dims in ipairs {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}} do
        local expected = check.flat(slow_sum(x, dims))
        check.near(expected, x:sum(dims), 0)
        check.near(expected, x:to("float32"):sum(dims), 0)
        check.near(expected, x:to("int64"):sum(dims), 0)
        check.near(expected, x:transpose(0, 2):contiguous():transpose(0, 2):sum(dims), 0)
        check.near(expected, x:transpose(1, 2):contiguous():transpose(1, 2):sum(dims, true), 0)
        check.near(expected, x:flip(1):flip(1):sum(dims), 0)
      end
    end
  end)

  it("of millions of floats stay exact to the last digits", function()
    local x = accelhost.full({3000, 1000}, 0.1)
    local exact = x:select(0, 0):select(0, 0):item() * 3000000
    check.near(exact, x:sum(), 1e-7)
    check.near(exact / 3000, x:sum(1):select(0, 17):item(), 1e-7)
    check.near(exact / 3000000, x:mean(), 1e-7)
    assert.equal(20000000, accelhost.ones(20000000):sum():item()) -- beyond 2^24, where float32 stops counting
  end)

  -- 16 bytes and several of them are read at once where they are adjacent; each of these has such runs and a rest.
  it("and norms are as exact as in double, of any size and sign", function()
    local most = os.getenv "ACCELHOST_TEST_DEVICE" == "cuda" and 1.01 or 64 -- the CPU adds up parts in float32
    accelhost.manual_seed(7)
    local count = 3 * 1024 + 5
    for _, dtype in ipairs {"float32", "bfloat16", "float16"} do
      local eps = dtype == "float32" and 2 ^ -24 or dtype == "bfloat16" and 2 ^ -8 or 2 ^ -11
      for _, scale in ipairs(dtype == "float16" and {1} or {1, 1e30, 1e-30}) do
        local x = (accelhost.randn({count}, {dtype = "float64"}) * scale):to(dtype)
        local signed = accelhost.cat {x, -x:flip(0), T({scale}, dtype)}
        local wide = x:double()
        local function near(want, got, what)
          local off = math.abs(got:item() / want:item() - 1)
          assert.is_true(off <= most * eps, ("%s of %s, %g: %g"):format(what, dtype, scale, off))
        end
        near(T({scale}, dtype), signed:sum(), "sum")
        near(T({scale}, dtype), accelhost.stack({signed, signed}, 1):sum(0)[1], "sum over rows")
        near(wide:abs():sum() / count, x:abs():mean(), "mean")
        near((wide * wide):sum():sqrt(), x:norm(), "norm")
        near((wide * wide):sum():sqrt(), accelhost.stack({x, x}, 1):norm(2, 0)[0], "norm over rows")
        near(wide:abs():sum() / count, x:norm(1) / count, "norm of absolute values")
        assert.equal(wide:abs():amax():item(), x:norm(inf):item())
        if scale == 1 then near(wide:var(), x:var(), "variance") end
      end
    end
  end)

  it("may exceed the range of floats on the way, within that of doubles", function()
    local x = accelhost.zeros {40}
    for _, where in ipairs {0, 5, 33} do
      x:fill_(0)
      x:narrow(0, where, 5):copy_(T {3e38, 3e38, -3e38, -3e38, 2 ^ 105})
      assert.equal(2 ^ 105, x:sum():item())
      x[where] = inf
      assert.equal(inf, x:sum():item())
      assert.equal(inf, x:norm():item())
      assert.is_true(x:var():isnan():item())
      x[where + 1] = -inf
      assert.is_true(x:sum():isnan():item())
      x[where + 1] = nan
      assert.is_true(x:sum():isnan():item() and x:norm():isnan():item() and x:amax():isnan():item())
      assert.equal(2 ^ 105, x:narrow(0, where + 4, 1):nansum():item())
    end
    assert.equal(0, accelhost.zeros({40}):norm():item())
    assert.equal(0, accelhost.full({4099}, 0.1):var():item())
  end)

  it("are the same bits for any number of threads", function()
    accelhost.manual_seed(2)
    local threads = accelhost.get_num_threads()
    for _, shape in ipairs {{300000}, {1000, 300}, {100000, 3}, {3, 100000}, {20, 30, 500}} do
      local x = accelhost.randn(shape)
      local results = {}
      for count = 1, 3 do
        accelhost.set_num_threads(count)
        results[count] = {x:sum(), x:sum(0), x:sum(-1), x:mean(), x:norm(), x:std(-1), (x * x):exp():sum(0)}
      end
      accelhost.set_num_threads(threads)
      for k, expected in ipairs(results[1]) do
        check.near(check.flat(expected), results[2][k], 0)
        check.near(check.flat(expected), results[3][k], 0)
      end
    end
  end)

  it("count in int64, or in the requested dtype", function()
    assert.equal("int64", T({true, true}, "bool"):sum().dtype)
    assert.equal(510, T({255, 255}, "uint8"):sum():item())
    assert.equal("float64", T({1, 2}):sum{dtype = "float64"}.dtype)
    assert.equal("int32", T({1, 2}, "int64"):sum(0, {dtype = "int32"}).dtype)
    assert.equal(1.5, T({1, 2}, "int64"):mean{dtype = "float32"}:item())
    check.raises("mean: expected a floating input, got int64", function() T({1, 2}, "int64"):mean() end)
  end)

  it("of nothing are the neutral element", function()
    local x = accelhost.zeros(0, 3)
    assert.equal(0, x:sum():item())
    assert.same({0, 0, 0}, x:sum(0):tolist())
    assert.same({0}, x:sum(1):shape())
    assert.equal(1, x:prod():item())
    check.near(nan, x:mean():item(), 0)
    check.near({nan, nan, nan}, x:var(0), 0)
    assert.equal(false, x:any():item())
    assert.equal(true, x:all():item())
    assert.equal(0, x:norm():item())
    check.raises("amax: there is nothing to compare along dim 0 of shape (0, 3)", function() x:max() end)
    check.raises("argmax: there is nothing to compare along dim 0", function() x:argmax(0) end)
  end)

  it("refuse dims that are not there or twice there", function()
    local x = accelhost.ones(2, 3)
    check.raises("sum: dim 2 is out of range (expected -2..1)", function() x:sum(2) end)
    check.raises("sum: dim 0 is named twice", function() x:sum({0, -2}) end)
  end)
end)

describe("extremes", function()
  it("let NaN win", function()
    local x = T({{1, nan, 3}, {4, 5, 6}})
    check.near(nan, x:max():item(), 0)
    local values, places = x:max(1)
    check.near({nan, 6}, values, 0)
    assert.same({1, 2}, places:tolist())
    assert.same({1, 0}, x:argmin(1):tolist())
    check.near({1, nan, 3}, x:amin(0), 0)
    check.near(nan, x:norm(inf):item(), 0)
  end)

  it("let NaN win in long rows", function()
    for _, n in ipairs {31, 64, 65, 200, 1000} do
      for _, place in ipairs {0, 1, n - 1, math.floor(n / 2)} do
        local x = accelhost.arange(n, {dtype = "float32"})
        x:narrow(0, place, 1):fill_(nan)
        check.near(nan, x:max():item(), 0)
        check.near(nan, x:amin():item(), 0)
        assert.equal(place, x:argmax():item())
        assert.equal(place, x:argmin(0):item())
      end
    end
  end)

  it("select the first of equals", function()
    for _, dtype in ipairs {"uint8", "int32", "int64", "float16", "float32", "float64"} do
      local x = accelhost.ones({100}, {dtype = dtype})
      assert.equal(0, x:argmax():item())
      x:narrow(0, 77, 3):fill_(2)
      local value, place = x:max(0)
      assert.equal(77, place:item())
      assert.equal(dtype, value.dtype)
      assert.equal(2, value:to("float64"):item())
      x:narrow(0, 40, 2):fill_(0)
      value, place = x:min(0)
      assert.equal(40, place:item())
      assert.equal(0, value:to("float64"):item())
    end
  end)

  it("share or place their gradient", function()
    local x = T({{1, 3, 3}, {2, 2, 0}}, "float64", true)
    x:max():backward()
    assert.same({{0, 0.5, 0.5}, {0, 0, 0}}, x.grad:tolist())
    x.grad = nil
    x:amax(1):sum():backward()
    assert.same({{0, 0.5, 0.5}, {0.5, 0.5, 0}}, x.grad:tolist())
    x.grad = nil
    x:max(-1):sum():backward()
    assert.same({{0, 1, 0}, {1, 0, 0}}, x.grad:tolist())
  end)

  it("of a 0-dim tensor are the tensor", function()
    local value, place = T(5, "float64", true):max(0)
    assert.equal(5, value:item())
    assert.equal(0, place:item())
  end)
end)

describe("any and all", function()
  it("treat any number but 0 as true", function()
    local x = T({{0, 0.5}, {0, 0}, {nan, 1}})
    assert.same({true, false, true}, x:any(1):tolist())
    assert.same({false, false, true}, x:all(1):tolist())
    assert.same({false, true}, T({{false, true}, {false, true}}, "bool"):all(0):tolist())
    assert.same({1, 0, 2}, x:count_nonzero(1):tolist())
    assert.equal("uint8", T({1}, "uint8"):any().dtype)
  end)
end)

describe("spread", function()
  it("is unbiased by default", function()
    local x = T({1, 2, 3, 4}, "float64")
    check.near(5 / 3, x:var():item(), 1e-15)
    check.near(1.25, x:var{unbiased = false}:item(), 0)
    check.near(1.25, x:var(0, 0):item(), 0)
    check.near(5, x:var{correction = 3}:item(), 1e-15)
    check.near(nan, T({5}):std():item(), 0)
    local var, mean = accelhost.var_mean(x, 0)
    check.near({5 / 3, 2.5}, {var:item(), mean:item()}, 1e-15)
  end)

  it("is not fooled by a large mean", function()
    local x = accelhost.tensor({1e6 + 1, 1e6 + 2, 1e6 + 3})
    check.near(1, x:var():item(), 1e-6)
  end)

  it("has no gradient where there is none", function()
    local x = T({{2, 2}, {1, 3}}, "float64", true)
    x:std(1):sum():backward()
    check.near({0, 0, -math.sqrt(0.5), math.sqrt(0.5)}, x.grad, 1e-15)
  end)
end)

describe("names with more than one meaning", function()
  it("are distinguished", function()
    local x = T {{3, 4}, {6, 8}}
    check.near(math.sqrt(125), x:norm("fro"):item(), 1e-6)
    check.near({5, 10}, accelhost.norm(x, {p = "fro", dim = 1}), 1e-6)
    check.near(accelhost.linalg.matrix_norm(x, "nuc"):item(), x:norm("nuc"):item(), 1e-6)
    assert.same({2, 1, 1}, accelhost.norm(accelhost.ones(2, 3, 4), {p = "nuc", dim = {1, 2}, keepdim = true}):shape())
    check.raises("norm: dim: expected the two dims of the matrices for p = 'nuc', input has 3",
      function() accelhost.ones(2, 3, 4):norm("nuc") end)
    check.raises("norm: unknown p 'inf' (known: numbers, 'fro', 'nuc')", function() x:norm("inf") end)
    check.raises("max: dim: expected an integer or a tensor", function() x:max(0.5) end)
    local values, places = x:max(1)
    assert.same({{4, 8}, {1, 1}}, {values:tolist(), places:tolist()})
    assert.same({{5, 5}, {6, 8}}, accelhost.max(x, T {5, 5}):tolist())
  end)
end)

describe("the gradient of a product", function()
  it("is 0 with one zero, even where the rest overflows", function()
    for dtype, big in pairs {float32 = 1e30, float64 = 1e200} do
      local x = T({big, big, 1, 0}, dtype, true)
      local y = x:narrow(0, 0, 3)
      accelhost.cat({y, y, x:narrow(0, 3, 1)}):prod():backward()
      assert.same({0, 0, 0, inf}, x.grad:tolist())
    end
  end)
end)

describe("norms", function()
  it("are those of every p", function()
    local x = T({3, -4, 0}, "float64")
    local expected = {[0] = 2, [1] = 7, [2] = 5, [3] = 91 ^ (1 / 3), [inf] = 4, [-inf] = 0}
    for _, p in ipairs {0, 1, 2, 3, inf, -inf} do check.near(expected[p], x:norm(p):item(), 1e-15, "p = " .. p) end
  end)

  it("have gradient 0 at 0", function()
    local x = T({0, 0}, "float64", true)
    x:norm():backward()
    assert.same({0, 0}, x.grad:tolist())
  end)

  it("of small halves do not underflow in cosine_similarity", function()
    local x = T({{1e-4, 1e-4, 1e-4, 1e-4}}, "float16")
    assert.same({1}, F.cosine_similarity(x, x):tolist())
    assert.same({-1}, F.cosine_similarity(x, x * -2):tolist())
  end)
end)

describe("renorm", function()
  local function by_ops(x, p, dim, most)
    local others = {}
    for d = 0, x:dim() - 1 do
      if d ~= dim then others[#others + 1] = d end
    end
    local norm = x:norm(p, others, true)
    return x * accelhost.where(norm:gt(most), most / (norm + 1e-7), 1)
  end

  it("scales slices along any dim of any layout, whatever the norm and the dtype", function()
    accelhost.manual_seed(4)
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16"} do
      local whole = accelhost.randn(3, 70, 41):to(dtype)
      for _, x in ipairs {
        whole, whole:transpose(0, 2), whole:narrow(1, 3, 60), whole:select(1, 2), whole:select(0, 1),
      } do
        for dim = 0, x:dim() - 1 do
          for _, p in ipairs {0.5, 1, 2, 3, math.huge} do
            local norms = x:norm(p, dim == 0 and 1 or 0, true):float()
            local most = norms:median():item() * 0.9
            local wanted, before = by_ops(x:double(), p, dim, most), x:clone()
            local step = dtype == "float64" and 1e-12 or dtype == "float32" and 1e-6 or 0.01
            check.near(check.flat(wanted), x:renorm(p, dim, most):double(), step * 4)
            local own = x:clone():transpose(0, 1):contiguous():transpose(0, 1)
            assert.is_true(rawequal(own, own:renorm_(p, dim, most)))
            check.near(check.flat(wanted), own:double(), step * 4) -- norms are summed in the order of memory
            assert.is_true(x:equal(before))
          end
        end
      end
    end
  end)

  it("has first and second derivatives, in place too, and leaves gradients of short slices alone", function()
    local x = accelhost.randn({3, 4, 2}, {dtype = "float64"}):requires_grad_()
    for _, p in ipairs {1, 2, 3, math.huge} do
      for dim = 0, 2 do
        gradcheck.gradcheck(function(t) return t:renorm(p, dim, 1.1) end, {x}, {atol = 1e-4})
      end
    end
    gradcheck.gradgradcheck(function(t) return t:renorm(2, 1, 1.1) end, {x}, {atol = 1e-3, rtol = 1e-3})
    gradcheck.gradcheck(function(t) return (t * 2):renorm_(2, 1, 1.1) end, {x}, {atol = 1e-4})
    local short = accelhost.tensor({{0.1, 0.2}, {0, 0}}, {requires_grad = true})
    short:renorm(2, 0, 1):sum():backward()
    assert.same({{1, 1}, {1, 1}}, short.grad:tolist())
  end)

  it("has the same bits for every number of threads", function()
    local threads, x = accelhost.get_num_threads(), accelhost.randn(300, 257)
    for dim = 0, 1 do
      local results = {}
      for _, count in ipairs {1, 2, 3} do
        accelhost.set_num_threads(count)
        results[count] = x:renorm(2, dim, 1)
      end
      accelhost.set_num_threads(threads)
      assert.is_true(results[1]:equal(results[2]) and results[1]:equal(results[3]))
    end
  end)

  it("refuses other norms, limits, dims and dtypes", function()
    local x = accelhost.ones(2, 3)
    check.raises("renorm: p: expected a number above 0, got 0", function() x:renorm(0, 0, 1) end)
    check.raises("renorm: maxnorm: expected a number of at least 0, got -1", function() x:renorm(2, 0, -1) end)
    check.raises("renorm: dim 2 is out of range (expected -2..1)", function() x:renorm(2, 2, 1) end)
    check.raises("renorm: input: expected at least 2 dims, got shape (3,)", function()
      accelhost.ones(3):renorm(2, 0, 1)
    end)
    check.raises("renorm: expected a floating input, got int64", function() x:long():renorm(2, 0, 1) end)
  end)
end)

describe("logsumexp", function()
  it("neither overflows nor underflows", function()
    check.near({1000 + math.log(2), -1000 + math.log(2)}, T({{1000, 1000}, {-1000, -1000}}):logsumexp(1), 1e-6)
    check.near({-inf, inf, nan}, T({{-inf, -inf}, {inf, 0}, {nan, 0}}):logsumexp(1), 0)
  end)

  it("has gradient 0 where everything is -inf", function()
    local x = T({-inf, -inf}, "float64", true)
    x:logsumexp(0):backward()
    assert.same({0, 0}, x.grad:tolist())
  end)
end)

describe("running sums", function()
  it("go along any dim", function()
    local x = T({{1, 2, 3}, {4, 5, 6}}, "int32")
    assert.same({{1, 2, 3}, {5, 7, 9}}, x:cumsum(0):tolist())
    assert.same({{1, 3, 6}, {4, 9, 15}}, x:cumsum(-1):tolist())
    assert.equal("int64", x:cumsum(0).dtype)
    assert.same({{6, 5, 3}, {15, 11, 6}}, C.cumsum_reverse(x:to("float32"), 1):tolist())
    local cube = accelhost.arange(3 * 130 * 5):remainder(13):float():view(3, 130, 5)
    for dim = 0, 2 do
      local reversed = cube:flip(dim):cumsum(dim):flip(dim)
      assert.is_true(reversed:equal(C.cumsum_reverse(cube, dim)))
      assert.is_true(reversed:equal(C.cumsum_reverse(cube:to("int64"), dim):float()))
    end
  end)

  it("of halves do not round as they go", function()
    assert.equal(4096, accelhost.ones({4096}, {dtype = "float16"}):cumsum(0):select(0, 4095):to("float32"):item())
  end)
end)

describe("products", function()
  it("have gradients where an element is 0", function()
    local x = T({{2, 0, 3}, {0, 0, 5}, {1, 2, 4}}, "float64", true)
    x:prod(1):sum():backward()
    assert.same({{0, 6, 0}, {0, 0, 0}, {8, 4, 2}}, x.grad:tolist())
  end)
end)

describe("gradients of reductions", function()
  local x, first
  before_each(function()
    accelhost.manual_seed(8)
    x = accelhost.randn({2, 3, 4}, {dtype = "float64", requires_grad = true})
    first = x:detach():clone()
  end)

  -- t less the first values of the first `count` elements of one of its columns: zeros that move with t.
  local function moved_to_zero(t, count)
    local held = accelhost.zeros({2, 3, 4}, {dtype = "float64"})
    held[{0, {0, count}, 1}] = first[{0, {0, count}, 1}]
    return t - held
  end

  local functions = {
    {"sum", function(t) return (t * t):sum({0, 2}) end},
    {"mean", function(t) return (t * t):mean(1, true) end},
    {"prod", function(t) return t:prod(1) end},
    {"prod with one zero", function(t) return moved_to_zero(t, 1):prod(1) end},
    {"prod with two zeros", function(t) return moved_to_zero(t, 2):prod(1) end},
    {"prod with three zeros", function(t) return moved_to_zero(t, 3):prod() end},
    {"var", function(t) return t:var({1, 2}) end},
    {"std", function(t) return t:std(0, 0, true) end},
    {"norm", function(t) return t:norm(2, {0, 1}) end},
    {"norm of p = 3", function(t) return t:norm(3, 2) end},
    {"norm of p = 1", function(t) return (t * t):norm(1, 1) end},
    {"logsumexp", function(t) return t:logsumexp({0, 2}) end},
    {"amax", function(t) return (t * t):amax({0, 1}) end},
    {"max", function(t) return (t * t):max(1) end},
    {"cumsum", function(t) return (t * t):cumsum(1) end},
    {"sum_to", function(t) return C.sum_to(t * t, {3, 1}) end},
  }
  for _, case in ipairs(functions) do
    it("are right twice: " .. case[1], function()
      assert.is_true(gradcheck.gradcheck(case[2], {x}))
      assert.is_true(gradcheck.gradgradcheck(case[2], {x}))
    end)
  end
end)

describe("max and min of two tensors", function()
  it("have no dim to keep", function()
    local x = accelhost.ones(2)
    for _, name in ipairs {"max", "min"} do
      check.raises(name .. ": of two tensors there is no dim to keep (keepdim = true)", function()
        accelhost[name](x, x, true)
      end)
      assert.same({1, 1}, accelhost[name](x, x, false):tolist())
    end
  end)
end)

describe("the variance of nothing", function()
  it("is NaN, whatever the correction", function()
    for _, correction in ipairs {-1, 0, 1} do
      assert.equal("nan", tostring(accelhost.zeros(2, 0):var(1, correction)[0]:item()):gsub("-", ""))
    end
  end)
end)

describe("the gradient of a norm", function()
  it("does not leave the numbers of a half on its way", function()
    for _, p in ipairs {2, 3} do
      local x = T({1e-6}, "float16", true)
      x:norm(p, 0):backward()
      check.near({1}, x.grad:tolist(), 0.2)
    end
  end)
end)

describe("the gradient of a variance", function()
  it("is that of the formula where the correction exceeds the count, too", function()
    local x = T({3}, "float64", true)
    x:var(0, 10):backward()
    assert.equal(0, x.grad[0]:item())
    local pair = T({1, 3}, "float64", true)
    pair:var(0, 4):backward()
    assert.same({1, -1}, pair.grad:tolist())
  end)
end)

describe("sums of halves", function()
  it("are those of float32, rounded once, along any dim and wherever vectors end", function()
    accelhost.manual_seed(5)
    for _, dtype in ipairs {"float16", "bfloat16"} do
      for _, shape in ipairs {{3, 1}, {5, 15}, {9, 64}, {17, 65}, {8, 79}, {70, 96}, {2, 1100}, {1100, 67}} do
        local x = accelhost.randn(shape):to(dtype)
        local scale = dtype == "float16" and 2 ^ -11 or 2 ^ -8
        for _, view in ipairs {x, x:t(), x:view(1, shape[1], shape[2]), x:narrow(1, 0, math.ceil(shape[2] / 2))} do
          for dim = -2, -1 do
            local wanted = view:double():sum(dim)
            local off = (view:sum(dim):double() - wanted):abs() - wanted:abs() * scale
            assert.is_true((off - view:double():abs():sum(dim) * 1e-6):max():item() <= 0)
          end
          assert.is_true(math.abs(view:sum():item() - view:double():sum():item()) <=
            math.abs(view:double():sum():item()) * scale + view:double():abs():sum():item() * 1e-6)
        end
      end
      local x = accelhost.ones({100}, {dtype = dtype})
      x[70] = inf
      assert.equal(inf, x:sum():item())
      x[99] = nan
      assert.is_true(x:sum():isnan():item())
    end
  end)
end)

describe("folds of halves", function()
  it("are those of their numbers in double, along any dim and wherever vectors end", function()
    accelhost.manual_seed(7)
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local step = dtype == "float16" and 2 ^ -11 or 2 ^ -8
      for _, shape in ipairs {{1, 63}, {3, 64}, {2, 79}, {70, 96}, {9, 1100}, {1100, 67}} do
        local x = (accelhost.randn(shape) * accelhost.randint(0, 4, shape)):to(dtype)
        for _, view in ipairs {x, x:t(), x:t():contiguous()} do
          for dim = 0, 1 do
            local function compare(fold)
              local found, wanted = fold(view):double(), fold(view:double())
              assert.is_true((found - wanted):abs():le(wanted:abs() * step * 1.01 + 1e-7):all():item())
            end
            compare(function(t) return t:amax(dim) end)
            compare(function(t) return t:amin(dim) end)
            compare(function(t) return t:count_nonzero(dim) end)
            for _, p in ipairs {2, 1, 3, 0, inf, -inf} do
              compare(function(t) return t:norm(p, dim) end)
            end
          end
        end
      end
    end
  end)

  it("pass over NaN in nansum, along rows and columns", function()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local x = accelhost.ones({67, 99}, {dtype = dtype})
      x[3][70], x[66][98], x[0][0] = nan, -nan, nan
      assert.same(check.flat(x:double():nansum(0)), check.flat(x:nansum(0)))
      assert.same(check.flat(x:double():nansum(1)), check.flat(x:nansum(1)))
    end
  end)

  it("keep norms whose squares leave the range of float32", function()
    for _, size in ipairs {1e30, 1e-30} do
      local x = accelhost.full({2, 100}, size, {dtype = "bfloat16"})
      local norms = x:norm(2, 1):double() / size
      assert.is_true((norms - 10):abs():max():item() < 0.1)
      assert.is_true(math.abs(x:t():norm(2, 0)[1]:item() / size - 10) < 0.1)
      assert.is_true(math.abs(x:norm():item() / size - 200 ^ 0.5) < 0.1)
    end
    assert.equal(0, accelhost.zeros({100}, {dtype = "bfloat16"}):norm():item())
    assert.equal(inf, accelhost.full({100}, -inf, {dtype = "bfloat16"}):norm():item())
  end)

  it("find infinities, and NaN of either sign", function()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      for _, count in ipairs {64, 65, 127, 128, 1000} do
        for _, at in ipairs {0, 1, 63, count - 1} do
          local x = accelhost.full({count}, -3, {dtype = dtype})
          assert.equal(-3, x:amax():item())
          x[at] = -inf
          assert.equal(-inf, x:amin():item())
          x[at] = inf
          assert.equal(inf, x:amax():item())
          assert.equal(-3, x:amin():item())
          for _, kind in ipairs {nan, -nan} do
            x[at] = kind
            assert.is_true(x:amax():isnan():item() and x:amin():isnan():item())
          end
        end
      end
    end
  end)
end)

describe("long products", function()
  it("are those of float64, wherever the vectors end", function()
    accelhost.manual_seed(1)
    for _, n in ipairs {1, 31, 32, 33, 63, 64, 95, 1001, 40000} do
      local x = accelhost.rand(n) * 0.02 + 0.99
      check.near(x:double():prod():item(), x:prod():double(), 1e-6 * x:double():prod():item())
      local columns = x:view(-1, 1):expand(n, 2)
      assert.same(x:prod():item(), columns:prod(0)[1]:item())
    end
    local x = accelhost.ones(100)
    x[70] = 0 / 0
    assert.is_true(x:prod():isnan():item())
    x[70], x[3] = math.huge, -1
    assert.equal(-math.huge, x:prod():item())
  end)
end)

describe("reductions of columns", function()
  local function matrix(rows, columns, dtype)
    return (accelhost.arange(rows * columns):remainder(7) + 1):to(dtype):view(rows, columns)
  end

  it("are those of rows, wherever vectors and blocks of rows end", function()
    for _, dtype in ipairs {"float32", "float64", "int64", "uint8", "bfloat16"} do
      for _, rows in ipairs {1, 3, 4, 7, 8, 13, 67, 300} do
        for _, columns in ipairs {2, 15, 17, 41, 530} do
          local x = matrix(rows, columns, dtype)
          local turned = x:t():contiguous()
          for _, name in ipairs {"sum", "amax", "amin", "count_nonzero", "nansum"} do
            assert.is_true(accelhost.equal(x[name](x, 0), turned[name](turned, 1)), name .. " " .. dtype)
          end
          if dtype:find "float" then
            assert.is_true(x:norm(2, 0):allclose(turned:norm(2, 1)))
            assert.is_true(x:norm(1, 0):equal(turned:norm(1, 1)))
          end
        end
      end
    end
  end)

  it("hold two dims of rows that are apart", function()
    local x = (accelhost.arange(5 * 6 * 7 * 20):remainder(11)):float():view(5, 6, 7, 20)
    local part = x:narrow(1, 1, 4)
    assert.is_true(part:sum({0, 1, 2}):equal(part:contiguous():view(-1, 20):t():contiguous():sum(1)))
    assert.is_true(part:amax({0, 2}):equal(part:transpose(0, 1):transpose(2, 3):contiguous():view(4, 5, 20, 7)
      :amax(3):amax(1)))
  end)

  it("find the extremes of rows and columns of any length", function()
    for _, count in ipairs {1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 700} do
      for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
        local x = (accelhost.randperm(11 * count):view(11, count) - 5 * count):to(dtype)
        local most, least = x:sort(1, true), x:sort(1)
        assert.is_true(most:select(1, 0):equal(x:amax(1)) and least:select(1, 0):equal(x:amin(1)))
        local columns = x:t():contiguous()
        assert.is_true(most:select(1, 0):equal(columns:amax(0)) and least:select(1, 0):equal(columns:amin(0)))
        for _, at in ipairs {0, math.floor(count / 2), count - 1} do
          for _, kind in ipairs {nan, -nan} do
            local odd = x:clone()
            odd[4][at] = kind
            for _, name in ipairs {"amax", "amin"} do
              local rows, turned = odd[name](odd, 1), odd:t():contiguous()
              assert.equal(1, rows:isnan():sum():item())
              assert.is_true(rows[4]:isnan():item())
              assert.is_true(rows:nan_to_num(7):equal(turned[name](turned, 0):nan_to_num(7)))
            end
            assert.equal(at, odd:argmax(1)[4]:item())
          end
        end
      end
    end
  end)

  it("let NaN win in any row and column", function()
    for _, columns in ipairs {5, 16, 21, 64} do
      for _, row in ipairs {0, 1, 2, 3, 5, 9} do
        local x = matrix(10, columns, "float32")
        x[row][columns - 1] = nan
        x[row][2] = nan
        for _, name in ipairs {"amax", "amin"} do
          local found = x[name](x, 0):isnan()
          assert.equal(2, found:sum():item())
          assert.is_true(found[2]:item() and found[columns - 1]:item())
        end
        assert.is_true(x:nansum(0):isfinite():all():item())
      end
    end
  end)
end)
