local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local op_fixture = require "spec.support.op_fixture"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local function ints(values, dtype)
  return accelhost.tensor(values, {dtype = dtype or "int64"})
end

local dtypes = {"uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

describe("places of a mask", function()
  it("are found and filled at its ends, where it is true everywhere or nowhere", function()
    for _, shape in ipairs {{7}, {3, 5}, {2, 3, 4}} do
      local x = accelhost.arange(accelhost.zeros(shape):numel()):view(shape)
      for _, chosen in ipairs {x:ge(0), x:lt(0), x:eq(0), x:eq(x:numel() - 1), x:remainder(2):eq(1)} do
        local list = {}
        for _, value in ipairs(x:reshape(-1):tolist()) do
          if chosen:reshape(-1)[value]:item() then list[#list + 1] = value end
        end
        assert.same(list, x:masked_select(chosen):tolist())
        assert.same(list, x:reshape(-1)[chosen:reshape(-1)]:tolist())
        local places = chosen:nonzero()
        assert.same({#list, #shape}, places:shape())
        for i, value in ipairs(list) do
          local at = 0
          for d = 1, #shape do at = at * shape[d] + places[i - 1][d - 1]:item() end
          assert.equal(value, at)
        end
        local filled = (-x):masked_scatter(chosen, accelhost.arange(100, 130))
        for i, value in ipairs(list) do assert.equal(99 + i, filled:reshape(-1)[value]:item()) end
        assert.is_true(filled:eq(-x):logical_or(chosen):all():item())
        local leaf = x:double():requires_grad_()
        leaf:masked_select(chosen):sum():backward()
        assert.is_true(leaf.grad:equal(chosen:double()))
      end
    end
    assert.same({1, 0}, accelhost.tensor(3):nonzero():shape())
  end)
end)

describe("an index op", function()
  op_fixture.define(require("spec.support.fixtures").load "index", it)
end)

describe("scatter", function()
  local x = accelhost.tensor {{1, 2, 3}, {4, 5, 6}}
  local index, src = ints {{0, 0}, {2, 0}}, accelhost.tensor {{10, 20}, {30, 40}}

  it("adds and multiplies by `reduce`", function()
    assert.same({{31, 2, 3}, {44, 5, 36}}, x:scatter(1, index, src, {reduce = "add"}):tolist())
    assert.same({{200, 2, 3}, {160, 5, 180}}, x:scatter(1, index, src, "multiply"):tolist())
    assert.same({{15, 2, 3}, {11, 5, 13}}, x:scatter(1, index, 7, "add"):tolist())
    assert.same({{9, 2, 3}, {12, 5, 18}}, x:clone():scatter_(1, index, 3, "multiply"):tolist())
    assert.error_matches(function() x:scatter(1, index, src, "sum") end,
      "scatter: reduce: expected 'add' or 'multiply', got 'sum'")
  end)

  it("passes gradients through a sum, and refuses those of a product", function()
    local input, other = x:double():requires_grad_(), src:double():requires_grad_()
    gradcheck.gradcheck(function(a, b) return a:scatter(1, index, b, "add") end, {input, other})
    gradcheck.gradgradcheck(function(a, b) return a:scatter(1, index, b, "add") end, {input, other})
    local product = input:scatter(1, index, other, "multiply"):sum()
    assert.error_matches(function() product:backward() end,
      "backward of scatter: reduce = 'multiply' has no derivative, scatter_reduce has")
  end)
end)

describe("many elements for few places", function()
  -- Runs of one place that begin, end and continue across multiples of 64, one of them alone.
  local runs, places, values = {130, 1, 63, 64, 200, 2}, {}, {}
  for place, count in ipairs(runs) do
    for _ = 1, count do places[#places + 1] = place - 1 end
  end
  for i = 1, #places do values[i] = i * 7 % 11 - 5 end
  local shuffled = {} -- 460 = 4 * 5 * 23
  for i = 1, #places do shuffled[i] = i * 271 % #places + 1 end

  local function expected(fold, start)
    local out = {}
    for place in ipairs(runs) do out[place] = start end
    for i, place in ipairs(places) do out[place + 1] = fold(out[place + 1], values[i]) end
    return out
  end
  local function in_order(list)
    local out = {}
    for i, from in ipairs(shuffled) do out[i] = list[from] end
    return out
  end

  it("are added, and compared, in every dtype and in any order", function()
    for _, dtype in ipairs {"int32", "int64", "float16", "bfloat16", "float32", "float64"} do
      local sums = expected(function(a, b) return a + b end, 100)
      local start = accelhost.full({#runs}, 100, {dtype = dtype})
      for _, order in ipairs {function(list) return list end, in_order} do
        local index, src = ints(order(places)), accelhost.tensor(order(values), {dtype = dtype})
        assert.same(sums, start:scatter_add(0, index, src):to("float64"):tolist())
        assert.same(sums, start:index_add(0, index, src):to("float64"):tolist())
        for reduce, fold in pairs {amax = math.max, amin = math.min} do
          assert.same(expected(fold, 0), (start * 0):scatter_reduce(0, index, src, reduce):to("float64"):tolist())
        end
      end
    end
  end)

  it("are added to halves in float32 and rounded once, as in the adjoints of gather and index_select", function()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local index = accelhost.zeros({3000}, {dtype = "int64", device = "cpu"})
      local ones = accelhost.ones({3000}, {dtype = dtype, device = "cpu"})
      local start = accelhost.tensor({8, -1}, {dtype = dtype, device = "cpu"})
      local sum = accelhost.tensor(3008):to(dtype):item()
      assert.same({sum, -1}, start:scatter_add(0, index, ones):tolist())
      local strided = accelhost.zeros({2, 3}, {dtype = dtype, device = "cpu"})
      strided:t():scatter_add_(0, index:view(1000, 3):narrow(1, 0, 2), ones:view(1000, 3):narrow(1, 0, 2))
      sum = accelhost.tensor(1000):to(dtype):item()
      assert.same({{sum, 0, 0}, {sum, 0, 0}}, strided:tolist())
      for _, name in ipairs {"gather", "index_select"} do
        local leaf = accelhost.zeros({2}, {dtype = dtype, device = "cpu", requires_grad = true})
        leaf[name](leaf, 0, index):backward(ones)
        assert.same({accelhost.tensor(3000):to(dtype):item(), 0}, leaf.grad:tolist())
      end
    end
  end)

  it("are multiplied, and the last one written, of strided tensors too", function()
    local index = ints(places):unsqueeze(1)
    local src = accelhost.tensor(values, {dtype = "float64"}):unsqueeze(1):expand(#places, 3)
    local signs = src:sign():where(src:ne(0), accelhost.tensor(-1, {dtype = "float64"}))
    local out = accelhost.ones({2, #runs}, {dtype = "float64"}):t():scatter_reduce(0, index, signs, "prod")
    local products = expected(function(a, b) return a * (b > 0 and 1 or -1) end, 1)
    assert.same(products, out:select(1, 0):tolist())
    assert.same({1, 1, 1, 1, 1, 1}, out:select(1, 1):tolist())
    assert.same(expected(function(_, b) return b end, 0),
      accelhost.zeros({#runs}, {dtype = "float64"}):scatter(0, ints(places), src:select(1, 2)):tolist())
  end)

  it("compute their gradients, which are added up in gather's", function()
    local x = accelhost.zeros({#runs}, {dtype = "float64", requires_grad = true})
    x:gather(0, ints(in_order(places))):backward(accelhost.tensor(in_order(values), {dtype = "float64"}))
    assert.same(expected(function(a, b) return a + b end, 0), x.grad:tolist())
  end)
end)

describe("every dtype", function()
  it("is picked, placed and added", function()
    for _, dtype in ipairs(dtypes) do
      local x = accelhost.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = dtype})
      local function numbers(t) return t:to("float64"):tolist() end
      assert.same({{3, 1}, {6, 4}}, numbers(x:index_select(1, ints {2, 0})))
      assert.same({{2, 2}, {6, 4}}, numbers(x:gather(1, ints {{1, 1}, {2, 0}})))
      assert.same({{6, 7, 8}, {4, 5, 6}}, numbers(x:index_add(0, ints {0, 0}, x - x:narrow(0, 0, 1) + 1)))
      assert.same({{6, 2, 3}, {4, 5, 17}}, numbers(x:scatter_add(1, ints {{0, 0}, {2, 2}}, x:narrow(1, 1, 2))))
      assert.same({{7, 2, 7}, {7, 5, 7}}, numbers(x:index_fill(1, ints {0, 2}, 7)))
      assert.same({2, 3, 6}, numbers(x:masked_select(accelhost.tensor {{false, true, true}, {false, false, true}})))
      local sorted, places = x:sort(1, true)
      assert.same({{3, 2, 1}, {6, 5, 4}}, numbers(sorted))
      assert.same({{2, 1, 0}, {2, 1, 0}}, places:tolist())
    end
  end)

  it("of index may be int32", function()
    local x = accelhost.tensor {1, 2, 3}
    assert.same({3, 1}, x:index_select(0, ints({2, 0}, "int32")):tolist())
    assert.same({3, 1}, C.index(x, ints({-1, 0}, "int32")):tolist())
  end)

  it("is scaled by alpha in its own arithmetic", function()
    for _, dtype in ipairs(dtypes) do
      local x = accelhost.tensor({10, 20, 30}, {dtype = dtype})
      local sum = x:index_add(0, ints {2, 2, 0}, accelhost.tensor({10, 10, 10}, {dtype = dtype}), {alpha = -1})
      assert.same({0, 20, 10}, sum:to("float64"):tolist())
    end
  end)

  it("wraps integers around", function()
    for dtype, bits in pairs {int64 = 64, int32 = 32} do
      local function whole(values) return ints(values, dtype) end
      local half, quarter = 2 ^ (bits - 1), 2 ^ (bits - 2)
      local x, at, far = whole {-quarter, -half}, ints {0, 0, 1}, whole {-quarter, -quarter, -half}
      assert.is_true(whole {quarter, 0}:equal(x:index_add(0, at, far)))
      assert.is_true(whole {-quarter, -half}:equal(x:index_add(0, at, far, {alpha = 4})))
      assert.is_true(whole {quarter, 0}:equal(x:scatter_reduce(0, at, far, "sum")))
      local factors = whole {2, 2 ^ 11 - half, -half}
      assert.is_true(whole {2 ^ 12, 0}:equal(whole {1, 2}:scatter_reduce(0, at, factors, "prod")))
    end
  end)

  it("of bool adds as or", function()
    local x = accelhost.tensor {true, false}
    local both = accelhost.tensor {true, true}
    assert.same({true, true}, x:index_add(0, ints {1, 0}, both):tolist())
    assert.same({true, true}, x:index_add(0, ints {1, 0}, both, {alpha = -1}):tolist())
    assert.same({true, false}, x:index_add(0, ints {1, 0}, both, {alpha = 0}):tolist())
  end)
end)

describe("in place", function()
  it("the placing ops write their tensor and record the write", function()
    local x = accelhost.zeros({2, 3}, {dtype = "float64"})
    local source = accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "float64"}):requires_grad_()
    local same = x:index_add_(1, ints {2, 0}, source)
    assert.equal(x, same)
    assert.same({{2, 0, 1}, {4, 0, 3}}, x:tolist())
    x:backward(accelhost.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = "float64"}))
    assert.same({{3, 1}, {6, 4}}, source.grad:tolist())
  end)

  it("they refuse memory that they read as well", function()
    local i = accelhost.arange(4)
    local mask = accelhost.tensor {true, false, true, false}
    for name, call in pairs {
      index_add_ = function() i:index_add_(0, ints {3, 2, 1, 0}, i) end,
      index_copy_ = function() i:index_copy_(0, ints {3, 2, 1}, i:narrow(0, 1, 3)) end,
      index_fill_ = function() i:index_fill_(0, i, 7) end,
      index_put_ = function() i:index_put_(i, 7) end,
      scatter_ = function() i:scatter_(0, ints {3, 2, 1, 0}, i) end,
      scatter_add_ = function() i:scatter_add_(0, i, ints {1, 1, 1, 1}) end,
      masked_scatter_ = function() i:masked_scatter_(mask, i) end,
    } do
      assert.matches(name .. ": %w+ %(%d,%) shares memory with input %(4,%), which is written",
        check.raises(name, call))
    end
    assert.same({0, 1, 2, 3}, i:tolist())
    i:narrow(0, 0, 2):index_add_(0, ints {1, 0}, i:narrow(0, 2, 2)) -- neighbours, but apart
    assert.same({3, 3, 2, 3}, i:tolist())
  end)

  it("they reach through a strided view", function()
    local x = accelhost.zeros(3, 4)
    x:t():index_fill_(0, ints {1, 3}, 5)
    assert.same({{0, 5, 0, 5}, {0, 5, 0, 5}, {0, 5, 0, 5}}, x:tolist())
    x:t():scatter_(0, ints {{0, 1, 2}}, 9)
    assert.same({{9, 5, 0, 5}, {0, 9, 0, 5}, {0, 5, 9, 5}}, x:tolist())
    x:select(1, 3):masked_scatter_(accelhost.tensor {true, false, true}, accelhost.tensor {1, 2})
    assert.same({{9, 5, 0, 1}, {0, 9, 0, 5}, {0, 5, 9, 2}}, x:tolist())
  end)
end)

describe("sort", function()
  it("sorts nan last, or first when descending", function()
    local x = accelhost.tensor {2, 0/0, -math.huge, math.huge, -1}
    local _, up = x:sort()
    assert.same({2, 4, 0, 3, 1}, up:tolist())
    local _, down = x:sort(0, true)
    assert.same({1, 3, 0, 4, 2}, down:tolist())
    local _, top = x:topk(2)
    assert.same({1, 3}, top:tolist())
  end)

  it("keeps the order of equal values, zeros of both signs among them", function()
    local values = {}
    for k = 1, 300 do values[k] = k % 3 == 0 and neg0 or k % 3 == 1 and 0 or 1 end
    for _, dtype in ipairs {"float32", "float64", "float16", "int64"} do
      local _, places = accelhost.tensor(values, {dtype = dtype}):sort()
      places = places:tolist()
      for k = 2, 200 do assert.is_true(places[k] > places[k - 1]) end
      for k = 202, 300 do assert.is_true(places[k] > places[k - 1]) end
    end
  end)

  it("orders numbers of every size and sign", function()
    local values = {}
    for k = 1, 1000 do values[k] = ((k * 7919) % 1000 - 500) * 10 ^ (k % 5) end
    for _, dtype in ipairs {"int32", "int64", "float32", "float64"} do
      local sorted, places = accelhost.tensor(values, {dtype = dtype}):sort()
      sorted, places = sorted:tolist(), places:tolist()
      for k = 1, 1000 do
        assert.equal(values[places[k] + 1], sorted[k])
        assert.is_true(k == 1 or sorted[k - 1] <= sorted[k])
      end
    end
  end)

  it("accepts 0-dim and empty tensors", function()
    local value, place = accelhost.tensor(3):sort()
    assert.equal(3, value:item())
    assert.equal(0, place:item())
    local values, places = accelhost.zeros(2, 0):sort()
    assert.same({2, 0}, values:shape())
    assert.same({2, 0}, places:shape())
    assert.same({0, 3}, (accelhost.zeros(4, 3):topk(0, 0)):shape())
  end)
end)

describe("a 0-dim whole number as a position", function()
  it("selects, and returns a view", function()
    local x = accelhost.zeros(3, 2)
    x[ints(1)]:add_(1)
    x[{ {}, ints(0, "int32") }]:add_(1)
    assert.same({{1, 0}, {2, 1}, {1, 0}}, x:tolist())
    check.raises("index: 3 is out of range for dim 0 of size 3", function() return x[ints(3)] end)
  end)
end)

describe("index_add of bools", function()
  it("is an or, for every alpha but 0", function()
    local x, at = accelhost.tensor {true, false}, accelhost.tensor({0, 1}, {dtype = "int64"})
    local more = accelhost.tensor {true, true}
    assert.same({true, true}, x:index_add(0, at, more, {alpha = -1}):tolist())
    assert.same({true, false}, x:index_add(0, at, more, {alpha = 0}):tolist())
  end)
end)

describe("unique", function()
  it("keeps every nan, as none equals another", function()
    local nan = 0 / 0
    for _, dtype in ipairs {"float32", "float64", "float16"} do
      local x = accelhost.tensor({nan, 1, nan, 1}, {dtype = dtype})
      local values, places, counts = x:unique {return_inverse = true, return_counts = true}
      check.near({1, nan, nan}, values:tolist(), 0)
      assert.same({1, 0, 2, 0}, places:tolist())
      assert.same({2, 1, 1}, counts:tolist())
    end
    local whole = accelhost.tensor({2 ^ 31 - 1, 2 ^ 31 - 1}, {dtype = "int32"})
    assert.same({2 ^ 31 - 1}, whole:unique():tolist())
  end)
end)

describe("topk", function()
  it("returns a 0-dim tensor itself, whatever k", function()
    for k = 0, 1 do
      local values, places = accelhost.tensor(5):topk(k)
      assert.same({5, 0}, {values:item(), places:item()})
    end
  end)
end)

describe("sums over an index", function()
  it("are the same bits for any number of threads", function()
    local values, index = {}, {}
    for k = 1, 40000 do
      values[k] = math.sin(k) * 10 ^ (k % 7 - 3)
      index[k] = (k * 31) % 17
    end
    local x, at = accelhost.tensor(values):reshape(1000, 40), ints(index)
    local threads = accelhost.get_num_threads()
    local function sums()
      return accelhost.zeros(17, 40):index_add(0, at:narrow(0, 0, 1000), x):tolist(),
        accelhost.zeros(1000, 40):scatter_add(1, at:reshape(1000, 40), x):tolist()
    end
    accelhost.set_num_threads(1)
    local rows, lines = sums()
    accelhost.set_num_threads(2)
    local rows_again, lines_again = sums()
    accelhost.set_num_threads(threads)
    assert.same(rows, rows_again)
    assert.same(lines, lines_again)
  end)
end)

describe("src larger than its index", function()
  it("gets zeros where it was not read", function()
    local x = accelhost.zeros({2, 3}, {dtype = "float64"}):requires_grad_()
    local src = accelhost.ones({3, 4}, {dtype = "float64"}):requires_grad_()
    gradcheck.gradcheck(function(a, b) return a:scatter_add(1, ints {{0, 2}}, b) end, {x, src})
    gradcheck.gradgradcheck(function(a, b) return a:scatter(1, ints {{0, 2}}, b) end, {x, src})
  end)
end)

describe("a wrong index", function()
  local x = accelhost.zeros(10, 4)
  local fails = check.raises

  it("is named with its position and range", function()
    fails("index_select: index 12 at position 3 is outside 0..9 (dim 0 of (10, 4))", x.index_select, x, 0,
      ints {0, 1, 2, 12})
    fails("index_select: index -1 at position 0 is outside 0..9", x.index_select, x, 0, ints {-1})
    fails("gather: index 4 at position 1 is outside 0..3 (dim 1 of (10, 4))", x.gather, x, 1, ints {{0, 4}})
    fails("scatter_add: index 10 at position 0 is outside 0..9", x.scatter_add, x, 0, ints {{10}}, x)
    fails("index_add: index 10 at position 0 is outside 0..9", x.index_add, x, 0, ints {10}, x:narrow(0, 0, 1))
    fails("index: index -11 at position 1 is outside -10..9 (dim 0 of (10, 4))", C.index, x, ints {9, -11})
  end)

  it("is found wherever it is in a long index, on any number of threads", function()
    local on_cpu = {device = "cpu"}
    local vector = accelhost.arange(100000, on_cpu):float()
    local matrix = accelhost.arange(300000, on_cpu):float():view(1000, 300)
    for _, threads in ipairs {1, 2} do
      local restore = accelhost.get_num_threads()
      accelhost.set_num_threads(threads)
      for _, at in ipairs {0, 511, 512, 70001, 99999} do
        for _, wrong in ipairs {-1, 100000, -2 ^ 62, 2 ^ 62} do
          local index = accelhost.arange(100000, on_cpu):flip({0})
          index[at] = wrong
          local message = ("index %d at position %d is outside 0..99999 (dim 0 of (100000,))"):format(wrong, at)
          fails("index_select: " .. message, vector.index_select, vector, 0, index)
          fails("gather: " .. message, vector.gather, vector, 0, index)
          fails("scatter_add: " .. message, vector.scatter_add, vector, 0, index, vector)
          fails("scatter: " .. message, vector.scatter, vector, 0, index, vector)
          fails("scatter: " .. message, vector.scatter, vector, 0, index, 5)
        end
      end
      for dim, size in ipairs {1000, 300} do
        local index = accelhost.zeros({1000, 300}, {dtype = "int64", device = "cpu"})
        index[900][299], index[999][0] = size, -1
        fails(("gather: index %d at position 270299 is outside 0..%d (dim %d of (1000, 300))"):format(
          size, size - 1, dim - 1), matrix.gather, matrix, dim - 1, index)
        fails(("scatter: index %d at position 270299 is outside 0..%d (dim %d of (1000, 300))"):format(
          size, size - 1, dim - 1), matrix.scatter, matrix, dim - 1, index, matrix)
      end
      accelhost.set_num_threads(restore)
    end
  end)

  it("does not change the tensor", function()
    local y = accelhost.zeros(3)
    fails("index 5 at position 1 is outside 0..2", function() y:index_fill_(0, ints {0, 5}, 1) end)
    fails("index 5 at position 1 is outside 0..2", function() y:scatter_(0, ints {1, 5}, 1) end)
    assert.same({0, 0, 0}, y:tolist())
    fails("scatter: index 0 at position 0 is outside 0..-1", function()
      accelhost.zeros(0):scatter(0, ints {0}, 1)
    end)
  end)

  it("is refused by dtype and shape", function()
    fails("index_select: index must be int64 or int32, got float32", x.index_select, x, 0, accelhost.zeros(2))
    fails("index_select: index must have at most one dim, got (1, 2)", x.index_select, x, 0, ints {{0, 1}})
    fails("gather: index (11, 1) does not fit (10, 4) outside dim 1", x.gather, x, 1, ints({0}):expand(11, 1))
    fails("scatter: index (2, 1) is larger than src (1, 1)", x.scatter, x, 1, ints {{0}, {0}}, accelhost.zeros(1, 1))
    fails("scatter_add: src is float64 but input is float32", x.scatter_add, x, 1, ints {{0}}, x:double())
    fails("index_add: source (10, 3) does not fit 2 indices on dim 1 of (10, 4)", x.index_add, x, 1, ints {0, 1},
      accelhost.zeros(10, 3))
    fails("index: mask (3,) does not match the dims of (10, 4) from dim 0 on", C.index, x,
      accelhost.tensor {true, false, true})
    fails("index: an index must be int64, int32 or bool, got float32", C.index, x, accelhost.zeros(2))
    fails("index_put: values (3,) do not broadcast to (2, 4)", x.index_put, x, ints {0, 1}, accelhost.zeros(3))
    fails("masked_select: mask must be bool, got float32", x.masked_select, x, x)
    fails("masked_scatter: the mask wants 40 values, source (2,) has 2", x.masked_scatter, x, x:eq(0),
      accelhost.zeros(2))
    fails("topk: k is 5, but dim 1 of (10, 4) has 4 entries", x.topk, x, 5)
    fails("bincount: expected values of at least 0, got -2 at position 1", accelhost.bincount, ints {1, -2})
    fails("take_along_dim: indices (2,) must have as many dims as input (10, 4)", x.take_along_dim, x, ints {0, 1}, 1)
  end)
end)

describe("selection in long lines", function()
  local function lines(dtype)
    accelhost.manual_seed(3)
    local x = (accelhost.randn(3, 3000) * 40):round():to(dtype)
    if x:is_floating_point() then x[{1, 7}], x[{2, 5}] = 0 / 0, -1 / 0 end
    return x
  end

  for _, dtype in ipairs {"float32", "float64", "float16", "int64", "int32"} do
    it("finds the entry of a rank where a stable sort moves it, in " .. dtype, function()
      local x = lines(dtype)
      local order = x:argsort(1, false, true)
      for _, k in ipairs {1, 2, 90, 1500, 2999, 3000} do
        local value, index = x:kthvalue(k, 1)
        assert.same(order:select(1, k - 1):tolist(), index:tolist())
        assert.is_true(value:allclose(x:gather(1, index:unsqueeze(1)):squeeze(1), {equal_nan = true}))
      end
    end)

    it("selects the k smallest and largest as a sort does, in " .. dtype, function()
      local x = lines(dtype)
      for _, largest in ipairs {true, false} do
        local _, index = x:topk(100, 1, largest)
        assert.same(x:argsort(1, largest, true):narrow(1, 0, 100):tolist(), index:tolist())
      end
    end)
  end

  it("finds quantiles, few or many of them", function()
    local x = lines "float32":narrow(0, 0, 1):squeeze(0)
    local sorted = x:sort()
    local q = accelhost.linspace(0, 1, 7)
    local all = x:quantile(q)
    for i = 0, 6 do
      local rank = q[i]:item() * 2999
      local low, high = sorted[math.floor(rank)]:item(), sorted[math.ceil(rank)]:item()
      assert.near(low + (rank - math.floor(rank)) * (high - low), all[i]:item(), 1e-3)
      assert.near(all[i]:item(), x:quantile(q[i]):item(), 0)
    end
  end)

  it("has gradients at the entries that it selects", function()
    local x = accelhost.randn(200):requires_grad_()
    x:median():backward()
    assert.equal(1, x.grad:sum():item())
    assert.equal(x:median():item(), x:detach()[x.grad:argmax():item()]:item())
  end)
end)
