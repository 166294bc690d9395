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

describe("a large result of gelu or layer norm that a product saves", function()
  local C = require "accelhost._C"
  local F = accelhost.nn.functional

  -- 4.5 MiB, above the size from which results are computed again
  local rows, width = 1152, 1024
  local function make(device)
    local x = accelhost.randn({rows, width}, {device = device}):requires_grad_()
    local weight = accelhost.randn({8, width}, {device = device}):requires_grad_()
    local shift = accelhost.randn({width}, {device = device}):requires_grad_()
    return x, weight, shift
  end

  local ops = {
    gelu = function(x) return F.gelu(x) end,
    ["gelu by tanh"] = function(x) return F.gelu(x, {approximate = "tanh"}) end,
    ["layer norm"] = function(x, shift) return F.layer_norm(x, {width}, nil, shift) end,
  }
  for name, op in pairs(ops) do
    it("has the gradients of one that is held: " .. name, function()
      accelhost.manual_seed(3)
      local x, weight, shift = make()
      F.linear(op(x, shift), weight):square():sum():backward()
      local got = {x.grad, weight.grad}
      x.grad, weight.grad = nil, nil
      -- A view is held itself.
      F.linear(op(x, shift):view(1, rows, width), weight):square():sum():backward()
      assert.is_true(accelhost.equal(x.grad, got[1]))
      assert.is_true(accelhost.equal(weight.grad, got[2]))
    end)
  end

  it("has second derivatives", function()
    accelhost.manual_seed(4)
    local x, weight = make()
    local function second(held)
      local y = F.gelu(x)
      local grads = accelhost.autograd.grad(F.linear(held and y:view(1, rows, width) or y, weight):square():sum(),
        {weight}, {create_graph = true})
      return accelhost.autograd.grad(grads[1]:square():sum(), {x})[1]
    end
    local wanted, got = second(true), second(false)
    assert.is_true(((wanted - got):abs():max() / wanted:abs():max()):item() < 1e-5)
  end)

  it("is not in memory between forward and backward", function()
    if accelhost.get_default_device() ~= "cpu" then return end
    local x, weight = make()
    collectgarbage()
    local before = C.system.memory_stats().live
    local loss = F.linear(F.gelu(x), weight):sum()
    collectgarbage()
    assert.is_true(C.system.memory_stats().live - before < 2 ^ 20)
    loss:backward()
    assert.is_true(weight.grad:abs():sum():item() > 0)
  end)

  it("is held as it is where it was changed after it was made", function()
    local x, weight = make()
    local y = F.gelu(x)
    y:mul_(2)
    F.linear(y, weight):sum():backward()
    local wanted = (F.gelu(x:detach()) * 2):sum(0)
    assert.is_true((weight.grad[3] - wanted):abs():max():item() < 1e-2)
  end)

  it("is an error where the op's input was changed since", function()
    if accelhost.get_default_device() ~= "cpu" then return end
    local input, weight = make()
    local x = input * 1
    local loss = F.linear(F.gelu(x), weight):sum()
    accelhost.no_grad(function() x:add_(1) end)
    assert.has_error(function() loss:backward() end, "backward of linear: argument 1 of gelu, whose result it reads, "
      .. "was changed in place since (version 0 then, 1 now)")
  end)
end)
