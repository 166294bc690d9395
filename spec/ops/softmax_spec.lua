local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"

local F = accelhost.nn.functional
local nan, inf = 0 / 0, math.huge

local function leaf(...)
  return accelhost.randn({...}, {dtype = "float64"}):requires_grad_()
end

describe("softmax", function()
  it("gives nan for a row of -inf, and for one with nan", function()
    local x = accelhost.tensor {{-inf, -inf}, {0, -inf}, {nan, 0}}
    check.near({nan, nan, 1, 0, nan, nan}, accelhost.softmax(x, 1), 0)
    check.near({nan, nan, 0, -inf, nan, nan}, accelhost.log_softmax(x, 1), 0)
    check.near({nan, 1, nan, nan, 0, nan}, accelhost.softmax(x:t():contiguous(), 0), 0)
  end)

  it("does not overflow", function()
    check.near({0.5, 0.5}, accelhost.softmax(accelhost.tensor {1e4, 1e4}, 0), 1e-6)
    check.near({0, -2e4}, accelhost.log_softmax(accelhost.tensor {1e4, -1e4}, -1), 1e-6)
  end)

  it("takes the dtype to compute in", function()
    local x = accelhost.tensor {1, 2}
    assert.equal("float64", accelhost.softmax(x, 0, "float64").dtype)
    assert.equal("float32", accelhost.softmax(accelhost.tensor({1, 2}, {dtype = "int64"}), 0, "float32").dtype)
    x:requires_grad_()
    accelhost.softmax(x, 0, "float64")[0]:backward()
    assert.equal("float32", x.grad.dtype)
  end)

  it("has first and second derivatives along any dim", function()
    for _, name in ipairs {"softmax", "log_softmax"} do
      for dim = 0, 2 do
        local function f(x) return accelhost[name](x, dim) end
        gradcheck.gradcheck(f, {leaf(2, 3, 2)})
        gradcheck.gradgradcheck(f, {leaf(2, 3, 2)})
      end
    end
  end)

  it("agrees between float32 and float64", function()
    for _, name in ipairs {"softmax", "log_softmax"} do
      for dim = 0, 2 do
        precision.agree(function(x) return accelhost[name](x, dim) end, {{7, 70, 67}})
      end
    end
  end)

  it("takes 0-dim and empty tensors", function()
    assert.equal(1, accelhost.softmax(accelhost.tensor(3), 0):item())
    assert.same({0, 3}, accelhost.softmax(accelhost.zeros(0, 3), 1):shape())
    assert.same({3, 0}, accelhost.softmax(accelhost.zeros(3, 0), 1):shape())
  end)

  it("says what it expects", function()
    check.raises("softmax", function() accelhost.softmax(accelhost.zeros(2, 3), 2) end)
    check.raises("softmax: expected a floating input, got int64", function()
      accelhost.softmax(accelhost.zeros({2}, {dtype = "int64"}), 0)
    end)
  end)
end)

describe("scaled_dot_product_attention", function()
  local function attention(...) return F.scaled_dot_product_attention(...) end

  it("names the dtypes that it cannot multiply", function()
    local x, whole = accelhost.ones(2, 3), accelhost.ones({2, 3}, {dtype = "int64"})
    for _, case in ipairs {{whole, whole, whole}, {x, whole, x}, {x, x, whole}} do
      check.raises("scaled_dot_product_attention: expected a floating query, and key and value of its dtype, got ",
        function() attention(unpack(case)) end)
    end
  end)

  it("is causal without a mask tensor", function()
    local q, k, v = leaf(2, 3, 4), leaf(2, 3, 4), leaf(2, 3, 4)
    local mask = accelhost.ones({3, 3}, {dtype = "float64"}):tril():to("bool")
    check.near(check.flat(attention(q, k, v, mask)), attention(q, k, v, {is_causal = true}), 1e-12)
    local later = v:detach():clone()
    later:select(1, 2):fill_(7)
    local first = attention(q, k, later, {is_causal = true})
    check.near(check.flat(attention(q, k, v, {is_causal = true}):narrow(1, 0, 2)), first:narrow(1, 0, 2), 1e-12)
  end)

  it("adds a float mask, broadcast, and gives it a gradient", function()
    local q, k, v, mask = leaf(2, 2, 3, 2), leaf(2, 2, 4, 2), leaf(2, 2, 4, 3), leaf(2, 1, 1, 4)
    gradcheck.gradcheck(attention, {q, k, v, mask})
    gradcheck.gradgradcheck(attention, {leaf(1, 2, 2), leaf(1, 3, 2), leaf(1, 3, 1), leaf(2, 3)})
  end)

  it("takes a scale", function()
    local q, k, v = leaf(1, 2, 4), leaf(1, 3, 4), leaf(1, 3, 4)
    check.near(check.flat(attention(q * 2, k, v)), attention(q, k, v, {scale = 1}), 1e-12)
  end)

  it("drops weights", function()
    local q, k, v = accelhost.zeros(1, 1, 2), accelhost.zeros(1, 1000, 2), accelhost.ones(1, 1000, 1)
    accelhost.manual_seed(1)
    local got = attention(q, k, v, nil, 0.5):item()
    assert.is_true(got ~= 1 and got > 0.8 and got < 1.2)
  end)

  it("agrees between float32 and float64", function()
    precision.agree(function(q, k, v) return attention(q, k, v, {is_causal = true}) end,
      {{2, 3, 33, 16}, {2, 3, 33, 16}, {2, 3, 33, 16}}, 1e-4)
  end)

  it("says what does not fit", function()
    local q = accelhost.zeros(2, 3, 4)
    check.raises("exclude each other", function()
      attention(q, q, q, {attn_mask = accelhost.zeros(3, 3), is_causal = true})
    end)
    check.raises("attn_mask", function() attention(q, q, q, accelhost.zeros(3, 4)) end)
    check.raises("expected attn_mask bool or float32, got int64", function()
      attention(q, q, q, accelhost.zeros({3, 3}, {dtype = "int64"}))
    end)
    check.raises("expected query (..., L, E), key (..., S, E) and value (..., S, V)", function()
      attention(q, accelhost.zeros(2, 3, 5), q)
    end)
  end)
end)

describe("masked_softmax", function()
  it("leaves nothing above the diagonal", function()
    local y = C.masked_softmax(accelhost.zeros(2, 3, 3), nil, true)
    check.near({1, 0, 0, 0.5, 0.5, 0, 1 / 3, 1 / 3, 1 / 3}, y[1], 1e-7)
  end)
end)
