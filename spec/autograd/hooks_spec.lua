local accelhost = require "accelhost"

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true})
end

describe("a tensor hook", function()
  it("may remove a later hook of the same tensor, which still runs this once", function()
    local log, x = {}, leaf {1}
    local y = x * 2
    local second
    y:register_hook(function()
      log[#log + 1] = "first"
      second:remove()
      collectgarbage()
    end)
    second = y:register_hook(function() log[#log + 1] = "second" end)
    y:sum():backward {retain_graph = true}
    y:sum():backward()
    assert.same({"first", "second", "first"}, log)
  end)

  it("may remove itself and all others, on a leaf too", function()
    local x, handles, calls = leaf {1}, {}, 0
    for i = 1, 40 do
      handles[i] = x:register_hook(function()
        calls = calls + 1
        for k = 1, 40 do handles[k]:remove() end
        collectgarbage()
      end)
    end
    (x * 2):sum():backward();
    (x * 2):sum():backward()
    assert.equal(40, calls)
  end)

  it("may add hooks, which run from the next backward on", function()
    local x, calls = leaf {1}, 0
    x:register_hook(function() x:register_hook(function() calls = calls + 1 end) end);
    (x * 2):sum():backward()
    assert.equal(0, calls);
    (x * 2):sum():backward()
    assert.equal(1, calls)
  end)

  it("may free its tensor", function()
    local x = leaf {1, 2}
    local y = x * 2
    local z = (y * 3):sum()
    y:retain_grad()
    y:register_hook(function()
      y:free()
      collectgarbage()
    end)
    z:backward()
    assert.same({6, 6}, x.grad:tolist())
  end)

  it("may start another backward over the same leaves", function()
    local x = leaf {3}
    local y = x * 2
    y:register_hook(function()
      accelhost.autograd.enable_grad(function() (x * x):sum():backward() end)
    end)
    y:sum():backward()
    assert.same({2 + 6}, x.grad:tolist())
  end)

  it("is removed by its handle also after an in-place write", function()
    local x, calls = leaf {1}, 0
    local y = x * 2
    local handle = y:register_hook(function() calls = calls + 1 end)
    y:mul_(3)
    handle:remove()
    handle:remove()
    y:sum():backward()
    assert.equal(0, calls)
  end)

  it("must keep shape and dtype", function()
    local x = leaf {1, 2}
    x:register_hook(function(grad) return grad:double() end)
    assert.error_matches(function() (x * 2):sum():backward() end,
      "hook: expected nil or a float32 gradient of shape %(2,%), got float64 %(2,%)")
  end)

  it("of a leaf is seen by autograd.grad", function()
    local x, u, seen = leaf {1}, leaf {2}, 0
    x:register_hook(function(grad) return grad * 10 end)
    u:register_hook(function() seen = seen + 1 end)
    assert.same({40}, accelhost.autograd.grad((x * u * 2):sum(), {x})[1]:tolist())
    assert.equal(0, seen)
    assert.is_nil(x.grad)
  end)

  it("of a result is seen by autograd.grad, whether or not more is asked for", function()
    local x = leaf {1}
    local y = x * 2
    y:register_hook(function(grad) return grad * 10 end)
    y:retain_grad()
    local z = (y * 3):sum()
    assert.same({30}, accelhost.autograd.grad(z, {y}, {retain_graph = true})[1]:tolist())
    local both = accelhost.autograd.grad(z, {y, x})
    assert.same({30, 60}, {both[1]:item(), both[2]:item()})
    assert.same({30}, y.grad:tolist())
  end)
end)

describe("retain_grad", function()
  it("keeps the gradient after all hooks, whenever they were added", function()
    local x, log = leaf {1}, {}
    local y = x * 2
    y:register_hook(function(grad)
      log[#log + 1] = "a"
      return grad * 10
    end)
    y:retain_grad()
    y:register_hook(function(grad)
      log[#log + 1] = "b"
      return grad * 10
    end)
    y:sum():backward()
    assert.same({100, 200, "a", "b"}, {y.grad:item(), x.grad:item(), log[1], log[2]})
  end)

  it("follows the tensor through in-place writes, hooks stay with the value they saw", function()
    local x = leaf {1}
    local y = x * 2
    y:retain_grad()
    y:register_hook(function(grad) return grad * 5 end)
    y:mul_(7)
    y:register_hook(function(grad) return grad * 100 end)
    y:sum():backward()
    assert.same({100, 7000}, {y.grad:item(), x.grad:item()})
  end)

  it("follows a view whose base was written", function()
    local x = leaf {1, 2}
    local y = x * 1
    local view = y:view(1, 2)
    view:retain_grad()
    y:mul_(3);
    (view * 2):sum():backward()
    assert.same({{2, 2}}, view.grad:tolist())
    assert.same({6, 6}, x.grad:tolist())
  end)

  it("wants a tensor that requires grad", function()
    assert.error_matches(function() accelhost.ones(2):retain_grad() end, "retain_grad: the tensor does not require")
  end)
end)

describe("a module hook", function()
  local nn = accelhost.nn

  it("may remove itself while the others run", function()
    for _, name in ipairs {"register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook"} do
      local layer, log, handle = nn.Linear(2, 2), {}, nil
      handle = layer[name](layer, function()
        log[#log + 1] = "a"
        handle:remove()
      end)
      layer[name](layer, function() log[#log + 1] = "b" end)
      layer(accelhost.ones({1, 2}, {requires_grad = true})):sum():backward()
      layer(accelhost.ones({1, 2}, {requires_grad = true})):sum():backward()
      assert.equal("a b b", table.concat(log, " "), name)
    end
  end)
end)
