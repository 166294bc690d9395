local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional

local indices = tensors.long

describe("embedding", function()
  it("picks rows, also of a transposed table", function()
    local table_ = accelhost.tensor {{1, 2}, {3, 4}, {5, 6}}
    assert.same({{{5, 6}, {1, 2}}}, F.embedding(indices {{2, 0}}, table_):tolist())
    assert.same({{2, 4, 6}}, F.embedding(indices {1}, table_:t()):tolist())
    assert.same({5, 6}, F.embedding(indices(2), table_):tolist())
    assert.same({0, 2}, F.embedding(indices {}, table_):shape())
  end)

  it("sums the gradients of a row's uses, and none into the padding row", function()
    local w = accelhost.zeros(3, 2):requires_grad_()
    F.embedding(indices {0, 2, 0, 1}, w, 1):sum():backward()
    assert.same({{2, 2}, {0, 0}, {1, 1}}, w.grad:tolist())
    w.grad = nil
    F.embedding(indices {0, 2}, w, -1):sum():backward()
    assert.same({{1, 1}, {0, 0}, {0, 0}}, w.grad:tolist())
  end)

  it("has first and second derivatives", function()
    local w = accelhost.randn({4, 2}, {dtype = "float64"}):requires_grad_()
    for _, padding in ipairs {false, 1} do
      local function rows(t) return F.embedding(indices {{0, 1}, {3, 0}}, t * t, padding or nil) end
      -- The padding row has no gradient, though the result depends on it.
      if not padding then gradcheck.gradcheck(rows, {w}) end
      gradcheck.gradgradcheck(rows, {w})
    end
  end)

  it("computes the same gradient bits for any number of threads", function()
    accelhost.manual_seed(1)
    local index, g = accelhost.randint(0, 7, {500}), accelhost.randn {500, 90}
    local threads = accelhost.get_num_threads()
    local function gradient(count)
      accelhost.set_num_threads(count)
      local w = accelhost.zeros(7, 90):requires_grad_()
      F.embedding(index, w):backward(g)
      return w.grad:reshape(-1):tolist()
    end
    local one, three = gradient(1), gradient(3)
    accelhost.set_num_threads(threads)
    assert.same(one, three)
  end)

  it("does not convert halves", function()
    local w = accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "bfloat16"}):requires_grad_()
    local rows = F.embedding(indices {1, 1}, w)
    assert.equal("bfloat16", rows.dtype)
    rows:sum():backward()
    assert.same({{0, 0}, {2, 2}}, w.grad:to("float32"):tolist())
  end)

  it("sums the gradients of halves in float32, in the order of their uses, and rounds once", function()
    accelhost.manual_seed(2)
    local threads = accelhost.get_num_threads()
    local index = accelhost.cat({accelhost.randint(0, 40, {700}), indices {41, 41, 42}}, 0)
    for _, dtype in ipairs {"bfloat16", "float16"} do
      local g = accelhost.randn(703, 51):to(dtype)
      local function gradient(of)
        local w = accelhost.zeros(44, 51):to(of):requires_grad_()
        F.embedding(index, w, 42):backward(g:to(of))
        return w.grad
      end
      local wanted = gradient("float32"):to(dtype)
      for count = 1, 3 do
        accelhost.set_num_threads(count)
        assert.is_true(accelhost.equal(wanted, gradient(dtype)), dtype)
      end
      accelhost.set_num_threads(threads)
      assert.is_true(wanted:narrow(0, 42, 2):eq(0):all():item())
    end
  end)

  it("names an index that is no row", function()
    check.raises("embedding: index 9 at position 2 is outside 0..3", function()
      F.embedding(indices {0, 1, 9}, accelhost.zeros(4, 2))
    end)
    check.raises("embedding: expected integer indices as input, got float32", function()
      F.embedding(accelhost.zeros(4, 2), indices {0})
    end)
  end)
end)

describe("embedding_bag", function()
  local function bag_by_hand(weight, list, scales)
    local sum = weight:new_zeros({weight:size(1)})
    for k, row in ipairs(list) do sum = sum + weight[row] * (scales and scales[k] or 1) end
    return sum
  end

  it("adds up rows of every float dtype, strided tables too", function()
    local numbers = accelhost.tensor({{2, 0, 2}, {1, 3, 0}}, {dtype = "int64"})
    for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16"} do
      local weight = accelhost.randn(5, 4):t():to(dtype):t()
      local sums = F.embedding_bag(numbers, weight:t():contiguous():t(), {mode = "sum"})
      assert.equal(dtype, sums.dtype)
      check.near(check.flat(bag_by_hand(weight:double(), {2, 0, 2})), sums[0], dtype == "float64" and 1e-15
        or dtype == "float32" and 1e-6 or 0.05)
    end
    local bytes = F.embedding_bag(numbers:to "uint8", accelhost.ones(4, 2), {mode = "sum"})
    assert.same({{3, 3}, {3, 3}}, bytes:tolist())
  end)

  it("adds up rows of any width in their order, with any number of threads, on the CPU", function()
    accelhost.manual_seed(2)
    local threads, on_cpu = accelhost.get_num_threads(), {device = "cpu"}
    for _, dtype in ipairs {"float32", "float64"} do
      for _, width in ipairs {1, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 104, 127, 128, 129, 141, 300} do
        local weight = accelhost.randn({20, width}, on_cpu):to(dtype)
        local numbers = accelhost.randint(0, 20, {40, 6}, on_cpu)
        local rows, expected = weight:index_select(0, numbers:view(-1)):view(40, 6, width), nil
        for k = 0, 5 do expected = expected and expected + rows:select(1, k) or rows:select(1, k) end
        for count = 1, 2 do
          accelhost.set_num_threads(count)
          assert.is_true(accelhost.equal(expected, F.embedding_bag(numbers, weight, {mode = "sum"})))
          assert.is_true(accelhost.equal(expected / 6, F.embedding_bag(numbers, weight)))
        end
        accelhost.set_num_threads(threads)
      end
    end
  end)

  it("of bfloat16 are those of float32, rounded once, of any width, with factors and padding", function()
    accelhost.manual_seed(3)
    local on_cpu = {device = "cpu"}
    local numbers = accelhost.randint(0, 20, {40, 30}, on_cpu)
    local factors = accelhost.rand({40, 30}, on_cpu):to "bfloat16"
    for _, width in ipairs {1, 2, 7, 15, 16, 17, 33, 64, 65, 100, 129, 141, 300} do
      local weight = accelhost.randn({20, width}, on_cpu):to "bfloat16"
      for _, scale in ipairs {false, factors} do
        for _, padding in ipairs {-1, 3} do
          local sums = F.embedding_bag(numbers, weight,
            {mode = "sum", per_sample_weights = scale or nil, padding_idx = padding})
          local wide = F.embedding_bag(numbers, weight:float(),
            {mode = "sum", per_sample_weights = scale and scale:float() or nil, padding_idx = padding})
          assert.is_true(wide:to("bfloat16"):equal(sums))
        end
      end
    end
  end)

  it("has right derivatives of both orders, of the rows and of their weights", function()
    local weight = accelhost.randn({5, 3}, {dtype = "float64"}):requires_grad_()
    local scale = accelhost.randn({7}, {dtype = "float64"}):requires_grad_()
    local numbers = accelhost.tensor({2, 0, 2, 1, 4, 4, 3}, {dtype = "int64"})
    local offsets = accelhost.tensor({0, 3, 3, 6}, {dtype = "int64"})
    local function bags(w, s)
      return F.embedding_bag(numbers, w, offsets,
        {mode = "sum", per_sample_weights = s, padding_idx = -1, include_last_offset = true})
    end
    assert.is_true(gradcheck.gradcheck(bags, {weight, scale}))
    assert.is_true(gradcheck.gradgradcheck(bags, {weight, scale}))
    local function means(w) return F.embedding_bag(numbers, w * w, offsets, {padding_idx = 0}) end
    assert.is_true(gradcheck.gradcheck(means, {weight}))
    assert.is_true(gradcheck.gradgradcheck(means, {weight}))
  end)

  it("of nothing is zeros, and refuses numbers that name no row", function()
    local weight = accelhost.ones(3, 2)
    assert.same({{0, 0}}, F.embedding_bag(accelhost.empty({1, 0}, {dtype = "int64"}), weight):tolist())
    assert.equal(0, F.embedding_bag(accelhost.empty({0, 4}, {dtype = "int64"}), weight):numel())
    check.raises("embedding: index 3 at position 1 is outside 0..2", function()
      F.embedding_bag(accelhost.tensor({{0, 3}}, {dtype = "int64"}), weight)
    end)
    check.raises("embedding_bag: per_sample_weights: expected float32 like weight, got float64", function()
      F.embedding_bag(accelhost.tensor({{0, 1}}, {dtype = "int64"}), weight, nil,
        {mode = "sum", per_sample_weights = accelhost.ones({1, 2}, {dtype = "float64"})})
    end)
  end)
end)
