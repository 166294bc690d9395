local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local F = accelhost.nn.functional
local nan, inf = 0 / 0, math.huge

-- A convolution that changes nothing but leaves its result in its own memory order.
local function in_other_order(x)
  local channels = x:size(1)
  local eye = accelhost.eye(channels):reshape(channels, channels, 1, 1)
  return F.conv2d(x, eye)
end

describe("windows of 2 x 2 and 2 x 1 side by side", function()
  it("have the means and gradients of their numbers", function()
    accelhost.manual_seed(7)
    for _, width in ipairs {2, 3, 7, 16, 17, 37} do
      for _, columns in ipairs {1, 2} do
        for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
          local x = accelhost.randn(2, 3, 7, width):to(dtype)
          local kept, sum = width - width % columns, 0
          for column = 0, columns - 1 do
            for row = 0, 1 do
              local part = x:double():narrow(2, 0, 6):reshape(2, 3, 3, 2, width):select(3, row)
              sum = sum + part:narrow(3, 0, kept):reshape(2, 3, 3, -1, columns):select(4, column)
            end
          end
          local wanted = (sum / (2 * columns)):to(dtype)
          check.near(check.flat(wanted), F.avg_pool2d(x, {2, columns}), 0)
          check.near(check.flat((sum / 5):to(dtype)), F.avg_pool2d(x, {2, columns}, nil, 0, false, true, 5), 0)
        end
      end
    end
  end)
end)

describe("max_pool2d", function()
  it("selects the first of equals, lets nan win and padding lose", function()
    local x = accelhost.tensor {{{{1, 1, nan, 3}, {1, 1, 3, 3}}}}
    local y, index = F.max_pool2d(x, 2, {return_indices = true})
    check.near({1, nan}, y, 0)
    assert.same({{{{0, 2}}}}, index:tolist())
    local negative = accelhost.full({1, 1, 2, 2}, -inf)
    local padded, where = F.max_pool2d(negative, 2, 2, 1, 1, false, true)
    assert.same({{{{-inf, -inf}, {-inf, -inf}}}}, padded:tolist())
    assert.same({{{{0, 1}, {2, 3}}}}, where:tolist())
  end)

  it("returns the same in both memory orders", function()
    accelhost.manual_seed(4)
    local cases = {{2}, {3, 2, 1}, {3, 1}, {{2, 3}, {1, 2}, {1, 0}}, {2, 2, 0, 2}, {2, 3}, {3, 2, 1, 1, true}}
    for _, channels in ipairs {3, 16, 37} do
      local x = accelhost.randn {3, channels, 7, 9}
      for _, options in ipairs(cases) do
        local plain, other = x:clone():requires_grad_(), x:clone():requires_grad_()
        local expected = F.max_pool2d(plain, unpack(options))
        local got = F.max_pool2d(in_other_order(other), unpack(options))
        assert.same(expected:shape(), got:shape())
        check.near(check.flat(expected), got, 1e-6)
        local g = accelhost.randn(expected:shape())
        expected:backward(g)
        got:backward(g)
        check.near(check.flat(plain.grad), other.grad, 1e-6)
      end
    end
  end)

  -- Every seventh number is one that maxima treat specially.
  local function special(shape, dtype)
    local x = (accelhost.randn(shape) * 2):round()
    local values = {nan, 0, neg0, inf, -inf, -nan, 0}
    local at = accelhost.arange(x:numel()):view(x:shape())
    for i, value in ipairs(values) do x = accelhost.where(at:remainder(49):eq(7 * i - 7), value, x) end
    return x:to(dtype)
  end

  for _, dtype in ipairs {"float32", "bfloat16", "float16"} do
    it("returns the same bits and gradients of " .. dtype .. " in both memory orders", function()
      accelhost.manual_seed(5)
      local cases = {{2}, {3, 2, 1}, {3, 1}, {{2, 3}, {1, 2}, {1, 0}}, {2, 2, 0, 2}, {2, 3}, {3, 2, 1, 1, true},
        {2, 2, 1, 1, true}, {2, 3, 1, 4}, {{2, 1}}, {2, 2, 0, 1, true}}
      for _, channels in ipairs {1, 3, 17, 33, 64} do
        local x = special({3, channels, 9, channels == 3 and 37 or 11}, dtype)
        for _, options in ipairs(cases) do
          local plain, other = x:clone():requires_grad_(), x:clone():requires_grad_()
          local last = other:contiguous {memory_format = "channels_last"}
          local expected, got = F.max_pool2d(plain, unpack(options)), F.max_pool2d(last, unpack(options))
          assert.equal(dtype, got.dtype)
          check.near(check.flat(expected), got, 0)
          check.near(check.flat(1 / expected), 1 / got, 0) -- the signs of zeros
          local g = accelhost.randn(expected:shape()):to(dtype)
          expected:backward(g)
          got:backward(g:contiguous {memory_format = "channels_last"})
          check.near(check.flat(plain.grad), other.grad, 0)
          local o = options
          local _, index = F.max_pool2d(x, o[1], o[2], o[3] or 0, o[4] or 1, o[5] or false, true)
          local _, same = F.max_pool2d(last:detach(), o[1], o[2], o[3] or 0, o[4] or 1, o[5] or false, true)
          assert.is_true(accelhost.equal(index, same))
        end
      end
    end)
  end

  it("reports the index of each maximum, whatever the window", function()
    accelhost.manual_seed(6)
    for _, dtype in ipairs {"float32", "float64", "float16"} do
      local x = accelhost.randn({2, 3, 11, 13}, {dtype = "float32"}):to(dtype)
      local windows = {{2}, {3, 1, 1}, {3, 2, 1}, {{2, 5}, {3, 4}, {1, 2}}, {3, 3, 0, 2}, {2, 3, 1, 4},
        {4, 2, 2, 1, true}}
      for _, o in ipairs(windows) do
        local y, index = F.max_pool2d(x, o[1], o[2], o[3] or 0, o[4] or 1, o[5] or false, true)
        local picked = x:reshape(6, -1):gather(1, index:reshape(6, -1))
        assert.is_true(accelhost.equal(y:reshape(6, -1), picked), dtype)
        assert.is_true(accelhost.equal(y, F.max_pool2d(x, o[1], o[2], o[3] or 0, o[4] or 1, o[5] or false)), dtype)
      end
    end
  end)

  it("lets nan win in the other memory order too", function()
    local x = accelhost.zeros(1, 20, 4, 4)
    x:select(2, 1):fill_(nan) -- a convolution spreads nan over channels, so a whole row
    local y = F.max_pool2d(in_other_order(x), 2)
    local wanted = {}
    for _ = 1, 20 do
      for _, value in ipairs {nan, nan, 0, 0} do wanted[#wanted + 1] = value end
    end
    check.near(wanted, y, 0)
  end)

  it("has gradients", function()
    local x = (accelhost.randperm(2 * 3 * 5 * 5):to("float64") * 0.1):reshape(2, 3, 5, 5):requires_grad_()
    gradcheck.gradcheck(function(t) return F.max_pool2d(t, 2) end, {x})
    gradcheck.gradcheck(function(t) return F.max_pool2d(t, 3, 2, 1) end, {x})
    gradcheck.gradcheck(function(t) return F.max_pool2d(t, 2, 2, 0, 1, true) end, {x})
  end)

  it("rounds up with ceil_mode, but no window begins outside", function()
    local x = accelhost.zeros(1, 1, 5, 7)
    assert.same({1, 1, 3, 4}, F.max_pool2d(x, 2, 2, 0, 1, true):shape())
    assert.same({1, 1, 2, 3}, F.max_pool2d(x, 2):shape())
    assert.same({1, 1, 3, 4}, F.max_pool2d(x, 2, 2, 1, 1, true):shape())
  end)

  it("covers whole planes of more than 256 places in both memory orders", function()
    local x = accelhost.randn {2, 20, 17, 33}
    local expected = x:amax({2, 3}, true)
    for _, input in ipairs {x, in_other_order(x)} do
      accelhost.no_grad(function() check.near(check.flat(expected), F.max_pool2d(input, {17, 33}), 1e-6) end)
      local leaf = input:clone():requires_grad_()
      F.max_pool2d(leaf, {17, 33}):sum():backward()
      assert.equal(40, leaf.grad:sum():item())
    end
  end)

  it("accepts a window far larger than the input, but not one whose places cannot be counted", function()
    local x = accelhost.arange(16):to("float32"):reshape(1, 1, 4, 4)
    local y = F.max_pool2d(x, {2 ^ 28, 3}, {stride = {2 ^ 28, 1}, padding = {2 ^ 27, 1}})
    assert.same({{{{13, 14, 15, 15}}}}, y:tolist())
    check.raises("max_pool2d: kernel_size (65536, 65536) has more than 2147483647 places", function()
      F.max_pool2d(x, 65536, {padding = 32768})
    end)
    check.raises("avg_pool2d: stride: expected at most 2147483647, got (4294967296, 4294967296)", function()
      F.avg_pool2d(x, 2, 2 ^ 32)
    end)
  end)

  it("accepts planes without a batch, and an empty batch", function()
    assert.same({2, 2, 2}, F.max_pool2d(accelhost.zeros(2, 4, 4), 2):shape())
    assert.same({0, 2, 2, 2}, F.max_pool2d(accelhost.zeros(0, 2, 4, 4), 2):shape())
  end)

  it("reports mismatched arguments", function()
    check.raises("max_pool2d: padding (2, 2) is more than half of kernel_size (2, 2)", function()
      F.max_pool2d(accelhost.zeros(1, 1, 4, 4), 2, 2, 2)
    end)
    check.raises("max_pool2d: kernel_size (5, 5) is larger than the padded input (1, 1, 4, 4)", function()
      F.max_pool2d(accelhost.zeros(1, 1, 4, 4), 5)
    end)
    check.raises("max_pool2d: expected input (N, C, H, W) or (C, H, W), got (4, 4)", function()
      F.max_pool2d(accelhost.zeros(4, 4), 2)
    end)
    for _, name in ipairs {"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"} do
      check.raises(name .. ": expected a floating input, got int64", function()
        F[name](accelhost.zeros({1, 4, 4}, {dtype = "int64"}), 2)
      end)
    end
  end)
end)

describe("avg_pool2d", function()
  it("counts padding unless configured otherwise, or divides by its argument", function()
    local x = accelhost.ones(1, 1, 2, 2)
    assert.same({{{{0.25, 0.25}, {0.25, 0.25}}}}, F.avg_pool2d(x, 2, 2, 1):tolist())
    assert.same({{{{1, 1}, {1, 1}}}}, F.avg_pool2d(x, 2, 2, 1, false, false):tolist())
    assert.same({{{{2}}}}, F.avg_pool2d(x, 2, {divisor_override = 2}):tolist())
  end)

  it("averages the windows of rows longer than a block, at every border", function()
    local function expected(x, kernel, stride, padding, oh, ow, count_padding)
      local rows, h, w, result = x:tolist()[1][1], x:size(2), x:size(3), {}
      for o = 0, oh * ow - 1 do
        local top, left = math.floor(o / ow) * stride - padding[1], o % ow * stride - padding[2]
        local bottom, right = math.min(top + kernel[1], h + padding[1]), math.min(left + kernel[2], w + padding[2])
        local sum, inside = 0, 0
        for i = math.max(top, 0), math.min(bottom, h) - 1 do
          for j = math.max(left, 0), math.min(right, w) - 1 do sum, inside = sum + rows[i + 1][j + 1], inside + 1 end
        end
        result[o + 1] = sum / (count_padding and (bottom - top) * (right - left) or inside)
      end
      return result
    end
    for _, case in ipairs {{{2, 2}, 2, {0, 0}}, {{3, 3}, 1, {1, 1}}, {{3, 2}, 2, {0, 1}}, {{2, 5}, 3, {1, 2}},
      {{4, 20}, 1, {2, 0}}, {{1, 4}, 4, {0, 2}}} do
      local x = accelhost.randn({1, 1, 7, 301}, {dtype = "float64"})
      local kernel, stride, padding = unpack(case)
      for mode = 0, 3 do
        local count_padding = mode % 2 == 0
        local result = F.avg_pool2d(x, kernel, stride, padding, mode > 1, count_padding)
        local numbers = expected(x, kernel, stride, padding, result:size(2), result:size(3), count_padding)
        check.near(numbers, result, 1e-12)
        check.near(numbers, F.avg_pool2d(x:float(), kernel, stride, padding, mode > 1, count_padding), 1e-6)
      end
    end
  end)

  it("spreads gradients over the windows of such rows, as the adjoint of the average", function()
    for _, case in ipairs {{{2, 2}, 2, {0, 0}}, {{3, 3}, 1, {1, 1}}, {{3, 2}, 2, {0, 1}}, {{2, 5}, 3, {1, 2}},
      {{4, 20}, 1, {2, 0}}, {{1, 4}, 4, {0, 2}}, {{1, 3}, 1, {0, 1}}} do
      for _, width in ipairs {5, 25, 130, 301} do
        if width > case[1][2] then
          local x = accelhost.randn({1, 2, 7, width}, {dtype = "float64"}):requires_grad_()
          local result = F.avg_pool2d(x, case[1], case[2], case[3], true, false)
          local g = accelhost.randn(result:shape()):double()
          result:backward(g)
          -- a unit vector's average, times g, is the element of the adjoint
          for _, at in ipairs {0, 1, 4, math.floor(width / 2), width - 2, width - 1} do
            local unit = accelhost.zeros(x:shape()):double()
            unit[0][1][3][at] = 1
            local wanted = (F.avg_pool2d(unit, case[1], case[2], case[3], true, false) * g):sum():item()
            assert.is_true(math.abs(x.grad[0][1][3][at]:item() - wanted) < 1e-12)
          end
          local single = x:detach():float():requires_grad_()
          F.avg_pool2d(single, case[1], case[2], case[3], true, false):backward(g:float())
          check.near(check.flat(x.grad), single.grad, 1e-5)
        end
      end
    end
  end)

  it("has first and second derivatives", function()
    local x = accelhost.randn({1, 2, 5, 4}, {dtype = "float64"}):requires_grad_()
    for _, options in ipairs {{2}, {3, 2, 1}, {3, 2, 1, true, false}} do
      local function pool(t) return F.avg_pool2d(t, unpack(options)) end
      gradcheck.gradcheck(pool, {x})
      gradcheck.gradgradcheck(pool, {x})
    end
  end)

  it("agrees between float32 and float64 behind a convolution", function()
    precision.agree(function(x, w) return F.avg_pool2d(F.conv2d(x, w), 2) end, {{2, 3, 9, 9}, {8, 3, 2, 2}})
  end)
end)

describe("adaptive_avg_pool2d", function()
  it("shares out sizes that do not divide", function()
    local x = accelhost.arange(5):to("float32"):reshape(1, 1, 1, 5)
    assert.same({{{{0.5, 2, 3.5}}}}, F.adaptive_avg_pool2d(x, {1, 3}):tolist())
  end)

  it("averages equal parts like windows side by side", function()
    local x = accelhost.randn(2, 3, 12, 400)
    assert.is_true(F.avg_pool2d(x, {4, 2}):equal(F.adaptive_avg_pool2d(x, {3, 200})))
    assert.is_true(F.avg_pool2d(x, {3, 100}):equal(F.adaptive_avg_pool2d(x, {4, 4})))
  end)

  it("has first and second derivatives", function()
    local x = accelhost.randn({1, 2, 5, 4}, {dtype = "float64"}):requires_grad_()
    local function pool(t) return F.adaptive_avg_pool2d(t, {2, 3}) end
    gradcheck.gradcheck(pool, {x})
    gradcheck.gradgradcheck(pool, {x})
  end)
end)

describe("the average of a large plane", function()
  it("is right to the last digits of float32", function()
    accelhost.manual_seed(1)
    local x = accelhost.rand(1, 1, 512, 512) + 1
    local expected = x:to("float64"):mean():item()
    assert.is_true(math.abs(F.adaptive_avg_pool2d(x, 1):item() / expected - 1) < 1e-7)
    assert.is_true(math.abs(F.avg_pool2d(x, 512):item() / expected - 1) < 1e-7)
  end)
end)

describe("pooling along one dim", function()
  it("works on (N, C, L)", function()
    local x = accelhost.tensor {{{1, 5, 2, 4}}}
    assert.same({{{5, 4}}}, F.max_pool1d(x, 2):tolist())
    assert.same({{{3, 3}}}, F.avg_pool1d(x, 2):tolist())
    assert.same({{{3}}}, F.adaptive_avg_pool1d(x, 1):tolist())
    check.raises("max_pool1d: expected input (N, C, L) or (C, L), got (4,)", function()
      F.max_pool1d(accelhost.zeros(4), 2)
    end)
  end)
end)

describe("max pooling of no samples", function()
  it("has a derivative with create_graph", function()
    local x = accelhost.zeros({0, 1, 4}):requires_grad_()
    local y = accelhost.nn.functional.max_pool1d(x, 2)
    local slope = unpack(accelhost.autograd.grad(y:sum(), {x}, {create_graph = true}))
    assert.same({0, 1, 4}, slope:shape())
  end)
end)
