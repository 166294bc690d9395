local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional
local nan, inf = 0 / 0, math.huge

local labels = tensors.long

local leaf = tensors.leaf

describe("nll_loss", function()
  it("is nan over nothing as a mean and 0 as a sum", function()
    local x = accelhost.zeros(2, 3)
    check.near(nan, F.nll_loss(x, labels {-100, -100}):item(), 0)
    assert.equal(0, F.nll_loss(x, labels {-100, -100}, {reduction = "sum"}):item())
    check.near(nan, F.nll_loss(accelhost.zeros(0, 3), labels {}):item(), 0)
  end)

  it("divides by the weights of the labels that count", function()
    local x = accelhost.tensor {{-1, -2}, {-3, -4}, {-5, -6}}
    local loss = F.nll_loss(x, labels {0, 1, -100}, accelhost.tensor {1, 3})
    check.near((1 * 1 + 3 * 4) / 4, loss:item(), 1e-6)
  end)

  it("accepts one sample, and int32 labels", function()
    assert.equal(2, F.nll_loss(accelhost.tensor {-1, -2}, labels(1)):item())
    assert.equal(2, F.nll_loss(accelhost.tensor {{-1, -2}}, accelhost.tensor({1}, {dtype = "int32"})):item())
  end)

  it("has first and second derivatives", function()
    local target, weight = labels {{0, 2}, {1, -100}}, accelhost.tensor({0.5, 1, 2}, {dtype = "float64"})
    for _, reduction in ipairs {"mean", "sum", "none"} do
      local function loss(x) return F.nll_loss(x * x, target, weight, -100, reduction) end
      gradcheck.gradcheck(loss, {leaf(2, 3, 2)})
      gradcheck.gradgradcheck(loss, {leaf(2, 3, 2)})
    end
  end)

  it("names a label that is no class", function()
    check.raises("nll_loss: target 12 at position 3 is outside 0..9", function()
      F.nll_loss(accelhost.zeros(5, 10), labels {0, 1, 2, 12, 3})
    end)
    check.raises("nll_loss: target -1 at position 0 is outside 0..9", function()
      F.nll_loss(accelhost.zeros(1, 10), labels {-1})
    end)
  end)

  it("reports mismatched arguments", function()
    check.raises("nll_loss: target (3,) does not fit input (2, 10)", function()
      F.nll_loss(accelhost.zeros(2, 10), labels {0, 1, 2})
    end)
    check.raises("nll_loss: expected int64, int32 or uint8 class labels as target, got float32", function()
      F.nll_loss(accelhost.zeros(2, 10), accelhost.zeros(2))
    end)
    check.raises("nll_loss: reduction: expected \"none\", \"mean\" or \"sum\", got \"avg\"", function()
      F.nll_loss(accelhost.zeros(2, 10), labels {0, 1}, {reduction = "avg"})
    end)
    check.raises("nll_loss: expected weight float32 of 10 classes, got float32 (3,)", function()
      F.nll_loss(accelhost.zeros(2, 10), labels {0, 1}, accelhost.ones(3))
    end)
  end)
end)

describe("cross_entropy", function()
  local target, weight = labels {0, 2, -100, 1}, accelhost.tensor({0.5, 1, 2}, {dtype = "float64"})

  it("is nll_loss of log_softmax, whatever the options", function()
    local x = leaf(4, 3)
    for _, reduction in ipairs {"mean", "sum", "none"} do
      for _, w in ipairs {false, weight} do
        local wanted = F.nll_loss(accelhost.log_softmax(x, 1), target, w or nil, -100, reduction)
        check.near(check.flat(wanted), F.cross_entropy(x, target, w or nil, -100, reduction), 1e-12)
      end
    end
  end)

  it("has first and second derivatives, smoothed or not", function()
    for _, smoothing in ipairs {0, 0.2} do
      for _, w in ipairs {false, weight} do
        local function loss(x)
          return F.cross_entropy(x, target, {weight = w or nil, label_smoothing = smoothing})
        end
        gradcheck.gradcheck(loss, {leaf(4, 3)})
        gradcheck.gradgradcheck(loss, {leaf(4, 3)})
      end
    end
    gradcheck.gradcheck(function(x) return F.cross_entropy(x, labels {{0, 1}, {2, 1}}, {label_smoothing = 0.1}) end,
      {leaf(2, 3, 2)})
  end)

  it("accepts probabilities as a target, and computes their gradient", function()
    local p = accelhost.softmax(accelhost.randn({4, 3}, {dtype = "float64"}), 1):detach():requires_grad_()
    for _, options in ipairs {{}, {reduction = "sum"}, {reduction = "none"}, {label_smoothing = 0.3},
        {weight = weight}} do
      local function loss(x, t) return F.cross_entropy(x, t, options) end
      gradcheck.gradcheck(loss, {leaf(4, 3), p})
    end
    local sharp = accelhost.tensor({{0, 1, 0}}, {dtype = "float64"})
    local x = leaf(1, 3)
    check.near(F.cross_entropy(x, labels {1}):item(), F.cross_entropy(x, sharp):item(), 1e-12)
  end)

  it("does not overflow, and keeps -inf logits of other classes harmless", function()
    local x = accelhost.tensor({{1000, -inf, 0}}):requires_grad_()
    local loss = F.cross_entropy(x, labels {0})
    assert.equal(0, loss:item())
    loss:backward()
    assert.same({{0, 0, 0}}, x.grad:tolist())
  end)

  it("agrees between float32 and float64", function()
    local many = accelhost.arange(200) % 97
    precision.agree(function(x) return F.cross_entropy(x, many) end, {{200, 97}})
    precision.agree(function(x) return F.cross_entropy(x, many, {label_smoothing = 0.1}) end, {{200, 97}})
  end)

  it("names a label that is no class", function()
    check.raises("cross_entropy: target 7 at position 1 is outside 0..4", function()
      F.cross_entropy(accelhost.zeros(2, 5), labels {0, 7})
    end)
    check.raises("cross_entropy: label_smoothing: expected 0..1, got 2", function()
      F.cross_entropy(accelhost.zeros(2, 5), labels {0, 1}, {label_smoothing = 2})
    end)
  end)
end)

-- The block of a device's autocast; none on devices that have none.
local kind = accelhost.zeros(1).device:match "^%a+"
local blocks = kind == "cpu" or kind == "cuda"

describe("cross_entropy of rows in half precision", function()
  local function case(classes, dtype)
    -- Rows that begin at any multiple of 2 bytes, and a storage that does too.
    local flat = (accelhost.randn(5 * classes + 3) * 4):to(dtype)
    local x = flat:narrow(0, 3, 5 * classes):view(5, classes)
    local target = accelhost.arange(5) * 3 % classes
    target[3] = -100
    return x, target
  end

  local function gradient(loss, x)
    return accelhost.autograd.grad({loss}, {x}, {grad_outputs = {accelhost.ones_like(loss) * 8}})[1]
  end

  local function agrees(classes, dtype, options, block)
    local x, target = case(classes, dtype)
    x = x:requires_grad_()
    local wide = x:detach():float():requires_grad_()
    local wanted = F.cross_entropy(wide, target, options(classes))
    local found = block(function() return F.cross_entropy(x, target, options(classes)) end)
    local what = ("%d classes in %s"):format(classes, dtype)
    local near = found.dtype == "float32" and 1e-5 or 0.06
    check.near(check.flat(wanted), found:float(), near, what)
    local expected, made = gradient(wanted, wide), gradient(found, x)
    assert.equal(dtype, made.dtype)
    local off = (made:float() - expected):abs() - expected:abs() * 2 ^ -7
    assert.is_true(off:max():item() < 1e-4, what)
    return found.dtype
  end

  local kinds = {
    function() return {} end,
    function() return {reduction = "none"} end,
    function() return {reduction = "sum", label_smoothing = 0.1} end,
    function(classes) return {weight = accelhost.linspace(0.5, 2, classes), label_smoothing = 0.1} end,
    function(classes) return {weight = accelhost.linspace(0.5, 2, classes), reduction = "none"} end,
  }

  for _, dtype in ipairs {"bfloat16", "float16"} do
    it("is that of their float32 copies, in " .. dtype, function()
      local function plain(fn) return fn() end
      for _, classes in ipairs {1, 2, 7, 8, 9, 255, 1000, 1025, 2051, 4096} do
        for i = 1, 3 do assert.equal(dtype, agrees(classes, dtype, kinds[i], plain)) end
      end
    end)

    if blocks then
      it("is float32 under autocast, whatever the options, and its gradient is " .. dtype, function()
        local function block(fn) return accelhost.autocast(kind, {dtype = dtype}, fn) end
        for _, classes in ipairs {1, 7, 8, 1000, 1025, 2051} do
          for _, options in ipairs(kinds) do assert.equal("float32", agrees(classes, dtype, options, block)) end
        end
      end)
    end
  end

  it("is 0 for a row of nothing but one number, and nan for one of nothing but -inf", function()
    local x = accelhost.tensor({{-inf, 1000, -inf}, {-inf, -inf, -inf}, {0, inf, 0}}):to "bfloat16"
    local found = F.cross_entropy(x, labels {1, 1, 1}, {reduction = "none"})
    check.near({0, nan, nan}, found:float(), 0)
  end)

  it("reads no row whose label is ignored", function()
    local x = accelhost.tensor({{nan, nan}, {0, 0}}):requires_grad_()
    local loss = F.cross_entropy(x, labels {-100, 1})
    check.near(math.log(2), loss:item(), 1e-6)
    loss:backward()
    assert.same({{0, 0}, {0.5, -0.5}}, x.grad:tolist())
  end)

  if not blocks then return end

  it("accepts weights in float32 or half precision under autocast, and has float32 for other shapes", function()
    accelhost.autocast(kind, {dtype = "bfloat16"}, function()
      local x, target = case(6, "bfloat16")
      local w = accelhost.linspace(1, 2, 6)
      local wanted = F.cross_entropy(x:float(), target, w):item()
      for _, dtype in ipairs {"float32", "bfloat16"} do
        check.near(wanted, F.cross_entropy(x, target, w:to(dtype)):item(), 2e-3)
        check.near(wanted, F.cross_entropy(x:float(), target, w:to(dtype)):item(), 2e-3)
      end
      local p = accelhost.softmax(x:float(), 1)
      local soft = F.cross_entropy(x, p:to "bfloat16")
      assert.equal("float32", soft.dtype)
      check.near(F.cross_entropy(x:float(), p):item(), soft:item(), 2e-2)
      local deep = x:narrow(0, 0, 4):reshape(2, 6, 2)
      local loss = F.cross_entropy(deep, target:narrow(0, 0, 4):reshape(2, 2))
      assert.equal("float32", loss.dtype)
      check.near(F.cross_entropy(deep:float(), target:narrow(0, 0, 4):reshape(2, 2)):item(), loss:item(), 1e-6)
      check.raises("cross_entropy: expected weight float32 of 6 classes, got float64 (6,)", function()
        F.cross_entropy(x, target, w:to "float64")
      end)
    end)
  end)

  it("has second derivatives under autocast, in the precision of float32", function()
    local function second(x, fn)
      local g = accelhost.autograd.grad({fn(x)}, {x}, {create_graph = true})[1]
      return accelhost.autograd.grad({(g:float() ^ 2):sum()}, {x})[1]:float()
    end
    local x, target = case(9, "float16")
    local options = {label_smoothing = 0.1, weight = accelhost.linspace(0.5, 2, 9), reduction = "sum"}
    local wanted = second(x:float():requires_grad_(), function(y) return F.cross_entropy(y, target, options) end)
    local found = second(x:clone():requires_grad_(), function(y)
      return accelhost.autocast(kind, {dtype = "float16"}, function() return F.cross_entropy(y, target, options) end)
    end)
    check.near(check.flat(wanted), found, 5e-3)
  end)

  it("writes its gradient under autocast over scores without other references", function()
    local x, target = accelhost.randn(64, 4096):to("bfloat16"):requires_grad_(), accelhost.arange(64)
    local function backward(held)
      local scores = (x + 1):view(8, 8, -1)
      local rows = scores:flatten(0, 1)
      local loss = accelhost.autocast(kind, {dtype = "bfloat16"}, function() return F.cross_entropy(rows, target) end)
      if not held then scores:free() end
      rows:free()
      collectgarbage()
      local before = accelhost.memory_stats(x.device).live
      x.grad = nil
      loss:backward()
      if held then assert.is_true(scores:view(64, -1):equal(x + 1)) end
      return (accelhost.memory_stats(x.device).live - before) / (64 * 4096 * 2), x.grad
    end
    local grown, wanted = backward(true)
    local less, found = backward(false)
    assert.is_true(grown > 0.9 and less < 0.1, ("%.2f, %.2f"):format(grown, less))
    assert.is_true(wanted:equal(found))
  end)
end)

describe("cross_entropy's backward", function()
  local many = accelhost.arange(256) % 97
  local scores = accelhost.randn(256, 1000)
  local size = 256 * 1000 * 4

  -- The gradient of scores that `how` makes of a leaf, and by how many times their size memory has grown.
  local function backward(how, options)
    local x = scores:clone():requires_grad_()
    local y, keeps = how(x)
    local loss = F.cross_entropy(y, many, {label_smoothing = 0.1})
    if not keeps then y:free() end
    collectgarbage()
    local before = accelhost.memory_stats(x.device).live
    loss:backward(options)
    local grown = math.floor((accelhost.memory_stats(x.device).live - before) / size + 0.5)
    return x.grad, grown, loss, x, y
  end
  local function moved(x) return x + 1 end
  local function held(x) return x + 1, true end

  it("writes over scores without other references", function()
    local wanted, grown = backward(held)
    assert.equal(1, grown)
    local found, less = backward(moved)
    assert.equal(0, less)
    assert.same(wanted:tolist(), found:tolist())
  end)

  it("does not overwrite scores that are referenced, saved elsewhere or used again", function()
    local _, _, _, _, y = backward(held)
    assert.same((scores + 1):tolist(), y:tolist())
    local wanted = backward(function(x) return x:exp(), true end)
    local found = backward(function(x) return x:exp() end) -- whose own rule reads its result
    assert.same(wanted:tolist(), found:tolist())
    local twice, more, loss, leaf_of = backward(moved, {retain_graph = true})
    assert.equal(1, more)
    local once = twice:clone()
    loss:backward()
    assert.same((once * 2):tolist(), leaf_of.grad:tolist())
  end)

  it("has second derivatives of scores without other references", function()
    local target = labels {0, 2, -100, 1}
    local function loss(x)
      local y = x * 2
      local result = F.cross_entropy(y, target)
      y:free()
      return result
    end
    gradcheck.gradcheck(loss, {leaf(4, 3)})
    gradcheck.gradgradcheck(loss, {leaf(4, 3)})
  end)

  it("reports that the graph was freed, and not the contents of the scores", function()
    local _, _, loss = backward(moved)
    check.raises("the graph was already used by a backward", function() loss:backward() end)
  end)
end)

describe("binary_cross_entropy", function()
  it("is finite when it is certain and wrong", function()
    local p = accelhost.tensor({0, 1, 0, 1}):requires_grad_()
    local loss = F.binary_cross_entropy(p, accelhost.tensor {1, 0, 0, 1}, {reduction = "none"})
    assert.same({100, 100, 0, 0}, loss:tolist())
    loss:sum():backward()
    for _, value in ipairs(p.grad:tolist()) do assert.is_true(value == value) end
  end)

  it("has first and second derivatives", function()
    local p = (accelhost.rand({2, 3}, {dtype = "float64"}) * 0.8 + 0.1):requires_grad_()
    local t = accelhost.rand({2, 3}, {dtype = "float64"}):requires_grad_()
    local w = accelhost.tensor({1, 2, 3}, {dtype = "float64"})
    local function loss(a, b) return F.binary_cross_entropy(a, b, w) end
    gradcheck.gradcheck(loss, {p, t})
    gradcheck.gradgradcheck(loss, {p, t})
  end)

  it("names an input or a target that is no probability", function()
    check.raises("binary_cross_entropy: input 1.5 at position 1 is outside 0..1", function()
      F.binary_cross_entropy(accelhost.tensor {0.5, 1.5}, accelhost.tensor {0, 1})
    end)
    check.raises("binary_cross_entropy: input nan at position 0 is outside 0..1", function()
      F.binary_cross_entropy(accelhost.tensor {math.abs(nan), 0.5}, accelhost.tensor {0, 1})
    end)
    check.raises("binary_cross_entropy: target -1 at position 0 is outside 0..1", function()
      F.binary_cross_entropy(accelhost.tensor {0.5, 0.5}, accelhost.tensor {-1, 1})
    end)
    check.raises("binary_cross_entropy: expected a target like the input", function()
      F.binary_cross_entropy(accelhost.zeros(2), accelhost.zeros(3))
    end)
  end)
end)

describe("binary_cross_entropy_with_logits", function()
  it("has the right slope at 0", function()
    local x = accelhost.zeros(2):requires_grad_()
    F.binary_cross_entropy_with_logits(x, accelhost.tensor {0, 1}, {reduction = "sum"}):backward()
    assert.same({0.5, -0.5}, x.grad:tolist())
  end)

  it("does not overflow", function()
    local x = accelhost.tensor {1000, -1000}
    local loss = F.binary_cross_entropy_with_logits(x, accelhost.tensor {0, 0}, {reduction = "none"})
    assert.same({1000, 0}, loss:tolist())
  end)

  it("widens to the wider of logits and target, and accepts a pos_weight of any dtype", function()
    local x = accelhost.tensor({0.5, -1}, {requires_grad = true})
    local target = accelhost.tensor({0.25, 1}, {dtype = "float64"})
    local loss = F.binary_cross_entropy_with_logits(x, target, {pos_weight = labels {2, 3}})
    assert.equal("float64", loss.dtype)
    check.near(2.4536907, loss:item(), 1e-6)
    loss:backward()
    assert.equal("float32", x.grad.dtype)
    check.raises("binary_cross_entropy_with_logits: expected a target like the input, float32 (2,), got int64 (2,)",
      function() F.binary_cross_entropy_with_logits(x, labels {0, 1}) end)
  end)

  it("has first and second derivatives, with a weight of the positives too", function()
    local x, t, w = leaf(2, 3), accelhost.rand({2, 3}, {dtype = "float64"}):requires_grad_(), leaf(3)
    local function weighted(a, b, p) return F.binary_cross_entropy_with_logits(a, b, {pos_weight = p}) end
    gradcheck.gradcheck(F.binary_cross_entropy_with_logits, {x, t})
    gradcheck.gradgradcheck(F.binary_cross_entropy_with_logits, {x, t})
    gradcheck.gradcheck(weighted, {x, t, w})
    gradcheck.gradgradcheck(weighted, {x, t, w})
  end)
end)

describe("cross_entropy with probabilities", function()
  it("refuses an ignore_index, which names a label", function()
    local x = accelhost.zeros(2, 3)
    check.raises("cross_entropy: ignore_index goes with labels, not with probabilities", function()
      F.cross_entropy(x, x, {ignore_index = 1})
    end)
  end)
end)

describe("kl_div", function()
  it("is nan for negative targets, as PyTorch's xlogy, and -0 input for a target of 0", function()
    local loss = F.kl_div(accelhost.tensor {1, 1, 1}, accelhost.tensor {0, -1, 2}, {reduction = "none"})
    check.near({0, nan, 2 * math.log(2) - 2}, loss:tolist(), 1e-6)
  end)

  it("treats a 0-dim input as a batch of one", function()
    check.near(-1, F.kl_div(accelhost.tensor(1), accelhost.tensor(1), {reduction = "batchmean"}):item(), 1e-6)
  end)
end)
