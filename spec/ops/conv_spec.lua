local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local run = require "spec.support.run"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional

local leaf = tensors.leaf

-- Does Winograd's filtering compute large 3x3 kernels? It needs vectors of 32 bytes (a processor with FMA, and a build
-- for it). Elsewhere a library computes them, whose sums may depend on the threads and on the batch.
local function has_winograd()
  local profile = accelhost.profiler.profile({}, function()
    F.conv2d(accelhost.ones(1, 32, 16, 16), accelhost.ones(32, 32, 3, 3))
  end)
  for _, event in ipairs(profile:events()) do
    if event.kernel == "own winograd float32" then return true end
  end
  return false
end

-- Assert equal bits where Winograd's filtering makes them, else equal numbers up to rounding.
local function same(wanted, found)
  if has_winograd() then
    assert.is_true(accelhost.equal(wanted, found))
  else
    check.near(0, ((wanted - found):abs():max() / wanted:abs():max()):item(), 1e-5)
  end
end

describe("conv2d", function()
  it("has first and second derivatives", function()
    local cases = {
      {leaf(2, 2, 4, 3), leaf(3, 2, 2, 2), leaf(3)},
      {leaf(1, 2, 5, 4), leaf(2, 2, 3, 2), leaf(2), {2, 1}, {1, 0}},
      {leaf(1, 2, 5, 5), leaf(2, 1, 2, 2), leaf(2), 1, 1, 2, 2},
      {leaf(2, 4, 4), leaf(1, 2, 1, 1), leaf(1)},
    }
    for _, inputs in ipairs(cases) do
      gradcheck.gradcheck(F.conv2d, inputs)
      gradcheck.gradgradcheck(F.conv2d, inputs)
    end
  end)

  -- {input, weight, stride, padding, dilation, groups}
  local cases = {
    {{2, 1, 12, 12}, {32, 1, 3, 3}},
    {{2, 32, 9, 8}, {64, 32, 3, 3}},
    {{2, 8, 9, 7}, {96, 8, 3, 3}, 1, 1},
    {{3, 3, 11, 11}, {32, 3, 5, 5}, 2, 2},
    {{2, 16, 10, 9}, {64, 16, 3, 3}, {1, 2}, {2, 1}, {2, 1}},
    {{2, 8, 8, 8}, {16, 4, 3, 3}, 1, 1, 1, 2},
    {{2, 16, 8, 8}, {16, 1, 3, 3}, 1, 1, 1, 16},
    {{2, 24, 6, 6}, {64, 24, 1, 1}},
    {{3, 40, 13, 12}, {24, 40, 1, 1}},
    {{3, 40, 13, 12}, {24, 40, 1, 1}, 2},
    {{3, 40, 13, 12}, {24, 40, 1, 1}, 1, 1},
    {{40, 13, 12}, {24, 40, 1, 1}},
    {{1, 5, 6, 7}, {7, 5, 2, 3}},
    {{16, 10, 9}, {64, 16, 3, 3}},
    {{2, 6, 1, 20}, {33, 6, 1, 5}},
    {{3, 17, 9, 7}, {33, 17, 3, 3}, 1, 1},
    {{5, 33, 7, 5}, {17, 33, 3, 2}, {2, 1}, 1, {1, 2}},
    {{2, 3, 11, 13}, {1, 3, 3, 3}},
    -- Those that Winograd's filtering computes.
    {{3, 48, 13, 10}, {80, 48, 3, 3}, 1, 1},
    {{2, 32, 9, 15}, {48, 32, 3, 3}, 1, 2},
    {{64, 14, 11}, {144, 64, 3, 3}, 1, {0, 1}},
    {{9, 160, 6, 7}, {32, 160, 3, 3}},
    {{5, 48, 17, 14}, {80, 48, 4, 4}, 2, 1},
    {{3, 128, 23, 32}, {64, 128, 4, 4}, 2, {3, 0}},
    {{64, 35, 34}, {32, 64, 4, 4}, 2, {2, 1}},
    {{3, 32, 25, 26}, {48, 32, 5, 5}, 2, 2},
    {{3, 32, 24, 37}, {64, 32, 6, 5}, 2, {5, 1}},
    {{3, 32, 33, 24}, {64, 32, 6, 6}, 2, 1},
    {{6, 32, 13, 14}, {48, 32, 4, 4}, 1, {1, 3}},
    {{5, 48, 15, 17}, {32, 48, 5, 6}, 1, {5, 1}},
    {{16, 32, 17, 18}, {48, 32, 7, 7}, 1, {3, 2}},
    {{9, 32, 10, 11}, {32, 32, 2, 3}, 1, 1},
    -- Those whose weight's gradient is a product for each item of the kernel.
    {{3, 64, 7, 8}, {96, 64, 3, 3}, 2, 1},
    {{2, 128, 13, 17}, {128, 128, 3, 2}, {2, 3}, {0, 1}, {1, 2}},
    {{9, 64, 1, 2}, {64, 64, 3, 3}, 1, 1},
    {{128, 9, 8}, {130, 128, 2, 2}, 2},
    -- Those whose kernel covers the image.
    {{5, 36, 4, 3}, {70, 36, 4, 3}},
    {{7, 1, 5, 5}, {3, 1, 5, 5}, 2},
    {{17, 3, 2}, {1, 17, 3, 2}},
    -- Those with few outputs, or few inputs in the input's gradient.
    {{3, 32, 19, 37}, {3, 32, 9, 9}, 1, 4},
    {{2, 256, 14, 9}, {1, 256, 3, 3}, 1, {0, 2}},
    {{64, 12, 11}, {2, 64, 5, 3}, 1, {4, 0}, {2, 1}},
    {{2, 1, 23, 18}, {96, 1, 4, 4}, 2, 1},
    {{2, 3, 23, 18}, {64, 3, 5, 5}, {1, 3}, {6, 1}, {1, 2}},
    {{1, 20, 27}, {48, 1, 7, 7}, 2, 3},
  }

  -- The result and the gradients of a case, in float32.
  local function results(case, dtype, order)
    accelhost.manual_seed(3)
    local inputs = {}
    for i, shape in ipairs {case[1], case[2], {case[2][1]}} do
      inputs[i] = accelhost.randn(shape):to(dtype):requires_grad_()
    end
    local x, w, b = unpack(inputs)
    local y = F.conv2d(order(x), w, b, unpack(case, 3))
    assert.equal(dtype, y.dtype)
    assert.is_true(y:is_contiguous())
    y:backward(order(accelhost.randn(y:shape()):to(dtype)))
    return {y:detach():float(), x.grad:float(), w.grad:float(), b.grad:float()}
  end

  for _, dtype in ipairs {"float32", "bfloat16", "float16"} do
    it("agrees between " .. dtype .. " and float64, kernel by kernel", function()
      for _, case in ipairs(cases) do
        local function conv(x, w, b) return F.conv2d(x, w, b, unpack(case, 3)) end
        precision.agree(conv, {case[1], case[2], {case[2][1]}}, nil, dtype)
      end
    end)

    it("returns the same of " .. dtype .. " in both memory orders", function()
      for _, case in ipairs(cases) do
        local function last(t) return t:dim() == 4 and t:contiguous {memory_format = "channels_last"} or t end
        local plain, ordered = results(case, dtype, function(t) return t end), results(case, dtype, last)
        for i, wanted in ipairs(plain) do
          local off = ((wanted - ordered[i]):abs():max() / wanted:abs():max()):item()
          assert.is_true(off < (dtype == "float32" and 1e-5 or 0.008), ("result %d is off by %g"):format(i, off))
        end
      end
    end)
  end

  for _, dtype in ipairs {"float32", "bfloat16"} do
    it("agrees between " .. dtype .. " and float64 as one product over the pixels, without a bias", function()
      for _, shapes in ipairs {{{3, 33, 9, 7}, {65, 33, 1, 1}}, {{2, 1200, 2, 3}, {900, 1200, 1, 1}},
        {{2, 65, 5, 3}, {33, 65, 1, 1}}, {{64, 7, 5}, {96, 64, 1, 1}}} do
        precision.agree(F.conv2d, shapes, nil, dtype)
        for _, stride in ipairs {2, {1, 3}, {3, 2}} do
          precision.agree(function(x, w) return F.conv2d(x, w, nil, stride) end, shapes, nil, dtype)
        end
      end
    end)
  end

  -- {input, weight, stride, padding} that Winograd's filtering computes, of bfloat16 too.
  for _, case in ipairs {{{3, 48, 13, 10}, {80, 48, 3, 3}, 1, 1}, {{12, 128, 17, 15}, {48, 128, 4, 4}, 2, 1}} do
    local size, stride, padding = case[2][3], case[3], case[4]
    it(("filters images of bfloat16 in float32 and rounds once, kernels of %dx%d"):format(size, size), function()
      accelhost.manual_seed(4)
      local function result(x, w, b, g)
        local y = F.conv2d(x, w, b, stride, padding)
        g = g:narrow(2, 0, y:size(2)):narrow(3, 0, y:size(3))
        return {y, C.conv2d_grad_input(g, w, x:shape(), stride, padding, 1, 1),
          C.conv2d_grad_weight(g, x, w:shape(), stride, padding, 1, 1)}
      end
      local kernel
      local halves, wide = {}, {}
      for i, shape in ipairs {case[1], case[2], {case[2][1]}, {case[1][1], case[2][1], 13, 10}} do
        halves[i] = accelhost.randn(shape):to "bfloat16"
        wide[i] = halves[i]:float()
      end
      local found
      local profile = accelhost.profiler.profile({}, function() found = result(unpack(halves)) end)
      for _, event in ipairs(profile:events()) do kernel = event.kernel or kernel end
      for i, wanted in ipairs(result(unpack(wide))) do
        if kernel == "own winograd bfloat16" then
          assert.is_true(accelhost.equal(wanted:to "bfloat16", found[i]), i)
        else
          check.near(0, ((wanted - found[i]:float()):abs():max() / wanted:abs():max()):item(), 0.008)
        end
      end
    end)
  end

  it("writes within its memory on a processor with AVX2 alone, for any number of channels", function()
    local result = run.host({"-e", [[
      local accelhost = require "accelhost"
      for c = 1, 12 do
        for _ = 1, 3 do
          local conv = accelhost.nn.Conv2d(c, 8, 1, {stride = 2})
          conv(accelhost.randn(4, c, 16, 16):to {memory_format = "channels_last"}):sum():backward()
        end
      end]]}, {env = {ONEDNN_MAX_CPU_ISA = "AVX2"}})
    assert.equal(0, result.code, result.output)
  end)

  it("keeps its layout to itself", function()
    accelhost.manual_seed(1)
    local x, w1, w2 = accelhost.randn {2, 3, 7, 6}, accelhost.randn {8, 3, 3, 3}, accelhost.randn {4, 8, 2, 2}
    local function net(a, u, v)
      local first = F.relu(F.conv2d(a, u))
      local looked_at = first:sum(3):mean() -- a door that wants row-major order, between two that do not
      return F.conv2d(first, v) + looked_at
    end
    precision.agree(net, {x:shape(), w1:shape(), w2:shape()}, 1e-4)
    local y = F.conv2d(x, w1)
    local element = y[{1, 5, 2, 3}]:item()
    check.near(element, y:permute(0, 2, 3, 1):contiguous()[{1, 2, 3, 5}]:item(), 0)
    assert.same({2, 8, 5, 4}, y:shape())
    check.near(element, y:reshape(-1):tolist()[1 * 160 + 5 * 20 + 2 * 4 + 3 + 1], 0)
  end)

  it("has second derivatives in float32 too", function()
    local function penalty(x, w)
      local g = accelhost.autograd.grad({F.conv2d(x, w):pow(2):sum()}, {x}, {create_graph = true})
      return g[1]:pow(2):sum()
    end
    precision.agree(penalty, {{2, 3, 6, 6}, {32, 3, 3, 3}}, 1e-4)
  end)

  it("accepts an empty batch", function()
    local w = accelhost.ones(4, 2, 3, 3):requires_grad_()
    local y = F.conv2d(accelhost.zeros(0, 2, 5, 5), w)
    assert.same({0, 4, 3, 3}, y:shape())
    y:sum():backward()
    assert.equal(0, w.grad:sum():item())
  end)

  it("has a weight gradient that does not depend on the number of threads", function()
    accelhost.manual_seed(2)
    local x, g, threads = accelhost.randn {4, 8, 12, 12}, accelhost.randn {4, 64, 10, 10}, accelhost.get_num_threads()
    local function gradient(count)
      accelhost.set_num_threads(count)
      return C.conv2d_grad_weight(g, x, {64, 8, 3, 3}, 1, 0, 1, 1):reshape(-1):tolist()
    end
    local one, three = gradient(1), gradient(3)
    accelhost.set_num_threads(threads)
    check.near(one, three, 1e-5) -- libraries used elsewhere may round differently
  end)

  it("computes large kernels to the same bits on any number of threads", function()
    local threads = accelhost.get_num_threads()
    -- n, c, h, w, out, kernel, stride
    for _, sizes in ipairs {{5, 64, 21, 18, 96, 3, 1}, {3, 64, 19, 18, 96, 3, 1}, {3, 256, 9, 8, 160, 3, 1},
      {40, 32, 30, 30, 48, 3, 1}, {5, 64, 21, 30, 96, 4, 2}, {20, 128, 15, 16, 272, 4, 2}, {40, 32, 30, 30, 48, 4, 2},
      {4, 64, 30, 29, 80, 5, 2}, {4, 64, 20, 29, 80, 5, 1}} do
      accelhost.manual_seed(2)
      local n, c, h, w, out, kernel, stride = unpack(sizes)
      local x, weight = accelhost.randn(n, c, h, w), accelhost.randn(out, c, kernel, kernel)
      local g = accelhost.randn_like(F.conv2d(x, weight, nil, stride, 1))
      local first
      for count = 1, 3 do
        accelhost.set_num_threads(count)
        local all = {F.conv2d(x, weight, nil, stride, 1),
          C.conv2d_grad_input(g, weight, x:shape(), stride, 1, 1, 1),
          C.conv2d_grad_weight(g, x, weight:shape(), stride, 1, 1, 1)}
        first = first or all
        for i, result in ipairs(all) do same(first[i], result) end
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("computes few outputs to the same bits on any number of threads, alone and in a batch", function()
    local threads = accelhost.get_num_threads()
    accelhost.manual_seed(2)
    local n = 3
    local images, weight = accelhost.randn(n, 32, 61, 50), accelhost.randn(3, 32, 5, 5)
    local bias, kernels = accelhost.randn(3), accelhost.randn(32, 3, 4, 4)
    local function outputs(x)
      return {F.conv2d(x, weight, bias, 1, 2), F.conv_transpose2d(x, kernels, bias, {stride = 2, padding = 1})}
    end
    local whole = outputs(images)
    for count = 1, 3 do
      accelhost.set_num_threads(count)
      for i, y in ipairs(outputs(images)) do assert.is_true(accelhost.equal(whole[i], y)) end
      for image = 0, n - 1 do
        for i, y in ipairs(outputs(images:narrow(0, image, 1))) do
          assert.is_true(accelhost.equal(whole[i]:narrow(0, image, 1), y))
        end
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("computes an image with a large 3x3 kernel to the same bits alone and in a batch", function()
    accelhost.manual_seed(2)
    local n = 23 -- blocks of tiles end within the batch
    local x, weight, g = accelhost.randn(n, 512, 13, 16), accelhost.randn(96, 512, 3, 3), accelhost.randn(n, 96, 13, 16)
    local y, sum = F.conv2d(x, weight, nil, 1, 1), accelhost.zeros(weight:shape())
    for i = 1, n do
      local image, gradient = x:narrow(0, i - 1, 1), g:narrow(0, i - 1, 1)
      same(F.conv2d(image, weight, nil, 1, 1), y:narrow(0, i - 1, 1))
      sum = sum + C.conv2d_grad_weight(gradient, image, {96, 512, 3, 3}, 1, 1, 1, 1)
    end
    local whole = C.conv2d_grad_weight(g, x, {96, 512, 3, 3}, 1, 1, 1, 1)
    check.near(0, ((whole - sum):abs():max() / sum:abs():max()):item(), 1e-5)
  end)

  it("sums the gradient of a half weight in float32 and rounds once, on any number of threads", function()
    local threads = accelhost.get_num_threads()
    for _, dtype in ipairs {"bfloat16", "float16"} do
      for _, out in ipairs {8, 33} do
        local x, g = accelhost.ones(8, 5, 20, 20, {dtype = dtype}), accelhost.ones(8, out, 18, 18, {dtype = dtype})
        for count = 1, 3 do
          accelhost.set_num_threads(count)
          local gradient = C.conv2d_grad_weight(g, x, {out, 5, 3, 3}, 1, 0, 1, 1)
          assert.equal(dtype, gradient.dtype)
          assert.is_true(gradient:eq(2592):all():item()) -- sums in 8 bits end at 256
        end
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("computes halves through float32", function()
    local x, w = accelhost.randn {1, 2, 5, 5}, accelhost.randn {3, 2, 3, 3}
    local y = F.conv2d(x:to("bfloat16"), w:to("bfloat16"))
    assert.equal("bfloat16", y.dtype)
    check.near(check.flat(F.conv2d(x, w)), y:to("float32"), 0.1)
  end)

  it("reports which shapes do not fit", function()
    check.raises("conv2d: input (1, 3, 8, 8) does not fit weight (32, 1, 3, 3) with groups = 1", function()
      F.conv2d(accelhost.zeros(1, 3, 8, 8), accelhost.zeros(32, 1, 3, 3))
    end)
    check.raises("conv2d: expected input (N, C, H, W) or (C, H, W), got (8, 8)", function()
      F.conv2d(accelhost.zeros(8, 8), accelhost.zeros(1, 1, 3, 3))
    end)
    check.raises("is larger than the padded input (1, 1, 2, 2)", function()
      F.conv2d(accelhost.zeros(1, 1, 2, 2), accelhost.zeros(1, 1, 3, 3))
    end)
    check.raises("conv2d: stride: expected at least 1", function()
      F.conv2d(accelhost.zeros(1, 1, 4, 4), accelhost.zeros(1, 1, 3, 3), {stride = 0})
    end)
    check.raises("conv2d: bias (2,) does not fit weight (1, 1, 3, 3)", function()
      F.conv2d(accelhost.zeros(1, 1, 4, 4), accelhost.zeros(1, 1, 3, 3), accelhost.zeros(2))
    end)
    check.raises("conv2d: dtypes differ", function()
      F.conv2d(accelhost.zeros(1, 1, 4, 4), accelhost.zeros({1, 1, 3, 3}, {dtype = "float64"}))
    end)
  end)
end)

describe("each convolution", function()
  it("names itself when dtypes do not fit", function()
    for name, shapes in pairs {
      conv1d = {{1, 1, 4}, {1, 1, 2}}, conv2d = {{1, 1, 4, 4}, {1, 1, 2, 2}},
      conv_transpose1d = {{1, 1, 4}, {1, 1, 2}}, conv_transpose2d = {{1, 1, 4, 4}, {1, 1, 2, 2}},
    } do
      local x, w = accelhost.ones(shapes[1]), accelhost.ones(shapes[2])
      check.raises(name .. ": expected a floating input, got int64", function() F[name](x:long(), w:long()) end)
      check.raises(name .. ": dtypes differ: input is float32, weight is float64",
        function() F[name](x, w:double()) end)
    end
  end)
end)

describe("conv_transpose2d", function()
  it("is conv2d's adjoint", function()
    local x, w = leaf(2, 3, 6, 5), leaf(4, 3, 3, 2)
    local y = F.conv2d(x, w, nil, 2, 1)
    local g = accelhost.randn(y:shape(), {dtype = "float64"})
    y:backward(g)
    local back = F.conv_transpose2d(g, w:detach(), nil, 2, 1, {1, 1})
    check.near(check.flat(x.grad), back, 1e-12)
  end)

  it("has first and second derivatives", function()
    local inputs = {leaf(1, 2, 3, 3), leaf(2, 2, 2, 2), leaf(2), 2, 1, 1}
    gradcheck.gradcheck(F.conv_transpose2d, inputs)
    gradcheck.gradgradcheck(F.conv_transpose2d, inputs)
  end)

  it("agrees between float32 and float64", function()
    precision.agree(function(x, w, b) return F.conv_transpose2d(x, w, b, 2, 1, 1) end,
      {{2, 32, 5, 5}, {32, 8, 3, 3}, {8}})
  end)

  it("reports mismatched arguments", function()
    check.raises("output_padding must be below stride or dilation", function()
      F.conv_transpose2d(accelhost.zeros(1, 2, 3, 3), accelhost.zeros(2, 1, 2, 2), nil, 1, 0, 1)
    end)
    check.raises("conv_transpose2d: input (1, 3, 3, 3) does not fit weight (2, 1, 2, 2)", function()
      F.conv_transpose2d(accelhost.zeros(1, 3, 3, 3), accelhost.zeros(2, 1, 2, 2))
    end)
  end)
end)

describe("conv1d", function()
  it("slides along the last dim", function()
    local x = accelhost.tensor {{{1, 2, 3, 4}}}
    local w = accelhost.tensor {{{1, -1}}}
    assert.same({{{-1, -1, -1}}}, F.conv1d(x, w):tolist())
    assert.same({{{-1, -1}}}, F.conv1d(x, w, nil, 2):tolist())
    assert.same({{-1, -1, -1}}, F.conv1d(x[0], w):tolist())
    gradcheck.gradcheck(F.conv1d, {leaf(2, 3, 5), leaf(2, 3, 2), leaf(2), 1, 1, 2})
  end)

  it("reports the expected arguments", function()
    check.raises("conv1d: expected input (N, C, L) or (C, L), got (2,)", function()
      F.conv1d(accelhost.zeros(2), accelhost.zeros(1, 1, 1))
    end)
  end)
end)
