--- The option memory_format. Numbers of PyTorch 2.15 are next to the calls that returned them.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local nn, F = accelhost.nn, accelhost.nn.functional
local last = {memory_format = accelhost.channels_last}

local function image(dtype)
  return accelhost.arange(120):view(2, 3, 4, 5):to(dtype or "float32")
end

local function is_last(tensor) return tensor:is_contiguous(last) end

describe("memory_format", function()
  for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"} do
    it("orders the elements of a " .. dtype .. " tensor, not its values, shape or strides", function()
      local x = image(dtype)
      local y = x:contiguous(last)
      assert.is_false(is_last(x))
      assert.is_true(is_last(y))
      assert.same({2, 3, 4, 5}, y:shape())
      assert.equal(dtype, y.dtype)
      check.near(check.flat(x), y, 0)
      assert.same({60, 20, 5, 1}, x:contiguous(last):stride())
      check.near(check.flat(x), x:contiguous(last):clone {memory_format = "contiguous_format"}, 0)
    end)
  end

  it("returns the tensor itself where it is in that order", function()
    local x = image()
    local y = x:contiguous(last)
    assert.equal(y, y:contiguous(last))
    assert.equal(y, y:to(last))
    assert.equal(x, x:contiguous {memory_format = "contiguous_format"})
    assert.equal(x, x:to {memory_format = "preserve_format"})
    local one = accelhost.ones(2, 1, 4, 4)
    assert.equal(one, one:contiguous(last)) -- both orders are the same
    assert.is_true(is_last(one))
    assert.is_true(is_last(image():permute(0, 2, 3, 1):contiguous():permute(0, 3, 1, 2)))
  end)

  it("is kept by a clone, a cast and arithmetic, and accepted by each of them", function()
    local y = image():contiguous(last)
    for _, kept in ipairs {y:clone(), y:clone {memory_format = "preserve_format"}, y + 1, y:half(), y:relu()} do
      assert.is_true(is_last(kept))
    end
    local x = image()
    for _, made in ipairs {
      x:clone(last), x:to(last), x:to("float64", last), x:half(last), x:float(last), x:cpu(last), x:double(last),
      x:to {dtype = "bfloat16", memory_format = "channels_last"}, x:to("cpu", last),
      x:permute(0, 1, 3, 2):contiguous(last),
    } do
      assert.is_true(is_last(made))
      assert.same(2 * 3 * 4 * 5, made:numel())
    end
    assert.is_false(is_last(y:clone {memory_format = "contiguous_format"}))
    assert.is_true(is_last(y))
    assert.is_false(is_last(y:to {memory_format = "contiguous_format"}))
    check.near(check.flat(x), x:double(last), 0)
  end)

  it("lets gradients through", function()
    local x = image():requires_grad_()
    local weight = accelhost.ones(1, 3, 2, 2)
    local direct = accelhost.autograd.grad(F.conv2d(x * x, weight):sum(), {x})[1]
    local ordered = accelhost.autograd.grad(F.conv2d((x * x):contiguous(last):to(last), weight):sum(), {x})[1]
    check.near(check.flat(direct), ordered, 0)
  end)

  it("is the order in which numbers in the likeness of a tensor are drawn, as in PyTorch", function()
    local x = image()
    accelhost.manual_seed(1)
    local a = accelhost.rand_like(x, last)
    accelhost.manual_seed(2)
    local c = accelhost.randint_like(x, 7, last)
    check.near({0.7576315999031067, 0.7346844673156738, 0.3971373438835144, 0.4387779235839844, 0.6826140880584717},
      a:clone():view(-1):narrow(0, 0, 5), 0)
    check.near({2, 2, 6, 4, 6, 1, 4, 0, 5, 1, 2, 4}, c:clone():view(-1):narrow(0, 0, 12), 0)
    for _, made in ipairs {
      accelhost.rand_like(x, last), accelhost.randn_like(x, last), accelhost.randint_like(x, 7, last),
      accelhost.zeros_like(x, last), accelhost.ones_like(x, last), accelhost.full_like(x, 3, last),
      accelhost.empty_like(x, last), accelhost.empty(2, 3, 4, 5, last),
    } do
      assert.is_true(is_last(made))
    end
    check.near(3 * 120, accelhost.full_like(x, 3, last):sum():item(), 0)
    assert.is_true(accelhost.zeros_like(x, {memory_format = "channels_last", requires_grad = true}).requires_grad)
  end)

  it("is accepted for volumes, which stay row-major", function()
    local x, format = accelhost.rand(1, 2, 3, 4, 5), {memory_format = accelhost.channels_last_3d}
    check.near(check.flat(x), x:contiguous(format), 0)
    check.near(check.flat(x), x:to(format), 0)
    assert.is_false(x:contiguous(format):is_contiguous(format))
    assert.is_true(x:permute(0, 2, 3, 4, 1):contiguous():permute(0, 4, 1, 2, 3):is_contiguous(format))
  end)

  it("is accepted by a module, whose numbers stay the same", function()
    local net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 2))
    local x = accelhost.randn(2, 3, 6, 6)
    local before = net(x)
    assert.equal(net, net:to(last))
    check.near(check.flat(before), net(x:to(last)), 1e-6)
    assert.equal("float64", net:to {dtype = "float64", memory_format = "channels_last"}[1].weight.dtype)
    check.raises("to: unknown memory_format 'nhwc'", function() net:to {memory_format = "nhwc"} end)
  end)

  it("is refused where it does not fit", function()
    local x = accelhost.ones(2, 3)
    for _, call in ipairs {
      function() return x:contiguous(last) end, function() return x:to(last) end, function() return x:clone(last) end,
      function() return accelhost.zeros_like(x, last) end, function() return accelhost.randint_like(x, 3, last) end,
    } do
      check.raises('memory_format "channels_last": expected a tensor of 4 dims, got', call)
    end
    check.raises('memory_format "channels_last_3d": expected a tensor of 5 dims, got shape (2, 3)', function()
      x:to {memory_format = "channels_last_3d"}
    end)
    check.raises("clone: memory_format: expected \"channels_last\"", function() x:clone {memory_format = "nhwc"} end)
    check.raises("to: memory_format: expected \"channels_last\"", function() x:to {memory_format = 3} end)
    check.raises("contiguous: memory_format: expected an order of memory, got \"preserve_format\"", function()
      x:contiguous {memory_format = "preserve_format"}
    end)
    check.raises("is_contiguous: memory_format: expected an order of memory", function()
      x:is_contiguous {memory_format = "preserve_format"}
    end)
    check.raises("zeros: unknown option 'memory_format'", function() accelhost.zeros(2, last) end)
  end)
end)
