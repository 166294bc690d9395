local accelhost = require "accelhost"
local check = require "spec.support.check"

local function leaf(data, options)
  options = options or {}
  options.requires_grad = true
  return accelhost.tensor(data, options)
end

describe("backward", function()
  it("accumulates into .grad over several calls", function()
    local x = leaf {2, 3};
    (x * x):sum():backward();
    (x * 3):sum():backward()
    assert.same({7, 9}, x.grad:tolist())
  end)

  it("returns the same userdata for .grad each time", function()
    local x = leaf {1}
    x:sum():backward()
    assert.equal(x.grad, x.grad)
  end)

  it("adds the gradients of all uses of a tensor", function()
    local x = leaf {3}
    local y = x * x
    local z = y + y * x
    z:sum():backward()
    assert.same({2 * 3 + 3 * 9}, x.grad:tolist())
  end)

  it("runs a chain of 100,000 nodes without overflow", function()
    local x = leaf {1}
    local y = x
    for _ = 1, 100000 do y = y + 1 end
    y:sum():backward()
    assert.same({1}, x.grad:tolist())
  end)

  it("frees an unused chain of 100,000 nodes without overflow", function()
    local y = leaf {1}
    for _ = 1, 100000 do y = y + 1 end
    y = nil -- luacheck: ignore
    collectgarbage()
  end)

  it("refuses a second pass over a graph that was not retained", function()
    local x = leaf {2}
    local y = (x * x):sum()
    y:backward()
    assert.error_matches(function() y:backward() end, "retain_graph = true")
  end)

  it("may run again through nodes that saved nothing", function()
    local x = leaf {2, 3}
    local rows = x:view(2, 1) + 1
    rows:sum():backward()
    local total = rows:sum()
    total:backward()
    total:backward()
    assert.same({3, 3}, x.grad:tolist())
    local product = (rows * rows):sum()
    product:backward()
    assert.error_matches(function() product:backward() end, "backward: the graph was already used")
  end)

  it("allows a second pass with retain_graph", function()
    local x = leaf {2}
    local y = (x * x):sum()
    y:backward {retain_graph = true}
    y:backward()
    assert.same({8}, x.grad:tolist())
  end)

  it("wants a gradient for a tensor of several elements", function()
    local x = leaf {1, 2}
    assert.error_matches(function() (x * 2):backward() end, "gradient is needed for a tensor of shape %(2,%)")
    local y = x * 2
    y:backward(accelhost.tensor {1, 10})
    assert.same({2, 20}, x.grad:tolist())
  end)

  it("refuses a tensor without history", function()
    assert.error_matches(function() accelhost.tensor({1}):sum():backward() end, "does not require grad")
  end)

  it("names a misspelt option", function()
    local y = leaf({1}):sum()
    assert.error_matches(function() y:backward {retain = true} end, "unknown option 'retain'")
  end)

  it("reports the script line that called", function()
    local x = leaf {1, 2}
    local ok, message = pcall(function() (x * 2):backward() end)
    assert.is_false(ok)
    assert.matches("engine_spec%.lua:%d+: backward", message)
  end)
end)

describe("a tensor saved for backward", function()
  it("that was changed in place names the op and both versions", function()
    local x = leaf {1, 2}
    local y = x * 1
    local z = (y * y):sum()
    accelhost.no_grad(function() y:add_(1) end)
    assert.error_matches(function() z:backward() end, "mul.*changed in place.*version 0 then, 1 now")
  end)

  it("may be changed when no gradient needs it", function()
    local x = leaf {1, 2}
    local c = accelhost.tensor {3, 4}
    local y = (x + c):sum()
    c:add_(1)
    y:backward()
    assert.same({1, 1}, x.grad:tolist())
  end)
end)

describe("in-place ops", function()
  it("on a leaf that requires grad are refused", function()
    local x = leaf {1}
    assert.error_matches(function() x:add_(1) end, "leaf that requires grad cannot be changed in place")
  end)

  it("are part of the graph", function()
    local x = leaf {1, 2}
    local y = x * 1
    y:mul_(x)
    y:sum():backward()
    assert.same({2, 4}, x.grad:tolist())
  end)

  it("into a view change the base's history", function()
    local x = leaf {1, 2, 3}
    local y = x * 1
    y[1] = 10
    y:sum():backward()
    assert.same({1, 0, 1}, x.grad:tolist())
  end)

  it("into a slice of a constant carry the gradient of the written values", function()
    local w = leaf {5, 6}
    local out = accelhost.zeros(4)
    out[{ {1, 3} }] = w * 2
    local view = out[{ {0, 2} }];
    (view * accelhost.tensor {1, 100}):sum():backward()
    assert.same({200, 0}, w.grad:tolist())
  end)

  it("into a view of a transposed or stepped tensor carry gradients, too", function()
    local w, x = leaf {5, 6}, leaf {{1, 2, 3}, {4, 5, 6}}
    local base = (x * 1):t():detach()
    base[1] = w * 2
    local weights = accelhost.tensor {{1, 2}, {3, 4}, {5, 6}}; -- of the base (3, 2)
    (base * weights):sum():backward()
    assert.same({6, 8}, w.grad:tolist())
    local kept = (x * 1):t() -- whose own history continues outside the slice
    kept[1] = w * 2;
    (kept * weights):sum():backward()
    assert.same({{1, 0, 5}, {2, 0, 6}}, x.grad:tolist())
    local stepped = accelhost.zeros(6)[{{0, 6, 2}}]:detach()
    stepped[{{1, 3}}] = w * w
    w.grad = nil;
    (stepped * accelhost.tensor {7, 1, 10}):sum():backward()
    assert.same({10, 120}, w.grad:tolist())
    local fresh = accelhost.zeros(2, 3):t():detach()
    fresh[1] = w * 2
    local again = accelhost.autograd.grad((fresh * fresh):sum(), {w}, {create_graph = true})[1]
    assert.same({8, 8}, accelhost.autograd.grad(again:sum(), {w})[1]:tolist())
  end)

  it("into the base are seen by views made before", function()
    local x = leaf {1, 2}
    local y = x * 1
    local view = y:view(1, 2)
    y:mul_(3)
    view:sum():backward()
    assert.same({3, 3}, x.grad:tolist())
  end)
end)

describe("set_grad_enabled", function()
  it("sets the mode and returns the earlier one, or runs a function in the mode and restores it", function()
    local w = accelhost.ones(2, {requires_grad = true})
    local function twice(x, n) return (x * n).requires_grad, n end
    assert.same({false, 2}, {accelhost.set_grad_enabled(false, twice, w, 2)})
    assert.is_true(accelhost.is_grad_enabled())
    assert.is_true(accelhost.set_grad_enabled(false))
    assert.same({true, 3}, {accelhost.set_grad_enabled(true, twice, w, 3)})
    assert.is_false(accelhost.set_grad_enabled {mode = true})
    assert.is_false(pcall(accelhost.set_grad_enabled, false, function() error "stop" end))
    assert.is_true(accelhost.is_grad_enabled())
  end)

  it("refuses a mode that is no boolean, and a callee that is no function", function()
    check.raises("set_grad_enabled: mode: expected true or false, got nothing", accelhost.set_grad_enabled)
    check.raises("set_grad_enabled: mode: expected true or false, got number 1", accelhost.set_grad_enabled, 1)
    check.raises("set_grad_enabled: expected a function to run, got number", accelhost.set_grad_enabled, true, 3)
  end)
end)

describe("no_grad", function()
  it("returns the function's results and records nothing", function()
    local x = leaf {1}
    local y, z = accelhost.no_grad(function(k) return x * k, k end, 2)
    assert.is_false(y.requires_grad)
    assert.equal(2, z)
  end)

  it("is undone when the function raises", function()
    pcall(accelhost.no_grad, function() error("stop") end)
    assert.is_true(accelhost.is_grad_enabled())
  end)
end)

describe("detach", function()
  it("shares memory and has no history", function()
    local x = leaf {1, 2}
    local y = (x * 2):detach()
    assert.is_false(y.requires_grad)
    local z = y:view(2)
    z:fill_(0)
    assert.same({0, 0}, y:tolist())
  end)
end)

describe("detach_", function()
  it("makes a constant of a leaf", function()
    local x = leaf {1}
    assert.equal(x, x:detach_())
    assert.is_false(x.requires_grad)
  end)

  it("cuts a result off the graph of its inputs", function()
    local x = accelhost.ones({2}, {requires_grad = true})
    local y = x * 2
    local before = y * 3
    y:retain_grad()
    assert.equal(y, y:detach_())
    assert.is_false(y.requires_grad)
    assert.is_true(y.is_leaf)
    assert.is_false((y * 5).requires_grad)
    before:sum():backward()
    assert.same({6, 6}, x.grad:tolist())
    assert.is_nil(y.grad)
  end)

  it("carries a state from window to window", function()
    local x, state = accelhost.ones({1}, {requires_grad = true}), accelhost.zeros({1})
    for _ = 1, 3 do
      state = state + x
      state:sum():backward()
      state:detach_()
    end
    assert.same({3}, x.grad:tolist())
    assert.same({3}, state:tolist())
  end)

  it("leaves a view of a tensor with a history only its memory, which is then not written", function()
    local y = accelhost.ones({4}, {requires_grad = true}) * 2
    local view = y:view(2, 2):detach_()
    assert.is_false(view.requires_grad)
    assert.is_true(y.requires_grad)
    check.raises("mul_: a view made under no_grad, or detached, cannot be changed in place", function()
      view:mul_(2)
    end)
    accelhost.no_grad(function() view:mul_(2) end)
    assert.same({4, 4, 4, 4}, y:tolist())
  end)

  it("leaves a result without other references to be written", function()
    local x = accelhost.ones({1, 1, 3}, {requires_grad = true})
    local y = accelhost.nn.functional.conv1d(x, accelhost.ones(1, 1, 1)):detach_()
    assert.same({{{3, 3, 3}}}, y:mul_(3):tolist())
  end)
end)

describe("requires_grad", function()
  it("is for floating tensors only", function()
    assert.error_matches(function() accelhost.tensor({1}, {dtype = "int64", requires_grad = true}) end,
      "only floating tensors")
  end)

  it("cannot be cleared on a result", function()
    local y = leaf({1}) * 2
    assert.error_matches(function() y.requires_grad = false end, "use detach")
  end)
end)

describe("autograd.grad", function()
  it("does not write .grad", function()
    local x = leaf {2}
    local g = accelhost.autograd.grad((x * x):sum(), {x})
    assert.same({4}, g[1]:tolist())
    assert.is_nil(x.grad)
  end)

  it("reaches intermediate tensors", function()
    local x = leaf {2}
    local y = x * x
    local g = accelhost.autograd.grad((y * y):sum(), {y})
    assert.same({8}, g[1]:tolist())
  end)

  it("differentiates twice", function()
    local x = leaf({2}, {dtype = "float64"})
    local g = accelhost.autograd.grad((x * x * x):sum(), {x}, {create_graph = true})[1]
    assert.same({12}, g:tolist())
    local h = accelhost.autograd.grad(g:sum(), {x})[1]
    assert.same({12}, h:tolist())
  end)

  it("passes grad its arguments by place or by name, as PyTorch, and zeros for unused inputs", function()
    local x = accelhost.tensor({1, 2, 3}, {requires_grad = true})
    local unused = accelhost.ones(2, {requires_grad = true})
    local weights = accelhost.tensor {1, 0, 2}
    local function y() return x:pow(2) end
    local grad = accelhost.autograd.grad
    for _, grads in ipairs {
      grad(y(), x, weights), grad(y(), x, {grad_outputs = weights}),
      grad {outputs = y(), inputs = x, grad_outputs = weights, create_graph = true, only_inputs = true},
    } do
      assert.same({2, 0, 12}, grads[1]:tolist())
      assert.equal(1, #grads)
    end
    assert.is_true(grad {outputs = y(), inputs = {x}, grad_outputs = weights, create_graph = true}[1].requires_grad)
    local grads = grad(y(), {x, unused}, weights, {materialize_grads = true})
    assert.same({{2, 0, 12}, {0, 0}}, {grads[1]:tolist(), grads[2]:tolist()})
    assert.same({0, 0}, grad(y(), unused, weights, {materialize_grads = true})[1]:tolist())
    check.raises("grad: unknown option 'output' (known: outputs, inputs,", grad, {output = y(), inputs = x})
    check.raises("grad: 'inputs' is missing", grad, y())
    check.raises("grad: is_grads_batched: only false is possible", grad, y(), x, {is_grads_batched = true})
    check.raises("grad: allow_unused = false contradicts materialize_grads = true", grad, y(), x,
      {materialize_grads = true, allow_unused = false})
  end)

  it("names an unused input, or returns false when that is allowed", function()
    local x, u = leaf {1}, leaf {1}
    local y = (x * 2):sum()
    assert.error_matches(function() accelhost.autograd.grad(y, {u}) end, "input 1 was not used")
    local z = (x * 2):sum()
    assert.same({false}, accelhost.autograd.grad(z, {u}, {allow_unused = true}))
  end)
end)

describe("hooks", function()
  it("see the gradient and may replace it", function()
    local x = leaf {1, 2}
    local y = x * 2
    local seen
    y:register_hook(function(grad)
      seen = grad:tolist()
      return grad * 10
    end)
    y:sum():backward()
    assert.same({1, 1}, seen)
    assert.same({20, 20}, x.grad:tolist())
  end)

  it("can be removed", function()
    local x = leaf {1}
    local hook = x:register_hook(function(grad) return grad * 5 end)
    hook:remove();
    (x * 1):sum():backward()
    assert.same({1}, x.grad:tolist())
  end)

  it("pass their errors on", function()
    local x = leaf {1}
    x:register_hook(function() error("from the hook") end)
    assert.error_matches(function() (x * 1):sum():backward() end, "from the hook")
  end)

  it("keep the gradient of a result with retain_grad", function()
    local x = leaf {3}
    local y = x * 2
    y:retain_grad();
    (y * y):sum():backward()
    assert.same({12}, y.grad:tolist())
  end)
end)

describe("Function", function()
  local Cube = accelhost.autograd.Function:extend "Cube"
  function Cube.forward(ctx, x, scale)
    ctx:save_for_backward(x)
    ctx.scale = scale
    return x * x * x * scale
  end
  function Cube.backward(ctx, grad)
    local x = ctx.saved_tensors[1]
    return grad * x * x * (3 * ctx.scale), nil
  end

  it("uses its own rule", function()
    local x = leaf {2}
    Cube.apply(x, 10):sum():backward()
    assert.same({120}, x.grad:tolist())
  end)

  it("is differentiable twice when its rule is", function()
    local x = leaf {2}
    local g = accelhost.autograd.grad(Cube.apply(x, 1):sum(), {x}, {create_graph = true})[1]
    local h = accelhost.autograd.grad(g:sum(), {x})[1]
    assert.same({12}, h:tolist())
  end)

  it("notices in-place changes of saved tensors", function()
    local x = leaf {2}
    local y = x * 1
    local z = Cube.apply(y, 1):sum()
    accelhost.no_grad(function() y:add_(1) end)
    assert.error_matches(function() z:backward() end, "Cube.*changed in place")
  end)

  it("wants a gradient for each argument", function()
    local Product = accelhost.autograd.Function:extend "Product"
    function Product.forward(_, a, b) return a * b end
    function Product.backward(_, grad) return grad end
    local z = Product.apply(leaf {1}, leaf {2}):sum()
    assert.error_matches(function() z:backward() end, "backward of Product: expected 2 gradients, one for each "
      .. "argument %(nil where none is wanted%), got 1")
    Product.apply(leaf {1}, accelhost.ones(1)):sum():backward()
  end)

  it("passes errors of its rule on", function()
    local Bad = accelhost.autograd.Function:extend "Bad"
    function Bad.forward(_, x) return x * 1 end
    function Bad.backward() error("no rule today") end
    local z = Bad.apply(leaf {1}):sum()
    assert.error_matches(function() z:backward() end, "no rule today")
  end)
end)

describe("a hook made in a coroutine", function()
  it("outlives the coroutine", function()
    local x = leaf {1, 2}
    local y
    coroutine.wrap(function()
      y = x * 2
      y:register_hook(function(grad) return grad * 3 end)
    end)()
    collectgarbage()
    y:sum():backward()
    y = nil -- luacheck: ignore
    collectgarbage()
    assert.same({6, 6}, x.grad:tolist())
  end)
end)

describe("autograd.grad of no inputs", function()
  it("is refused", function()
    local y = leaf {1} * 2
    assert.error_matches(function() accelhost.autograd.grad(y, {}) end, "grad: expected at least one input")
  end)
end)

describe("a leaf frozen after the graph was made", function()
  it("gets no gradient", function()
    local x, y = leaf {1, 2}, leaf {3, 4}
    local product = x * y
    x:requires_grad_(false)
    product:sum():backward()
    assert.is_nil(x.grad)
    assert.same({1, 2}, y.grad:tolist())
  end)
end)
