local accelhost = require "accelhost"
local check = require "spec.support.check"
local autograd, nn = accelhost.autograd, accelhost.nn
local utils = accelhost.utils.checkpoint
local checkpoint = utils.checkpoint

local function leaf(data)
  return accelhost.tensor(data, {requires_grad = true, dtype = "float64"})
end

describe("checkpoint", function()
  it("computes the gradients of the plain run, inputs and captured tensors alike", function()
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

  it("writes no .grad under autograd.grad, and counts its inputs as used", function()
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

  it("accepts several arguments, one used twice, and returns several results", function()
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

  it("keeps no intermediate tensor of fn", function()
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

describe("the options of checkpoint", function()
  it("are in a table after the arguments; a table without their names is an argument", function()
    local x = leaf {2}
    local function fn(a, more, ...) return a * (more and more.factor or 3), select("#", ...) end
    assert.same({6, 0}, {(checkpoint(fn, x, {use_reentrant = false})):item(), select(2, checkpoint(fn, x))})
    assert.equal(10, (checkpoint(fn, x, {factor = 5})):item())
    assert.equal(10, (checkpoint(fn, x, {factor = 5}, {preserve_rng_state = true})):item())
  end)

  it("do not restore the random stream for the second run with preserve_rng_state = false", function()
    local x = accelhost.ones({64}, {requires_grad = true})
    local y = checkpoint(function(a) return nn.functional.dropout(a, 0.5) end, x, {preserve_rng_state = false})
    accelhost.manual_seed(3)
    y:sum():backward()
    local after = accelhost.rand(1):item()
    accelhost.manual_seed(3)
    assert.same(nn.functional.dropout(accelhost.ones(64), 0.5):tolist(), x.grad:tolist())
    assert.equal(accelhost.rand(1):item(), after)
  end)

  it("call both runs by the functions of context_fn", function()
    local said, x = {}, leaf {2}
    local function around(name)
      return function(fn, ...)
        said[#said + 1] = name
        return fn(...)
      end
    end
    local y = checkpoint(function(a) return a * a end, x, {context_fn = function()
      return around "first", around "second"
    end})
    assert.same({"first"}, said)
    y:sum():backward()
    assert.same({"first", "second"}, said)
    assert.same({4}, x.grad:tolist())
  end)

  it("are refused where they would change the results, with the reason, and where they are unknown", function()
    local x = leaf {2}
    local function fn(a) return a end
    check.raises("checkpoint: use_reentrant: only false is supported: the graph is kept whole", function()
      checkpoint(fn, x, {use_reentrant = true})
    end)
    check.raises("checkpoint: determinism_check: only default is supported", function()
      checkpoint(fn, x, {determinism_check = "none"})
    end)
    check.raises("checkpoint: unknown option 'preserve_rng'", function()
      checkpoint(fn, x, {use_reentrant = false, preserve_rng = true})
    end)
    check.raises("checkpoint: preserve_rng_state: expected", function() checkpoint(fn, x, {preserve_rng_state = 1}) end)
    check.raises("checkpoint: fn: expected", function() checkpoint(nil, x) end)
    check.raises("accelhost.utils.checkpoint.checkpoint", function() return autograd.checkpoint end)
  end)
end)

describe("checkpoint_sequential", function()
  local function layers()
    accelhost.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.3),
      nn.Linear(8, 2))
  end

  local function gradients(run)
    local net = layers()
    accelhost.manual_seed(2)
    local x = accelhost.randn({4, 3}, {requires_grad = true})
    run(net, x):pow(2):sum():backward()
    local all = {x.grad:tolist()}
    for i, parameter in ipairs(net:parameters()) do all[i + 1] = parameter.grad:tolist() end
    return all
  end

  it("has the gradients of the plain call to the bit, with dropout, in any number of segments", function()
    local plain = gradients(function(net, x) return net(x) end)
    for segments = 1, 7 do
      assert.same(plain, gradients(function(net, x)
        return utils.checkpoint_sequential(net, segments, x, {use_reentrant = false})
      end))
    end
    assert.same(plain, gradients(function(net, x)
      local list = {}
      for i = 1, #net do list[i] = net[i] end
      return utils.checkpoint_sequential(list, 3, x)
    end))
  end)

  it("runs the last segment once and the others twice", function()
    local runs, x = {0, 0, 0, 0, 0}, leaf {2}
    local list = {}
    for i = 1, 5 do
      list[i] = function(a)
        runs[i] = runs[i] + 1
        return a * 2
      end
    end
    utils.checkpoint_sequential(list, 2, x):sum():backward()
    assert.same({2, 2, 1, 1, 1}, runs)
    assert.same({32}, x.grad:tolist())
  end)

  it("reports the expected arguments", function()
    check.raises("checkpoint_sequential: functions: expected a Sequential or a list of functions, got a table",
      function() utils.checkpoint_sequential({}, 1, leaf {1}) end)
    check.raises("checkpoint_sequential: segments: expected 1 to 7, the number of functions, got 8",
      function() utils.checkpoint_sequential(layers(), 8, leaf {1}) end)
    check.raises("checkpoint_sequential: segments: expected", function()
      utils.checkpoint_sequential(layers(), 0, leaf {1})
    end)
  end)
end)
