local accelhost = require "accelhost"

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true})
end

describe("t.data", function()
  it("may be written between forward and backward, which then sees the new values", function()
    local x = leaf {1, 2}
    local y = x * x
    local loss = (y * y):sum()
    y.data:mul_(3)
    loss:backward()
    assert.same({2 * 3 * 2, 2 * 12 * 4}, x.grad:tolist())
  end)

  it("shares memory and counts its writes apart, views of it with it", function()
    local x = leaf {1, 2}
    local data = x.data
    local view = data:view(2, 1)
    view:add_(1)
    assert.same({2, 3}, x:tolist())
    assert.same({0, 1, 1}, {x._version, data._version, view._version})
    x.data:add_(1)
    assert.same({0, 1}, {x._version, data._version})
  end)

  it("detach counts with its source", function()
    local x = leaf {1, 2}
    local y = x * 1
    local loss = (y * y):sum()
    y:detach():add_(1)
    assert.error_matches(function() loss:backward() end, "changed in place")
  end)

  it("outlives its source", function()
    local data = leaf({1, 2}).data
    collectgarbage()
    data:add_(1)
    assert.same({2, 3}, data:tolist())
  end)
end)

describe("a view", function()
  it("that is an operand of a write into its own memory sees the base's history afterwards", function()
    local x = leaf {1, 2, 3}
    local h = x * 1
    local operand, target = h:unsqueeze(0), h:unsqueeze(0)
    target:sub_(operand)
    target:copy_(operand:clone())
    h:sum():backward()
    assert.same({0, 0, 0}, x.grad:tolist())
  end)
end)

describe("a view made under no_grad", function()
  local function view_of(t)
    return accelhost.no_grad(function() return t:view(2, 1) end)
  end

  it("of a leaf that requires grad cannot be changed in place with gradients on", function()
    local w = leaf {1, 2}
    local view = view_of(w)
    assert.error_matches(function() view:add_(1) end, "add_: a view made under no_grad, or detached, cannot")
    assert.error_matches(function() view:view(2):fill_(1) end, "fill_: a view made under no_grad")
    assert.error_matches(function() view[0] = 5 end, "a view made under no_grad")
    assert.same({1, 2}, w:tolist())
  end)

  it("of a result, or copying a value with a history, neither", function()
    local w = leaf {1, 2}
    local result = view_of(w * 2)
    assert.error_matches(function() result:mul_(2) end, "mul_: a view made under no_grad")
    local buffer = accelhost.zeros(2)
    local plain = view_of(buffer)
    assert.error_matches(function() plain:copy_(w:view(2, 1)) end, "copy_: a view made under no_grad")
    plain:add_(1)
    assert.same({1, 1}, buffer:tolist())
  end)

  it("may be changed under no_grad, or when it was detached", function()
    local w = leaf {1, 2}
    local view = view_of(w)
    accelhost.no_grad(function() view:add_(1) end)
    view:detach():add_(1)
    w.data:view(2, 1):add_(1)
    assert.same({4, 5}, w:tolist())
  end)
end)
