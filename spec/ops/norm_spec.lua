local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"

local F = accelhost.nn.functional

local function leaf(...)
  return accelhost.randn({...}, {dtype = "float64"}):requires_grad_()
end

describe("batch_norm", function()
  it("moves the running statistics, with the unbiased variance", function()
    local x = accelhost.tensor {{1, 10}, {3, 30}}
    local mean, var = accelhost.zeros(2), accelhost.ones(2)
    local y = F.batch_norm(x, mean, var, nil, nil, true, 0.5, 0)
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

  it("gives the same bits for any number of threads", function()
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

  it("says what does not fit", function()
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

  it("gives the same bits for any number of threads, and zeros for no rows", function()
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

  it("says what does not fit", function()
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

  it("says when the groups do not divide", function()
    check.raises("group_norm: the channels of input (2, 3) do not make 2 groups", function()
      F.group_norm(accelhost.zeros(2, 3), 2)
    end)
  end)
end)
