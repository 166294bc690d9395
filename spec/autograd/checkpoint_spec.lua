local accelhost = require "accelhost"
local autograd = accelhost.autograd
local checkpoint = autograd.checkpoint

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true, dtype = "float64"})
end

describe("checkpoint", function()
  it("gives the gradients of the plain run, inputs and captured tensors alike", function()
    local w, x = leaf {3}, leaf {2}
    local function fn(a) return (a * w):tanh() end
    checkpoint(fn, x):sum():backward()
    local gx, gw = x.grad:clone(), w.grad:clone()
    x.grad, w.grad = nil, nil
    fn(x):sum():backward()
    assert.same(x.grad:tolist(), gx:tolist())
    assert.same(w.grad:tolist(), gw:tolist())
  end)

  it("repeats the same random numbers, and leaves the generator where it was", function()
    accelhost.manual_seed(3)
    local x = accelhost.ones({64}, {requires_grad = true})
    local y = checkpoint(function(a) return accelhost.nn.functional.dropout(a, 0.5) end, x)
    local after = accelhost.rand(1):item()
    accelhost.manual_seed(3)
    accelhost.nn.functional.dropout(x, 0.5)
    y:sum():backward()
    assert.same(y:detach():tolist(), x.grad:tolist())
    assert.equal(after, accelhost.rand(1):item())
  end)

  it("has second derivatives", function()
    local w, x = leaf {3}, leaf {2}
    local function fn(a) return a * a * a * w end
    local g = autograd.grad(checkpoint(fn, x):sum(), {x}, {create_graph = true})[1]
    assert.same({36}, g:tolist())
    local second = autograd.grad(g:sum(), {x, w})
    assert.same({36, 12}, {second[1]:item(), second[2]:item()})
  end)

  it("leaves .grad alone under autograd.grad, and counts what it uses as used", function()
    local w, x = leaf {3}, leaf {2}
    local y = checkpoint(function(a) return a * w end, x):sum()
    local g = autograd.grad(y, {x, w})
    assert.same({3, 2}, {g[1]:item(), g[2]:item()})
    assert.is_nil(x.grad)
    assert.is_nil(w.grad)
  end)

  it("reaches tensors that fn only captures when no argument wants a gradient", function()
    local w = leaf {3}
    local h = w * 2
    checkpoint(function(a) return a * h end, accelhost.tensor({5}, {dtype = "float64"})):sum():backward()
    assert.same({10}, w.grad:tolist())
  end)

  it("nests", function()
    local w, x = leaf {3}, leaf {2}
    local function inner(a) return (a * w):sin() end
    local function outer(a) return checkpoint(inner, a * 2) * a end
    local function gradients(run)
      local g = autograd.grad(run():sum(), {x, w}, {create_graph = true})
      local second = autograd.grad(g[1]:sum() + g[2]:sum(), {x, w})
      return {g[1]:item(), g[2]:item(), second[1]:item(), second[2]:item()}
    end
    assert.same(gradients(function() return (x * 2 * w):sin() * x end),
      gradients(function() return checkpoint(outer, x) end))
  end)

  it("takes several arguments, one used twice, and gives several results", function()
    local x, y = leaf {2}, leaf {5}
    local function fn(a, b, scale) return a * b * scale, "text", b * b, a end
    local p, text, q, same = checkpoint(fn, x, y, 10)
    assert.equal("text", text)
    assert.equal(x, same);
    (p + q):sum():backward()
    assert.same({50, 30}, {x.grad:item(), y.grad:item()})
    x.grad, y.grad = nil, nil
    checkpoint(fn, x, x, 1):sum():backward()
    assert.same({4}, x.grad:tolist())
  end)

  it("may be run backward twice with retain_graph", function()
    local x = leaf {2}
    local y = checkpoint(function(a) return a * a end, x):sum()
    y:backward {retain_graph = true}
    y:backward()
    assert.same({8}, x.grad:tolist())
    assert.error_matches(function() y:backward() end, "retain_graph = true")
  end)

  it("calls the hooks of a leaf once", function()
    local w, calls = leaf {3}, 0
    w:register_hook(function() calls = calls + 1 end)
    local a = checkpoint(function(x) return x * w end, leaf {2})
    local b = checkpoint(function(x) return x * w end, leaf {2});
    (a + b):sum():backward()
    assert.equal(1, calls)
    assert.same({4}, w.grad:tolist())
  end)

  it("names an argument that was changed in place meanwhile", function()
    local x = leaf {2}
    local h = x * 1
    local y = checkpoint(function(a) return a * 3 end, h):sum()
    h:add_(1)
    local _, message = pcall(function() y:backward() end)
    assert.matches("checkpoint_spec%.lua:%d+: backward of checkpoint: argument 1 was changed in place", message)
    local mask = accelhost.ones({1}, {dtype = "float64"})
    local z = checkpoint(function(a, m) return a * m end, x, mask):sum()
    mask:zero_()
    assert.error_matches(function() z:backward() end, "checkpoint: argument 2 was changed in place")
  end)

  it("passes an error of the second run on and keeps the random stream", function()
    local first, x = true, leaf {2}
    local y = checkpoint(function(a)
      accelhost.rand(3)
      if not first then error("only once") end
      first = false
      return a * a
    end, x):sum()
    accelhost.manual_seed(1)
    local wanted = accelhost.rand(1):item()
    accelhost.manual_seed(1)
    assert.error_matches(function() y:backward() end, "only once")
    assert.equal(wanted, accelhost.rand(1):item())
  end)

  it("notices a second run with other results", function()
    local runs, x = 0, leaf {2}
    local y = checkpoint(function(a)
      runs = runs + 1
      return runs == 1 and a * a or accelhost.ones({3}, {dtype = "float64"}) * a
    end, x):sum()
    assert.error_matches(function() y:backward() end, "checkpoint: result 1 of the second run")
  end)

  it("keeps nothing of what fn made in between", function()
    local x = accelhost.ones({1024}, {requires_grad = true})
    local function deep(a)
      for _ = 1, 32 do a = a:sin() end
      return a
    end
    collectgarbage()
    local before = accelhost.memory_stats().live
    local y = checkpoint(deep, x)
    collectgarbage()
    local held = accelhost.memory_stats().live - before
    assert.is_true(held <= 3 * 4096, ("holds %d bytes"):format(held))
    y:sum():backward()
  end)
end)
