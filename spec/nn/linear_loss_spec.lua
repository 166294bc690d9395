--- F.linear_cross_entropy: the numbers of linear and cross_entropy, in chunks. PyTorch's are in
--- spec/fixtures/modules/functions.json and linear.json.
local accelhost = require "accelhost"
local gradcheck = require "accelhost.autograd.gradcheck"
local check = require "spec.support.check"

local F, autograd = accelhost.nn.functional, accelhost.autograd

local ROWS, WIDTH, CLASSES = 37, 16, 50

-- Inputs of a dtype, labels and probabilities; two labels are left out.
local function draw(dtype)
  accelhost.manual_seed(1)
  local function leaf(...) return accelhost.randn(...):mul(0.5):to(dtype):requires_grad_() end
  local labels = accelhost.randint(0, CLASSES, {ROWS})
  for _, place in ipairs {2, 9} do labels[place] = -100 end
  local chances = accelhost.randn(ROWS, CLASSES):softmax(-1):to(dtype)
  return {x = leaf(ROWS, WIDTH), w = leaf(CLASSES, WIDTH), b = leaf(CLASSES), labels = labels, chances = chances,
    weight = accelhost.rand(CLASSES):to(dtype)}
end

-- Loss and gradients, of the two functions or in chunks of 8 rows.
local function both(given, options, target)
  local function run(loss)
    local scaled = loss:dim() > 0 and (loss * accelhost.arange(ROWS):to(loss.dtype)):sum() or loss * 3
    return {loss:detach(), unpack(autograd.grad({scaled}, {given.x, given.w, given.b}))}
  end
  local chunked = {linear_bias = given.b, options = {batch_chunk_size = 8}}
  for name, value in pairs(options) do chunked[name] = value end
  return run(F.cross_entropy(F.linear(given.x, given.w, given.b), target, options)),
    run(F.linear_cross_entropy(given.x, given.w, target, chunked))
end

local function assert_near(expected, found, tolerance)
  for i = 1, 4 do
    assert.equal(expected[i].dtype, found[i].dtype)
    local a, b = expected[i]:double(), found[i]:double()
    local far = ((a - b):abs():max() / a:abs():max()):item()
    assert.is_true(far <= tolerance, ("%d: %g"):format(i, far))
  end
end

describe("linear_cross_entropy", function()
  for dtype, tolerance in pairs {float64 = 1e-14, float32 = 1e-6, float16 = 2e-3, bfloat16 = 1.6e-2} do
    it("is cross_entropy of linear, and so are its gradients, in " .. dtype, function()
      local given = draw(dtype)
      for _, reduction in ipairs {"mean", "sum", "none"} do
        for _, options in ipairs {{}, {weight = given.weight, label_smoothing = 0.1}} do
          options.reduction = reduction
          for _, target in ipairs {given.labels, given.chances} do
            local expected, found = both(given, options, target)
            assert_near(expected, found, tolerance)
          end
        end
      end
    end)
  end

  it("has second derivatives", function()
    local given = draw "float64"
    local x = given.x:detach():narrow(0, 0, 5):narrow(1, 0, 3):clone():requires_grad_()
    local w = given.w:detach():narrow(0, 0, 4):narrow(1, 0, 3):clone():requires_grad_()
    local labels = accelhost.tensor({0, 3, -100, 1, 2}, {dtype = "int64"})
    for _, reduction in ipairs {"mean", "none"} do
      local function loss(a, b)
        return F.linear_cross_entropy(a, b, labels, {reduction = reduction, label_smoothing = 0.1,
          options = {batch_chunk_size = 2}})
      end
      gradcheck.gradcheck(loss, {x, w})
      gradcheck.gradgradcheck(loss, {x, w})
    end
  end)

  it("has the same gradients in a second backward", function()
    local given = draw "float32"
    for _, reduction in ipairs {"mean", "none"} do
      local loss = F.linear_cross_entropy(given.x, given.w, given.labels, {reduction = reduction,
        options = {batch_chunk_size = 5}}):sum() * 7
      local first = autograd.grad({loss}, {given.x, given.w}, {retain_graph = true})
      local second = autograd.grad({loss}, {given.x, given.w})
      for i = 1, 2 do assert.is_true(first[i]:equal(second[i])) end
    end
  end)

  it("computes the gradients that are wanted", function()
    local given = draw "float32"
    local options = {linear_bias = given.b:detach(), options = {batch_chunk_size = 8}}
    local x, w = given.x:detach(), given.w:detach()
    F.linear_cross_entropy(given.x, w, given.labels, options):backward()
    F.linear_cross_entropy(x, given.w, given.labels, options):backward()
    local expected = autograd.grad({F.cross_entropy(F.linear(given.x, given.w, options.linear_bias), given.labels)},
      {given.x, given.w})
    check.near(expected[1]:flatten():tolist(), given.x.grad:flatten():tolist(), 1e-6)
    check.near(expected[2]:flatten():tolist(), given.w.grad:flatten():tolist(), 1e-6)
    assert.is_false(F.linear_cross_entropy(x, w, given.labels, options).requires_grad)
    local without = autograd.no_grad(F.linear_cross_entropy, given.x, given.w, given.labels, options)
    assert.is_false(without.requires_grad)
  end)

  it("computes in halves under autocast, and returns float32", function()
    local given = draw "float32"
    local expected, found
    accelhost.autocast("cpu", {dtype = "bfloat16"}, function()
      expected, found = both(given, {weight = given.weight}, given.labels)
    end)
    assert_near(expected, found, 1.6e-2)
    assert.same({"float32", "float32"}, {found[1].dtype, found[3].dtype})
    check.near(expected[1]:item(), found[1]:item(), 1e-5)
  end)

  it("keeps gradients of a scaled loss in float16, of which a chunk's would underflow", function()
    -- A class of probability 1.2e-4: over 4096 rows float16 rounds that to 0.
    local w = accelhost.tensor({{0}, {-9}}, {dtype = "float16"}):requires_grad_()
    local loss = F.linear_cross_entropy(accelhost.ones({4096, 1}, {dtype = "float16"}), w,
      accelhost.zeros({4096}, {dtype = "int64"}), {options = {batch_chunk_size = 64}})
    loss:float():mul(1024):backward()
    local expected = 1024 / (1 + math.exp(9))
    check.near({-expected, expected}, w.grad:flatten():tolist(), 1e-3)
  end)

  it("is nan, with gradients of 0, where all labels are left out", function()
    local given = draw "float32"
    local loss = F.linear_cross_entropy(given.x, given.w, given.labels:clone():fill_(-100),
      {options = {batch_chunk_size = 8}})
    loss:backward()
    assert.is_true(loss:isnan():item())
    assert.same({0, 0}, {given.x.grad:abs():max():item(), given.w.grad:abs():max():item()})
  end)

  it("holds the logits of one chunk at a time", function()
    local rows, width, classes = 2048, 32, 8192 -- logits of 64 MiB
    local on_cpu, most = {device = "cpu"}, 0
    local x = accelhost.randn({rows, width}, on_cpu):requires_grad_()
    local w = accelhost.randn({classes, width}, on_cpu):requires_grad_()
    local labels = accelhost.randint(0, classes, {rows}, on_cpu)
    local linear, C = nil, require "accelhost._C"
    linear, C.linear = C.linear, function(...)
      most = math.max(most, accelhost.memory_stats("cpu").live)
      return linear(...)
    end
    collectgarbage()
    local before = accelhost.memory_stats("cpu").live
    local fine, loss = pcall(F.linear_cross_entropy, x, w, labels)
    C.linear = linear
    assert.is_true(fine, loss)
    loss:backward()
    assert.is_true(most > 0 and most - before < 16 * 2 ^ 20, ("%.1f MiB"):format((most - before) / 2 ^ 20))
  end)

  it("names the position of a label out of range in the whole of them, on the CPU", function()
    local given = draw "float32"
    given.labels[20] = CLASSES
    check.raises("linear_cross_entropy: target 50 at position 20 is outside 0..49", function()
      F.linear_cross_entropy(given.x:cpu(), given.w:cpu(), given.labels:cpu(), {options = {batch_chunk_size = 8}})
    end)
  end)

  it("names the argument that does not fit", function()
    local x, w, labels = accelhost.ones(3, 2), accelhost.zeros(4, 2), accelhost.zeros(3):long()
    for text, given in pairs {
      ["input: expected (in_features) or (N, in_features), got shape (3, 2, 1)"] = {x:unsqueeze(2), w, labels},
      ["linear_weight: expected (classes, ..., 2) for input (3, 2), got (4, 3)"] = {x, accelhost.zeros(4, 3), labels},
      ["target: expected labels (N) or probabilities (N, classes)"] = {x, w, labels:narrow(0, 0, 2)},
      ["ignore_index: it is for labels, the target has probabilities"] = {x, w, accelhost.zeros(3, 4),
        {ignore_index = 1}},
      ["linear_bias: expected the shape (4,) of linear_weight's classes, got (3,)"] = {x, w, labels,
        {linear_bias = accelhost.ones(3)}},
      ["label_smoothing: expected 0..1, got 2"] = {x, w, labels, {label_smoothing = 2}},
      ["options: unknown option 'chunks'"] = {x, w, labels, {options = {chunks = 2}}},
    } do
      check.raises("linear_cross_entropy: " .. text, function() F.linear_cross_entropy(unpack(given)) end)
    end
  end)
end)
