local accelhost = require "accelhost"

local function grid()
  return accelhost.arange(12):view(3, 4)
end

describe("t[i]", function()
  it("counts rows from 0 and from the end", function()
    assert.same({0, 1, 2, 3}, grid()[0]:tolist())
    assert.same({8, 9, 10, 11}, grid()[-1]:tolist())
  end)

  it("names the range when outside", function()
    assert.error_matches(function() return grid()[3] end, "3 is out of range for dim 0 of size 3")
    assert.error_matches(function() return grid()[-4] end, "out of range")
  end)

  it("refuses nil and fractions", function()
    assert.error_matches(function() return grid()[0.5] end, "expected an integer")
  end)

  it("shares memory with the tensor", function()
    local t = grid()
    t[1]:fill_(7)
    assert.same({7, 7, 7, 7}, t[1]:tolist())
  end)
end)

describe("t[{...}]", function()
  it("accepts positions and half-open slices", function()
    assert.equal(6, grid()[{1, 2}]:item())
    assert.same({{1, 2}, {5, 6}}, grid()[{ {0, 2}, {1, 3} }]:tolist())
    assert.same({{3}, {7}, {11}}, grid()[{ {}, {3} }]:tolist())
    assert.same({0, 8}, grid()[{ {0, 3, 2}, 0 }]:tolist())
  end)

  it("leaves the ends of a slice open where they are nil", function()
    assert.same({{0, 2}, {4, 6}, {8, 10}}, grid()[{ {}, {0, nil, 2} }]:tolist())
    assert.same({{0, 1, 2, 3}, {4, 5, 6, 7}}, grid()[{ {nil, 2} }]:tolist())
    assert.same({{0, 1, 2, 3}, {8, 9, 10, 11}}, grid()[{ {nil, nil, 2} }]:tolist())
    local bounds = {}
    bounds[3], bounds[1] = 2, 1
    assert.same({{1, 3}, {5, 7}, {9, 11}}, grid()[{ {}, bounds }]:tolist())
    local t = grid()
    t[{ {}, {1, nil, 2} }] = 0
    assert.same({{0, 0, 2, 0}, {4, 0, 6, 0}, {8, 0, 10, 0}}, t:tolist())
  end)

  it("refuses a slice of anything but up to three integers", function()
    for _, slice in ipairs {{0, 1, 2, 3}, {from = 1}, {0, 1, step = 2}} do
      assert.error_matches(function() return grid()[{slice}] end, "index: a slice is {}, {from}, {from, to} or")
    end
    assert.error_matches(function() return grid()[{ {0.5} }] end, "index: expected an integer, got a fraction")
    assert.error_matches(function() return grid()[{ {0, "1"} }] end, "index: expected an integer, got string")
    assert.error_matches(function() return grid()[{ {0, nil, -1} }] end, "slice: step must be at least 1, got %-1")
  end)

  it("has an item for each dim at most, and names the tensor's dims and the key's items", function()
    assert.error_matches(function() return grid()[{0, 0, 0}] end,
      "index: too many positions for a tensor of 2 dims %(3 given%)")
    assert.error_matches(function() return accelhost.tensor({1, 2, 3})[{0, 1}] end,
      "index: too many positions for a tensor of 1 dim %(2 given%)")
    assert.error_matches(function() return grid()[{"...", 0, 0, 0}] end, "a tensor of 2 dims %(4 given%)")
  end)
end)

describe("accelhost.newaxis", function()
  local newaxis = accelhost.newaxis

  it("adds a dim of size 1 at its place in the key", function()
    assert.same({1, 3, 4}, grid()[newaxis]:shape())
    assert.same({3, 1}, grid()[{ {}, newaxis, 0 }]:shape())
    assert.same({3, 4, 1}, grid()[{"...", newaxis}]:shape())
    assert.same({1, 2, 1, 4, 1}, grid()[{newaxis, {0, 2}, newaxis, {}, newaxis}]:shape())
  end)

  it("is a view, and can be assigned through", function()
    local t = grid()
    t[{newaxis, 0}] = 7
    t[newaxis][{0, 1}]:fill_(8)
    assert.same({{7, 7, 7, 7}, {8, 8, 8, 8}, {8, 9, 10, 11}}, t:tolist())
  end)

  it("separates indices as in PyTorch, whose dims are then first", function()
    local i = accelhost.tensor({0, 2}, {dtype = "int64"})
    assert.same({2, 1}, grid()[{i, newaxis, i}]:shape())
    assert.same({{{0, 1, 2, 3}, {8, 9, 10, 11}}}, grid()[{newaxis, i}]:tolist())
  end)

  it("is no undefined variable: nil as a key is an error", function()
    assert.error_matches(function() return grid()[nil] end, "index: expected a position, got nil")
  end)
end)

describe("t[tensor]", function()
  it("selects by mask", function()
    assert.same({10, 11}, grid()[grid():gt(9)]:tolist())
  end)

  it("wants a mask of the tensor's shape, to read and to write: none is broadcast", function()
    local one, wide = accelhost.zeros(1), accelhost.zeros(2, 3)
    local two, narrow = accelhost.tensor {true, false}, accelhost.tensor {{true}, {false}}
    assert.error_matches(function() return one[two] end, "index: mask %(2,%) does not match the tensor %(1,%)")
    assert.error_matches(function() return wide[narrow] end, "index: mask %(2, 1%) does not match the tensor %(2, 3%)")
    assert.error_matches(function() wide[narrow] = 1 end, "index: mask %(2, 1%) does not match the tensor %(2, 3%)")
    assert.equal(0, wide:sum():item())
  end)

  it("selects rows by a mask over leading dims, and writes through one", function()
    local t = grid()
    local mask = accelhost.tensor {true, false, true}
    assert.same({{0, 1, 2, 3}, {8, 9, 10, 11}}, t[mask]:tolist())
    t[mask] = 0
    assert.same({{0, 0, 0, 0}, {4, 5, 6, 7}, {0, 0, 0, 0}}, t:tolist())
  end)

  it("selects rows by index", function()
    local rows = grid()[accelhost.tensor({2, 0}, {dtype = "int64"})]
    assert.same({{8, 9, 10, 11}, {0, 1, 2, 3}}, rows:tolist())
  end)

  it("selects columns inside a table key", function()
    local columns = grid()[{ {}, accelhost.tensor({3, 3}, {dtype = "int64"}) }]
    assert.same({{3, 3}, {7, 7}, {11, 11}}, columns:tolist())
  end)
end)

local function index(...) return accelhost.tensor({...}, {dtype = "int64"}) end

describe("t[{tensor, tensor}]", function()
  it("selects the elements at the pairs of positions", function()
    assert.same({1, 11}, grid()[{index(0, 2), index(1, -1)}]:tolist())
    assert.same({{0, 1}, {8, 9}}, grid()[{accelhost.tensor({{0}, {2}}, {dtype = "int64"}), index(0, 1)}]:tolist())
    assert.same({3, 10}, grid()[{accelhost.tensor {true, false, true}, index(3, 2)}]:tolist())
  end)

  it("moves the picked dim first when a slice is between", function()
    local t = accelhost.arange(24):view(2, 3, 4)
    assert.same({{3, 7, 11}, {12, 16, 20}}, t[{index(0, 1), {}, index(3, 0)}]:tolist())
    assert.same({{1, 6}, {13, 18}}, t[{{}, index(0, 1), index(1, 2)}]:tolist())
  end)

  it("sends the gradient back to the picked elements", function()
    local x = accelhost.zeros(2, 3, {requires_grad = true})
    x[{index(0, 1, 1), index(2, 0, 0)}]:sum():backward()
    assert.same({{0, 0, 1}, {2, 0, 0}}, x.grad:tolist())
  end)

  it("names positions outside and shapes that do not fit", function()
    assert.error_matches(function() return grid()[{index(0, 3), index(0, 0)}] end, "index 3 at position 1 is outside")
    assert.error_matches(function() return grid()[{index(0, 1), index(0, 1, 2)}] end, "do not broadcast")
    assert.error_matches(function() return grid()[{grid():gt(1), index(0)}] end, "too many positions")
  end)
end)

describe("t[{'...', i}]", function()
  it("counts from the last dim", function()
    local t = accelhost.arange(8):view(2, 2, 2)
    assert.same({{1, 3}, {5, 7}}, t[{"...", 1}]:tolist())
    assert.same({4, 6}, t[{1, "...", 0}]:tolist())
  end)

  it("may occur once", function()
    assert.error_matches(function() return grid()[{"...", 0, "..."}] end, "expected at most one")
  end)
end)

describe("assignment", function()
  it("writes through tensors in a table key", function()
    local t = accelhost.zeros(2, 3)
    t[{index(0, 1), index(2, 0)}] = accelhost.tensor {5, 6}
    t[{{}, index(1)}] = 7
    assert.same({{0, 7, 5}, {6, 7, 0}}, t:tolist())
    local turned = accelhost.zeros(3, 2):t()
    turned[{index(0, 1), index(2, 0)}] = 4
    assert.same({{0, 0, 4}, {4, 0, 0}}, turned:tolist())
  end)

  it("passes gradients to values written through index tensors", function()
    local x = accelhost.ones(2, 2, {requires_grad = true})
    local value = accelhost.ones(2, {requires_grad = true})
    local y = x * 3
    y[{index(0, 1), index(1, 1)}] = value * 2
    y:sum():backward()
    assert.same({{3, 0}, {3, 0}}, x.grad:tolist())
    assert.same({2, 2}, value.grad:tolist())
  end)

  it("writes numbers and tensors through positions and slices", function()
    local t = accelhost.zeros(2, 3)
    t[0] = 5
    t[{1, 2}] = 9
    t[{ {}, {0, 1} }] = accelhost.tensor {{1}, {2}}
    assert.same({{1, 5, 5}, {2, 0, 9}}, t:tolist())
  end)

  it("writes through a mask", function()
    local t = accelhost.tensor {1, -2, 3}
    t[t:lt(0)] = 0
    assert.same({1, 0, 3}, t:tolist())
  end)

  it("writes rows by index", function()
    local t = accelhost.zeros(3, 2)
    t[accelhost.tensor({2, 0}, {dtype = "int64"})] = accelhost.tensor {{1, 2}, {3, 4}}
    assert.same({{3, 4}, {0, 0}, {1, 2}}, t:tolist())
  end)
end)

describe("a tensor of one integer as a position", function()
  local function at(i) return accelhost.tensor(i, {dtype = "int64"}) end

  it("returns a view, as a number does", function()
    local t = grid()
    t[at(-1)]:zero_()
    t[{ {}, at(1) }]:zero_()
    assert.same({{0, 0, 2, 3}, {4, 0, 6, 7}, {0, 0, 0, 0}}, t:tolist())
    assert.error_matches(function() return t[at(3)] end, "out of range")
  end)

  it("can be written to", function()
    local t = grid()
    t[at(0)] = 7
    t[{1, at(2)}] = at(9)
    assert.same({{7, 7, 7, 7}, {4, 5, 9, 7}, {8, 9, 10, 11}}, t:tolist())
  end)
end)

describe("t[{ {} }]", function()
  it("is a new view, not the tensor", function()
    local leaf = accelhost.ones(2):requires_grad_()
    local view = leaf[{ {} }]
    assert.is_false(view.is_leaf)
    assert.is_true(rawequal(leaf, leaf) and not rawequal(leaf, view))
  end)
end)

describe("assigning a 0-dim tensor", function()
  it("converts it as a number, masks and indices included", function()
    local t, one = accelhost.zeros(1, 4), accelhost.tensor(1, {dtype = "int64"})
    t[{ {}, accelhost.tensor {true, false, true, false} }] = one
    t[{0, 1}] = one
    assert.same({{1, 1, 1, 0}}, t:tolist())
  end)

  it("removes leading dims of size 1", function()
    local t = accelhost.zeros(2, 3)
    t[{0, 1}] = accelhost.tensor {{5}}
    t[1] = accelhost.ones(1, 1, 3)
    assert.same({{0, 5, 0}, {1, 1, 1}}, t:tolist())
    assert.error_matches(function() t[1] = accelhost.ones(2, 3) end, "does not broadcast")
  end)
end)

describe("#t", function()
  it("is the size of dim 0", function()
    assert.equal(3, #grid())
  end)

  it("makes t[#t] an error, as every position counts from 0", function()
    local t = grid()
    assert.error_matches(function() return t[#t] end, "out of range")
  end)
end)
