local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"

local F = accelhost.nn.functional

local function indices(values) return accelhost.tensor(values, {dtype = "int64"}) end

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

  it("gives the same gradient bits for any number of threads", function()
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

  it("keeps halves as they are", function()
    local w = accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "bfloat16"}):requires_grad_()
    local rows = F.embedding(indices {1, 1}, w)
    assert.equal("bfloat16", rows.dtype)
    rows:sum():backward()
    assert.same({{0, 0}, {2, 2}}, w.grad:to("float32"):tolist())
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
