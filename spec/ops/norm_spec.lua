local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local nn, F = accelhost.nn, accelhost.nn.functional

local leaf = tensors.leaf

describe("batch_norm", function()
  it("moves the running statistics, with the unbiased variance", function()
    local x = accelhost.tensor {{1, 10}, {3, 30}}
    local mean, var = accelhost.zeros(2), accelhost.ones(2)
    local y = F.batch_norm(x, mean, var, nil, nil, true, 0.5, 1e-12)
    check.near({-1, -1, 1, 1}, y, 1e-6)
    check.near({1, 10}, mean, 1e-6)
    check.near({0.5 + 0.5 * 2, 0.5 + 0.5 * 200}, var, 1e-6)
  end)

  it("uses the running statistics outside of training and leaves them alone", function()
    local mean, var = accelhost.tensor {1, 2}, accelhost.tensor {4, 9}
    local y = F.batch_norm(accelhost.tensor {{3, 8}}, mean, var, nil, nil, false, 0.1, 0)
    check.near({1, 2}, y, 1e-6)
    assert.same({1, 2}, mean:tolist())
    assert.same({4, 9}, var:tolist())
  end)

  it("notices running statistics that were written while a graph holds them", function()
    local mean, var = accelhost.zeros(3), accelhost.ones(3)
    local before = mean._version
    F.batch_norm(accelhost.randn {4, 3}, mean, var, nil, nil, true)
    assert.is_true(before == nil or mean._version > before)
  end)

  it("has gradients in training and outside, with and without an affine part", function()
    local mean, var = accelhost.zeros({3}, {dtype = "float64"}), accelhost.ones({3}, {dtype = "float64"}) * 2
    for _, shape in ipairs {{4, 3}, {2, 3, 2}, {2, 3, 2, 2}} do
      for _, training in ipairs {true, false} do
        local function affine(x, w, b) return F.batch_norm(x, mean:clone(), var:clone(), w, b, training) end
        local function plain(x) return F.batch_norm(x, mean:clone(), var:clone(), nil, nil, training) end
        gradcheck.gradcheck(affine, {leaf(unpack(shape)), leaf(3), leaf(3)}, {atol = 1e-4})
        gradcheck.gradcheck(plain, {leaf(unpack(shape))}, {atol = 1e-4})
      end
    end
    gradcheck.gradcheck(function(x, b) return F.batch_norm(x, nil, nil, nil, b, true) end,
      {leaf(4, 3), leaf(3)}, {atol = 1e-4})
  end)

  it("agrees between float32 and float64 in both memory orders", function()
    local function net(x, w, a, b) return F.batch_norm(F.conv2d(x, w), nil, nil, a, b, true) end
    precision.agree(net, {{4, 3, 9, 9}, {20, 3, 3, 3}, {20}, {20}}, 1e-4)
    precision.agree(function(x, a, b) return F.batch_norm(x, nil, nil, a, b, true) end, {{6, 5, 11, 3}, {5}, {5}}, 1e-4)
    local function mixed(x, w, a) return F.batch_norm(F.conv2d(x, w), nil, nil, a, nil, true):flatten(1) end
    precision.agree(mixed, {{4, 3, 9, 9}, {20, 3, 3, 3}, {20}}, 1e-4)
  end)

  for _, dtype in ipairs {"bfloat16", "float16"} do
    it("agrees between " .. dtype .. " and float64 in both memory orders", function()
      local last = {memory_format = "channels_last"}
      for _, channels in ipairs {1, 3, 17, 33} do
        local function norm(x, a, b) return F.batch_norm(x, nil, nil, a, b, true) end
        local function ordered(x, a, b) return norm(x:contiguous(last), a, b):contiguous(last) end
        local function mixed(x, a, b) return norm(x:contiguous(last), a, b):flatten(1) end
        for _, fn in ipairs {norm, ordered, mixed} do
          precision.agree(fn, {{4, channels, 9, 7}, {channels}, {channels}}, nil, dtype)
        end
      end
    end)
  end

  for _, dtype in ipairs {"bfloat16", "float16"} do
    it("computes " .. dtype .. " with parameters in float32 as float32, rounded once", function()
      accelhost.manual_seed(8)
      local last = {memory_format = "channels_last"}
      local function same(wanted, got) check.near(check.flat(wanted), got, 0) end
      for _, shape in ipairs {{4, 17, 9, 7}, {4, 33, 5, 6}, {6, 40}, {3, 5, 7}, {2, 3, 2173}} do
        for _, training in ipairs {true, false} do
          for _, given in ipairs {{true, true}, {true, false}, {false, true}, {false, false}} do
            local x, g = accelhost.randn(shape):to(dtype), accelhost.randn(shape):to(dtype)
            if #shape == 4 then x, g = x:contiguous(last), g:contiguous(last) end
            local function run(convert)
              accelhost.manual_seed(9)
              local input = x:clone():requires_grad_()
              local mean, var = accelhost.randn(shape[2]), accelhost.rand(shape[2]) + 0.5
              local w, b = accelhost.randn(shape[2]):requires_grad_(), accelhost.randn(shape[2]):requires_grad_()
              local y = F.batch_norm(convert(input), mean, var, given[1] and w or nil, given[2] and b or nil, training)
              y:to(dtype):backward(g)
              return y:to(dtype):detach(), input.grad, mean, var, given[1] and w.grad, given[2] and b.grad
            end
            local wanted, got = {run(function(t) return t:float() end)}, {run(function(t) return t end)}
            for i, tensor in ipairs(wanted) do
              if tensor then
                assert.equal(tensor.dtype, got[i].dtype)
                same(tensor, got[i])
              end
            end
          end
        end
      end
      local leaf16 = accelhost.randn(4, 3, 5, 5):to(dtype):requires_grad_()
      local y = F.batch_norm(leaf16, nil, nil, accelhost.ones(3), nil, true)
      local first = accelhost.autograd.grad((y * y * y):sum(), {leaf16}, {create_graph = true})[1]
      first:float():pow(2):sum():backward()
      assert.equal(dtype, leaf16.grad.dtype)
    end)
  end

  it("refuses one value per channel in training, and missing statistics outside", function()
    check.raises("batch_norm: expected more than 1 value per channel in training, got input (1, 3)", function()
      F.batch_norm(accelhost.zeros(1, 3), nil, nil, nil, nil, true)
    end)
    check.raises("running_mean and running_var are needed when training is false", function()
      F.batch_norm(accelhost.zeros(2, 3))
    end)
    check.raises("batch_norm: expected weight float32 (3,) for input ", function()
      F.batch_norm(accelhost.zeros(2, 3), nil, nil, accelhost.zeros(2), nil, true)
    end)
  end)
end)

describe("batch norm followed by relu", function()
  local norm_relu = require("accelhost.nn.fused").norm_relu

  -- Run fn(layer, convolved x, other or nil): the result, all gradients and the statistics afterwards.
  local function trial(fn, case)
    accelhost.manual_seed(6)
    local n, channels, height, width = unpack(case.shape)
    local layer = accelhost.nn.BatchNorm2d(channels, {affine = case.affine ~= false})
    if case.affine ~= false then
      accelhost.nn.init.normal_(layer.weight)
      accelhost.nn.init.normal_(layer.bias)
    end
    layer:train(not case.eval):to(case.mixed and "float32" or case.dtype or "float32")
    local x = accelhost.randn(n, 4, height, width):to(case.dtype or "float32"):requires_grad_()
    local kernel = accelhost.randn(channels, 4, 1, 1):to(x.dtype):requires_grad_()
    local other = case.other and accelhost.randn(n, channels, height, width):to(x.dtype):requires_grad_()
    local y = fn(layer, case.plain and F.conv2d(x, kernel):flatten(2):view(n, channels, height, width)
      or F.conv2d(x, kernel), other and F.relu(other) or nil)
    local g = accelhost.randn(y:shape()):to(x.dtype)
    if case.last then g = g:contiguous {memory_format = "channels_last"} end
    y:backward(g)
    local results = {y:detach(), x.grad, kernel.grad, layer.running_mean, layer.running_var}
    for _, leaf_of in ipairs {other or nil, layer.weight, layer.bias} do results[#results + 1] = leaf_of.grad end
    return results
  end

  local function by_ops(layer, x, other)
    local y = layer(x)
    return F.relu(other and y + other or y)
  end

  local cases = {}
  for _, shape in ipairs {{3, 33, 7, 5}, {2, 64, 9, 9}, {5, 8, 16, 17}} do
    for _, other in ipairs {false, true} do
      for _, case in ipairs {{}, {last = true}, {eval = true}, {affine = false}, {plain = true}, {dtype = "float64"},
        {dtype = "bfloat16"}, {dtype = "bfloat16", last = true, eval = true}, {dtype = "bfloat16", mixed = true},
        {dtype = "float16", mixed = true}} do
        case.shape, case.other = shape, other
        cases[#cases + 1] = case
      end
    end
  end

  it("has the bits of the ops, statistics and gradients included, on any number of threads", function()
    local threads = accelhost.get_num_threads()
    for _, case in ipairs(cases) do
      accelhost.set_num_threads(1)
      local wanted = trial(by_ops, case)
      for count = 1, 3 do
        accelhost.set_num_threads(count)
        for i, tensor in ipairs(trial(norm_relu, case)) do
          local exact = wanted[i]:double()
          local off = ((exact - tensor:double()):abs():max() / (exact:abs():max() + 1e-30)):item()
          assert.is_true(off <= (i == 3 and 1e-5 or 0), ("result %d is off by %g"):format(i, off))
        end
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("has second derivatives", function()
    for _, other in ipairs {false, true} do
      local function penalty(fn)
        accelhost.manual_seed(7)
        local layer = accelhost.nn.BatchNorm2d(6)
        local x, kernel = accelhost.randn(2, 3, 5, 4):requires_grad_(), accelhost.randn(6, 3, 2, 2):requires_grad_()
        local y = fn(layer, F.conv2d(x, kernel), other and accelhost.randn(2, 6, 4, 3):requires_grad_() or nil)
        accelhost.autograd.grad({y:pow(3):sum()}, {x}, {create_graph = true})[1]:pow(2):sum():backward()
        return {x.grad, kernel.grad, layer.weight.grad, layer.bias.grad}
      end
      local wanted = penalty(by_ops)
      for i, tensor in ipairs(penalty(norm_relu)) do
        check.near(0, ((wanted[i] - tensor):abs():max() / wanted[i]:abs():max()):item(), 1e-5)
      end
    end
  end)

  it("keeps a NaN, broadcasts and refuses as the ops do", function()
    local layer = accelhost.nn.BatchNorm2d(4):eval()
    local x = F.conv2d(accelhost.ones(1, 2, 3, 3), accelhost.ones(4, 2, 1, 1))
    local other = accelhost.zeros(1, 4, 3, 3)
    other[{0, 1, 2, 2}] = 0 / 0
    local y = norm_relu(layer, x, other)
    assert.equal(1, y:isnan():sum():item())
    local row = accelhost.ones(4, 1, 1)
    assert.is_true(accelhost.equal(norm_relu(layer, x, row), by_ops(layer, x, row)))
    check.raises("add: shapes do not broadcast", function() norm_relu(layer, x, accelhost.ones(3, 3, 2)) end)
    check.raises("batch_norm: expected running_mean float32 (2,)", function()
      norm_relu(accelhost.nn.BatchNorm2d(4):eval(), accelhost.ones(1, 2, 3, 3))
    end)
  end)

  it("is computed in a Sequential as one op, unless a hook watches one of the two", function()
    local function kinds(net)
      local seen = {}
      local prof = accelhost.profiler.profile({}, function() net(accelhost.ones(2, 3, 5, 5)) end)
      for _, event in ipairs(prof:key_averages()) do seen[event.key] = event.count end
      return seen
    end
    local function make(norm, act)
      return nn.Sequential(nn.Conv2d(3, 8, 3), norm or nn.BatchNorm2d(8), act or nn.ReLU())
    end
    local net = make()
    assert.equal(1, kinds(net).batch_norm_relu)
    assert.equal(1, kinds(make(nil, nn.ReLU {inplace = true})).batch_norm_relu)
    assert.is_nil(kinds(make(nil, nn.ReLU6())).batch_norm_relu)
    assert.is_nil(kinds(make(nn.InstanceNorm2d(8))).batch_norm_relu)
    local calls = 0
    net[2]:register_forward_hook(function() calls = calls + 1 end)
    local seen = kinds(net)
    assert.same({1, 1, 1}, {calls, seen.batch_norm, seen.relu})
    assert.is_nil(seen.batch_norm_relu)
  end)
end)

describe("layer_norm", function()
  it("has first and second derivatives", function()
    local function affine(x, w, b) return F.layer_norm(x, {3, 2}, w, b) end
    local inputs = {leaf(2, 3, 2), leaf(3, 2), leaf(3, 2)}
    gradcheck.gradcheck(affine, inputs, {atol = 1e-4})
    gradcheck.gradgradcheck(affine, inputs, {atol = 1e-3, rtol = 1e-3})
    local function plain(x) return F.layer_norm(x, 4) end
    gradcheck.gradcheck(plain, {leaf(3, 4)}, {atol = 1e-4})
    gradcheck.gradgradcheck(plain, {leaf(3, 4)}, {atol = 1e-3, rtol = 1e-3})
    gradcheck.gradcheck(function(x, b) return F.layer_norm(x, {4}, nil, b) end, {leaf(3, 4), leaf(4)}, {atol = 1e-4})
  end)

  it("agrees between float32 and float64", function()
    precision.agree(function(x, w, b) return F.layer_norm(x, {100}, w, b) end, {{13, 17, 100}, {100}, {100}}, 1e-4)
  end)

  it("returns the same bits for any number of threads", function()
    accelhost.manual_seed(3)
    local x, threads = accelhost.randn {300, 96}, accelhost.get_num_threads()
    local function gradient(count)
      accelhost.set_num_threads(count)
      local w = accelhost.ones(96):requires_grad_()
      F.layer_norm(x, 96, w):backward(x)
      return w.grad:tolist()
    end
    local one, three = gradient(1), gradient(3)
    accelhost.set_num_threads(threads)
    assert.same(one, three)
  end)

  it("reports mismatched arguments", function()
    check.raises("layer_norm: normalized_shape (4,) is not how input (2, 3) ends", function()
      F.layer_norm(accelhost.zeros(2, 3), 4)
    end)
    check.raises("layer_norm: expected weight float32 (3,), got float32 (2,)", function()
      F.layer_norm(accelhost.zeros(2, 3), 3, accelhost.zeros(2))
    end)
  end)
end)

describe("rms_norm", function()
  it("has first and second derivatives", function()
    local function weighed(x, w) return F.rms_norm(x, {3, 2}, w) end
    gradcheck.gradcheck(weighed, {leaf(2, 3, 2), leaf(3, 2)}, {atol = 1e-4})
    gradcheck.gradgradcheck(weighed, {leaf(2, 3, 2), leaf(3, 2)}, {atol = 1e-3, rtol = 1e-3})
    gradcheck.gradcheck(function(x) return F.rms_norm(x, 4, nil, 0.5) end, {leaf(3, 4)}, {atol = 1e-4})
  end)

  it("agrees between float32 and float64", function()
    precision.agree(function(x, w) return F.rms_norm(x, {100}, w) end, {{13, 17, 100}, {100}}, 1e-4)
  end)

  it("computes halves in float32 and rounds once", function()
    local x, w = accelhost.randn(5, 64), accelhost.rand(64)
    for _, dtype in ipairs {"bfloat16", "float16"} do
      local half, weight = x:to(dtype), w:to(dtype)
      local wanted = F.rms_norm(half:float(), 64, weight:float()):to(dtype)
      assert.same(wanted:float():tolist(), F.rms_norm(half, 64, weight):float():tolist())
    end
  end)

  it("returns the same bits for any number of threads, and zeros for no rows", function()
    accelhost.manual_seed(3)
    local x, threads = accelhost.randn {300, 96}, accelhost.get_num_threads()
    local function gradient(count, input)
      accelhost.set_num_threads(count)
      local w = accelhost.ones(96):requires_grad_()
      F.rms_norm(input, 96, w):backward(input)
      return w.grad:tolist()
    end
    local one, three, none = gradient(1, x), gradient(3, x), gradient(1, x:narrow(0, 0, 0))
    accelhost.set_num_threads(threads)
    assert.same(one, three)
    assert.same(accelhost.zeros(96):tolist(), none)
  end)

  it("reports mismatched arguments", function()
    check.raises("rms_norm: normalized_shape (4,) is not how input (2, 3) ends", function()
      F.rms_norm(accelhost.zeros(2, 3), 4)
    end)
    check.raises("rms_norm: expected weight float32 (3,), got float64 (3,)", function()
      F.rms_norm(accelhost.zeros(2, 3), 3, accelhost.zeros({3}, {dtype = "float64"}))
    end)
    check.raises("rms_norm: expected a floating input, got int64", function()
      F.rms_norm(accelhost.zeros({2, 3}, {dtype = "int64"}), 3)
    end)
  end)
end)

describe("group_norm", function()
  it("normalises groups of channels", function()
    local x = accelhost.tensor {{{1, 3}, {5, 7}, {0, 0}, {2, 2}}}
    local y = F.group_norm(x, 2, nil, nil, 0)
    local a, b = 3 / math.sqrt(5), 1 / math.sqrt(5)
    check.near({-a, -b, b, a, -1, -1, 1, 1}, y, 1e-6)
  end)

  it("has first and second derivatives", function()
    local function f(x, w, b) return F.group_norm(x, 2, w, b) end
    local inputs = {leaf(2, 4, 2), leaf(4), leaf(4)}
    gradcheck.gradcheck(f, inputs, {atol = 1e-4})
    gradcheck.gradgradcheck(f, inputs, {atol = 1e-3, rtol = 1e-3})
  end)

  it("has gradients with weight, bias, both or neither, for planes of every shape", function()
    for _, shape in ipairs {{3, 4}, {2, 6, 1}, {1, 4, 3}, {2, 4, 3, 5}, {1, 2, 2, 3, 2}} do
      local c = shape[2]
      gradcheck.gradcheck(function(x) return F.group_norm(x, 2) end, {leaf(unpack(shape))}, {atol = 1e-4})
      gradcheck.gradcheck(function(x, w) return F.group_norm(x, 1, w) end, {leaf(unpack(shape)), leaf(c)},
        {atol = 1e-4})
      gradcheck.gradcheck(function(x, b) return F.group_norm(x, 1, nil, b) end, {leaf(unpack(shape)), leaf(c)},
        {atol = 1e-4})
    end
  end)

  for _, dtype in ipairs {"float32", "bfloat16", "float16"} do
    it("agrees between " .. dtype .. " and float64 in both memory orders", function()
      local last = {memory_format = "channels_last"}
      for _, case in ipairs {
        {2, 4, 9, 7}, {1, 6, 53, 41}, {3, 17, 1, 5}, {2, 33, 13, 11}, {70, 8, 1, 1}, {3, 4200, 1, 1},
      } do
        local groups = case[2] % 2 == 0 and 2 or 1
        local function norm(x, a, b) return F.group_norm(x, groups, a, b) end
        local function ordered(x, a, b) return norm(x:contiguous(last), a, b):contiguous(last) end
        local function mixed(x, a, b) return norm(x:contiguous(last), a, b):flatten(1) end
        for _, fn in ipairs {norm, ordered, mixed} do
          precision.agree(fn, {case, {case[2]}, {case[2]}}, dtype == "float32" and 1e-4 or nil, dtype)
        end
      end
    end)
  end

  -- The result and all gradients of a norm of x by w and b, which may be false.
  local function trial(x, groups, w, b, g)
    local leaves = {}
    for i, t in ipairs {x, w, b} do leaves[i] = t and t:clone():requires_grad_() end
    local y = F.group_norm(leaves[1], groups, leaves[2] or nil, leaves[3] or nil)
    y:backward(g:to(y.dtype))
    local results = {y:detach()}
    for _, t in ipairs(leaves) do results[#results + 1] = t and t.grad end
    return results
  end

  it("computes halves with parameters in float32 as float32, rounded once, on the CPU", function()
    accelhost.manual_seed(8)
    local last, on_cpu = {memory_format = "channels_last"}, {device = "cpu"}
    for _, dtype in ipairs {"bfloat16", "float16"} do
      for _, shape in ipairs {{2, 6, 9, 7}, {1, 4, 53, 41}, {3, 8}, {2, 4, 5}} do
        for _, given in ipairs {{true, true}, {true, false}, {false, true}, {false, false}} do
          local x, g = accelhost.randn(shape, on_cpu):to(dtype), accelhost.randn(shape, on_cpu):to(dtype)
          for _, ordered in ipairs {false, #shape == 4} do
            if ordered then x, g = x:contiguous(last), g:contiguous(last) end
            local w = given[1] and accelhost.randn({shape[2]}, on_cpu)
            local b = given[2] and accelhost.randn({shape[2]}, on_cpu)
            local wide, got = trial(x:float(), 2, w, b, g), trial(x, 2, w, b, g)
            for i, t in ipairs(wide) do
              if t then
                assert.equal(i <= 2 and dtype or "float32", got[i].dtype)
                check.near(check.flat(t:to(got[i].dtype):float()), got[i]:float(), 0)
              end
            end
          end
        end
      end
    end
  end)

  it("has the same bits for every number of threads", function()
    local threads = accelhost.get_num_threads()
    for _, case in ipairs {
      {{1, 3, 200, 199}, 1}, {{2, 6, 90, 91}, 3}, {{40, 8, 13, 11}, 4}, {{300, 96}, 3}, {{9, 40, 7, 7}, 20},
      {{1, 6000}, 3},
    } do
      for _, dtype in ipairs {"float32", "bfloat16", "float64"} do
        accelhost.manual_seed(3)
        local shape, groups = unpack(case)
        local x, g = accelhost.randn(shape):to(dtype), accelhost.randn(shape)
        local w, b = accelhost.randn(shape[2]):to(dtype), accelhost.randn(shape[2]):to(dtype)
        for _, ordered in ipairs {false, #shape == 4} do
          if ordered then x = x:contiguous {memory_format = "channels_last"} end
          local results = {}
          for _, count in ipairs {1, 2, 3} do
            accelhost.set_num_threads(count)
            results[count] = trial(x, groups, w, b, ordered and g:contiguous {memory_format = "channels_last"} or g)
          end
          accelhost.set_num_threads(threads)
          for i, t in ipairs(results[1]) do
            assert.is_true(t:equal(results[2][i]) and t:equal(results[3][i]))
          end
        end
      end
    end
  end)

  it("keeps the order of channels-last inputs on the CPU", function()
    local last = {memory_format = "channels_last"}
    local x = accelhost.randn({2, 4, 5, 3}, {device = "cpu"})
    assert.is_true(F.group_norm(x:contiguous(last), 2):is_contiguous(last))
  end)

  it("is empty without samples or pixels, with gradients of zero for weight and bias", function()
    for _, shape in ipairs {{0, 4, 3}, {2, 4, 0}} do
      local w = accelhost.ones(4):requires_grad_()
      local y = F.group_norm(accelhost.zeros(shape), 2, w)
      assert.same(shape, y:shape())
      y:sum():backward()
      assert.same({0, 0, 0, 0}, w.grad:tolist())
    end
  end)

  it("reports groups that do not divide the channels, other dtypes and sizes of parameters", function()
    check.raises("group_norm: the channels of input (2, 3) do not make 2 groups", function()
      F.group_norm(accelhost.zeros(2, 3), 2)
    end)
    check.raises("group_norm: expected a floating input, got int64", function()
      F.group_norm(accelhost.zeros({2, 4}, {dtype = "int64"}), 2)
    end)
    check.raises("group_norm: expected weight float32 (4,) for input (2, 4), got float32 (2,)", function()
      F.group_norm(accelhost.zeros(2, 4), 2, accelhost.zeros(2))
    end)
    check.raises("group_norm: expected bias float32 (4,) for input (2, 4), got float64 (4,)", function()
      F.group_norm(accelhost.zeros(2, 4), 2, accelhost.zeros(4), accelhost.zeros({4}, {dtype = "float64"}))
    end)
  end)
end)

describe("the layer norm of a sum", function()
  local of_sum = require("accelhost.nn.norm").of_sum

  local function bits(t) return t:float():tolist() end

  -- Results and gradients of `how`(layer, x, y), of which norm and sum both enter the loss unless `only` selects one.
  local function trial(how, width, first, second, rows, only)
    accelhost.manual_seed(7)
    local x = (accelhost.randn(rows or 5, width) * 3):to(first):requires_grad_()
    local y = accelhost.randn(rows or 5, width):to(second):requires_grad_()
    local wide = (x + y).dtype
    local layer = nn.LayerNorm(width):to(wide)
    accelhost.no_grad(function() layer.weight:normal_(); layer.bias:normal_() end)
    local a, b = accelhost.randn(rows or 5, width):to(wide), accelhost.randn(rows or 5, width):to(wide)
    local normal, sum = how(layer, x, y)
    local loss = (only == "sum" and sum * b or only == "norm" and normal * a or normal * a + sum * b):sum()
    loss:backward()
    local found = {normal, sum, x.grad, y.grad}
    if only ~= "sum" then found[5], found[6] = layer.weight.grad, layer.bias.grad end
    return found
  end
  local function by_two(layer, x, y)
    local sum = x + y
    return layer(sum), sum
  end

  it("equals two ops, for rows of any length", function()
    for _, width in ipairs {1, 7, 64, 1500} do
      local wanted = trial(by_two, width, "float32", "float32")
      for i, t in ipairs(trial(of_sum, width, "float32", "float32")) do
        check.near(check.flat(wanted[i]), t, 1e-5)
        assert.equal(wanted[i].dtype, t.dtype)
      end
    end
  end)

  it("accepts every pair of floating dtypes", function()
    local near = {float64 = 1e-12, float32 = 1e-5, float16 = 0.02, bfloat16 = 0.2}
    for _, first in ipairs {"float64", "float32", "float16", "bfloat16"} do
      for _, second in ipairs {"float64", "float32", "float16", "bfloat16"} do
        local wanted, found = trial(by_two, 48, first, second), trial(of_sum, 48, first, second)
        for i, t in ipairs(found) do
          assert.equal(wanted[i].dtype, t.dtype)
          check.near(check.flat(wanted[i]:double()), t:double(), near[t.dtype])
        end
        assert.same(bits(wanted[2]), bits(found[2]))
      end
    end
  end)

  it("has the gradients of the used elements", function()
    for _, only in ipairs {"sum", "norm"} do
      local wanted = trial(by_two, 24, "float32", "float32", 4, only)
      for i, t in ipairs(trial(of_sum, 24, "float32", "float32", 4, only)) do
        check.near(check.flat(wanted[i]), t, 1e-5)
      end
    end
    assert.same({}, trial(of_sum, 24, "float32", "float32", 0)[1]:tolist())
  end)

  it("has first and second derivatives", function()
    local layer = nn.LayerNorm({3, 2}, {dtype = "float64"})
    local function both(x, y, w, b)
      layer.weight, layer.bias = nil, nil
      layer.weight, layer.bias = w, b
      local normal, sum = of_sum(layer, x, y)
      return normal * sum
    end
    local inputs = {leaf(2, 3, 2), leaf(2, 3, 2), leaf(3, 2), leaf(3, 2)}
    gradcheck.gradcheck(both, inputs)
    gradcheck.gradgradcheck(both, inputs)
  end)

  it("accepts views, broadcasts, and reports mismatched arguments", function()
    local layer = nn.LayerNorm(6)
    local x, y = accelhost.randn(6, 4), accelhost.randn(2, 6)
    local normal, sum = of_sum(layer, x:t(), y:narrow(0, 0, 1))
    assert.same((x:t() + y:narrow(0, 0, 1)):tolist(), sum:tolist())
    check.near(check.flat(layer(sum)), normal, 1e-6)
    check.raises("layer_norm: normalized_shape (6,) is not how input (6, 4) ends", function() of_sum(layer, x, x) end)
    check.raises("add: shapes do not broadcast: (6, 4) and (2, 6)", function() of_sum(layer, x, y) end)
  end)

  it("leaves a layer that hooks watch, and any other module, its call", function()
    local layer, seen = nn.LayerNorm(6), {}
    local x, y = accelhost.randn(4, 6), accelhost.randn(4, 6)
    local handle = layer:register_forward_hook(function(_, given, result)
      seen[#seen + 1] = given[1]
      return result * 2
    end)
    local normal, sum = of_sum(layer, x, y)
    handle.remove()
    assert.same(sum:tolist(), seen[1]:tolist())
    check.near(check.flat(of_sum(layer, x, y) * 2), normal, 1e-5)
    assert.equal(1, #seen)
    assert.same((x + y):tolist(), of_sum(nn.Identity(), x, y):tolist())
  end)
end)

describe("a layer norm for linear maps", function()
  local norms = require "accelhost.nn.norm"
  local device = accelhost.zeros(1).device:gsub(":.*", "")
  if device ~= "cpu" and device ~= "cuda" then return end -- others have no autocast

  -- The norm, a linear map of it, and all gradients; in the dtypes of an autocast block.
  local function trial(how, width, dtype)
    accelhost.manual_seed(3)
    local layer, linear = nn.LayerNorm(width), nn.Linear(width, 8)
    accelhost.no_grad(function() layer.weight:normal_(); layer.bias:normal_() end)
    local x = (accelhost.randn(5, width) * 3):to(dtype or "float32"):requires_grad_()
    local y = accelhost.randn(5, width):bfloat16():requires_grad_()
    local norm, result = accelhost.autocast(device, {dtype = "bfloat16"}, function()
      local norm, sum = how(layer, x, y)
      return norm, linear(norm):float() + sum:sum()
    end)
    result:sin():sum():backward()
    local grad = {x.grad, layer.weight.grad, layer.bias.grad, linear.weight.grad, linear.bias.grad, y.grad}
    return norm, result, grad
  end
  local alone = {
    plain = function(layer, x) return layer(x), x end,
    told = function(layer, x) return norms.for_linear(layer, x), x end,
  }
  local summed = {
    plain = function(layer, x, y) return norms.of_sum(layer, x, y) end,
    told = function(layer, x, y) return norms.of_sum(layer, x, y, true) end,
  }

  for name, how in pairs {["of one tensor"] = alone, ["of a sum"] = summed} do
    it(("%s has their dtype under autocast, and the bits of a cast"):format(name), function()
      for _, width in ipairs {1, 6, 7, 64, 1500} do
        local norm, result, grad = trial(how.plain, width)
        local half, same, others = trial(how.told, width)
        assert.equal("bfloat16", half.dtype)
        assert.same(norm:bfloat16():float():tolist(), half:float():tolist())
        assert.same(result:tolist(), same:tolist())
        for i = 1, 6 do
          assert.equal(grad[i] and grad[i].dtype, others[i] and others[i].dtype)
          if grad[i] then assert.same(grad[i]:float():tolist(), others[i]:float():tolist()) end
        end
      end
    end)
  end

  it("reads the gradient of its cast as it is, unless a hook or another use sees it", function()
    for _, class in ipairs {"LayerNorm", "RMSNorm"} do
      -- The gradients and the number of casts; `seen` may add another use of the norm.
      local function gradients(width, seen)
        accelhost.manual_seed(4)
        local layer, linear = nn[class](width), nn.Linear(width, 8)
        accelhost.no_grad(function() layer.weight:normal_() end)
        local x = accelhost.randn(5, width):requires_grad_()
        local loss = accelhost.autocast(device, {dtype = "bfloat16"}, function()
          local norm = layer(x)
          local more = seen(norm)
          local loss = linear(norm):float():sin():sum()
          return more and loss + more or loss
        end)
        local prof = accelhost.profiler.profile({}, function() loss:backward() end)
        local casts = 0
        for _, row in ipairs(prof:key_averages()) do casts = row.key == "to" and row.count or casts end
        return {x.grad:tolist(), layer.weight.grad:tolist(), layer.bias and layer.bias.grad:tolist()}, casts
      end
      for _, width in ipairs {3, 64, 1500} do
        local plain, casts = gradients(width, function() end)
        local hooked, with_hook = gradients(width, function(norm) norm:register_hook(function() end) end)
        local added, with_sum = gradients(width, function(norm) return (norm * 0):sum() end)
        assert.same(hooked, plain)
        assert.same(added, plain)
        assert.same({1, 1}, {with_hook - casts, with_sum - casts})
      end
    end
  end)

  it("has its own dtype without autocast, of other dtypes, and where hooks watch it", function()
    local layer, x = nn.LayerNorm(6), accelhost.randn(4, 6)
    assert.equal("float32", norms.for_linear(layer, x).dtype)
    assert.same(layer(x):tolist(), norms.for_linear(layer, x):tolist())
    assert.equal("bfloat16", (trial(alone.told, 6, "bfloat16")).dtype)
    accelhost.autocast(device, {dtype = "bfloat16"}, function()
      assert.equal("float64", norms.for_linear(nn.LayerNorm(6):double(), x:double()).dtype)
      layer:register_forward_hook(function() end)
      assert.equal(layer(x).dtype, norms.for_linear(layer, x).dtype)
      assert.equal(layer(x).dtype, (norms.of_sum(layer, x, x, true)).dtype)
    end)
  end)

  it("has second derivatives", function()
    local C = require "accelhost._C"
    local x, w, b = accelhost.randn(3, 6):requires_grad_(), accelhost.ones(6):requires_grad_(), accelhost.zeros(6)
    local function gradient(norm)
      local grad = accelhost.autograd.grad({norm:float():pow(2):mul(accelhost.arange(6)):sum()}, {x},
        {create_graph = true})[1]
      return accelhost.autograd.grad({grad:pow(2):sum()}, {w})[1]
    end
    local wanted = gradient(C.layer_norm(x, {6}, w, b, 1e-5))
    local scale = wanted:abs():max():item()
    check.near(check.flat(wanted / scale), gradient(C.layer_norm_to(x, {6}, w, b, 1e-5, "bfloat16")) / scale, 0.05)
  end)
end)
