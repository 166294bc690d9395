-- Tensors that the graph keeps for backward: as few as each rule reads, so that the rest may be written in place.
local accelhost = require "accelhost"

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true, dtype = "float64"})
end

describe("an input that its op's rule does not read may be changed in place:", function()
  local c = accelhost.tensor({4, 5}, {dtype = "float64"})
  local places = accelhost.tensor({0, 1}, {dtype = "int64"})
  -- fn(h) returns y; afterwards h is changed. `slope` is dy/dh, by elements.
  local cases = {
    {"h / 2", function(h) return h / 2 end, 0.5},
    {"h / c", function(h) return h / c end, {0.25, 0.2}},
    {"h * 2", function(h) return h * 2 end, 2},
    {"h % 2", function(h) return h % 2 end, 1},
    {"h:fmod(2)", function(h) return h:fmod(2) end, 1},
    {"addcmul with constant factors", function(h) return h:addcmul(c, c) end, 1},
    {"addcdiv with constant factors", function(h) return h:addcdiv(c, c) end, 1},
    {"lerp by a number", function(h) return h:lerp(c, 0.25) end, 0.75},
    {"index_add", function(h) return h:index_add(0, places, c) end, 1},
    {"scatter_add", function(h) return h:scatter_add(0, places, c) end, 1},
    {"h:prod() of another", function(h) return h + c:prod() end, 1},
    {"where", function(h) return accelhost.where(c:gt(4), h, c) end, {0, 1}},
  }
  for _, case in ipairs(cases) do
    it(case[1], function()
      local x = leaf {1.5, 2.5}
      local h = x * 1
      local y = case[2](h)
      h:add_(1)
      y:sum():backward()
      local slope = type(case[3]) == "table" and case[3] or {case[3], case[3]}
      assert.same(slope, x.grad:tolist())
    end)
  end

  it("the divisor's dividend, when only the divisor wants a gradient, may not", function()
    local x = leaf {2}
    local a = accelhost.tensor({3}, {dtype = "float64"})
    local y = (a / x):sum()
    a:add_(1)
    assert.error_matches(function() y:backward() end, "div: argument 1 .* was changed in place")
  end)

  it("the divisor of a number, whose one exact division keeps it, may not", function()
    local h = leaf {4} * 1
    local y = (2 / h):sum()
    h:add_(1)
    assert.error_matches(function() y:backward() end, "div: argument 2 .* was changed in place")
  end)

  it("the index of index_add, when only the input wants a gradient", function()
    local x, index = leaf {1, 2}, accelhost.tensor({0, 1}, {dtype = "int64"})
    local y = x:index_add(0, index, accelhost.ones({2}, {dtype = "float64"})):sum()
    index:zero_()
    y:backward()
    assert.same({1, 1}, x.grad:tolist())
  end)
end)

describe("a comparison in place", function()
  for _, name in ipairs {"lt_", "le_", "gt_", "ge_", "eq_", "ne_", "logical_and_", "logical_or_", "logical_xor_",
    "floor_divide_"} do
    it("forgets the history of the tensor that it overwrites: " .. name, function()
      local x = leaf {1, 2}
      local h = x * 3
      h[name](h, 1.5);
      (h + x):sum():backward()
      assert.same({1, 1}, x.grad:tolist())
    end)
  end

  it("forgets it in a view too, and only there", function()
    local x = leaf {1, 2}
    local h = x * 3
    h:narrow(0, 0, 1):logical_not_();
    (h + x):sum():backward()
    assert.same({1, 4}, x.grad:tolist())
  end)

  it("out of place has no history", function()
    assert.is_false(leaf({1}):lt(2).requires_grad)
    assert.is_false(accelhost.zeros_like(leaf {1}).requires_grad)
  end)
end)

describe("a graph that saved a view", function()
  it("does not hold itself when its result is written into the view's base", function()
    local x = leaf {1, 2, 3, 4}
    local function program()
      local base = x * 1
      local view = base:narrow(0, 0, 2)
      base:narrow(0, 2, 2):mul_(view:sin())
    end
    local function live()
      collectgarbage()
      collectgarbage()
      return accelhost.memory_stats().live
    end
    program()
    local before = live()
    for _ = 1, 50 do program() end
    assert.equal(before, live())
  end)

  it("computes second derivatives through the view as it was", function()
    local x = leaf {0.5, 2}
    local base = x * 1
    local view = base:narrow(0, 0, 1)
    local loss = (view * view * view):sum()
    local g = accelhost.autograd.grad(loss, {x}, {create_graph = true})
    g = g[1] or g
    assert.near(0.75, g:tolist()[1], 1e-6)
    g:sum():backward()
    assert.near(3, x.grad:tolist()[1], 1e-6)
  end)
end)
