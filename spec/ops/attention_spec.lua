--- Attention, by one op that stores no scores and by products and a softmax. Numbers of scripts/fixtures/attention.py.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local fixture = require("spec.support.fixtures").load("attention").dense
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional
local nan, inf = 0 / 0, math.huge

local leaf = tensors.leaf

local weighed = tensors.weighed

-- The mask of a case; `blind` makes the first query see nothing.
local function mask_of(o)
  local mask = accelhost.randn(o.size, {dtype = "float64"})
  if o.dtype == "bool" then mask = mask:gt(0) end
  if o.blind then mask:select(-2, 0):fill_(false) end
  return mask
end

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

  it("adds a float mask, broadcast, and computes its gradient", function()
    local q, k, v, mask = leaf(2, 2, 3, 2), leaf(2, 2, 4, 2), leaf(2, 2, 4, 3), leaf(2, 1, 1, 4)
    gradcheck.gradcheck(attention, {q, k, v, mask})
    gradcheck.gradgradcheck(attention, {leaf(1, 2, 2), leaf(1, 3, 2), leaf(1, 3, 1), leaf(2, 3)})
  end)

  it("accepts a scale", function()
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

  it("returns PyTorch's numbers and gradients", function()
    for _, case in ipairs(fixture) do
      accelhost.manual_seed(3)
      local q, k, v = leaf(unpack(case.q)), leaf(unpack(case.k)), leaf(unpack(case.v))
      case.options.attn_mask = case.mask and mask_of(case.mask)
      local output = attention(q, k, v, case.options)
      output:backward(accelhost.arange(output:numel(), {dtype = "float64"}):sin():view(output:shape()))
      check.near(case.sums, {weighed(output), weighed(q.grad), weighed(k.grad), weighed(v.grad)}, 1e-11, case.name)
    end
  end)

  -- {query, key, value [batch, heads, tokens, width], options}
  local cases = {
    plain = {{2, 3, 9, 4}, {2, 3, 7, 4}, {2, 3, 7, 5}, {}},
    ["blocks of the largest size"] = {{1, 2, 64, 32}, {1, 2, 64, 32}, {1, 2, 64, 32}, {}},
    ["more than one block"] = {{2, 2, 130, 16}, {2, 2, 200, 16}, {2, 2, 200, 8}, {}},
    causal = {{1, 2, 130, 8}, {1, 2, 130, 8}, {1, 2, 130, 8}, {is_causal = true}},
    ["shared keys"] = {{2, 6, 20, 8}, {2, 2, 20, 8}, {2, 2, 20, 8}, {enable_gqa = true, is_causal = true}},
    ["wide heads"] = {{1, 1, 10, 272}, {1, 1, 70, 272}, {1, 1, 70, 130}, {scale = 0.05}},
    ["mask of keys"] = {{2, 2, 12, 8}, {2, 2, 80, 8}, {2, 2, 80, 8}, {}, {2, 1, 1, 80}},
    ["mask of pairs"] = {{2, 2, 70, 8}, {2, 2, 80, 8}, {2, 2, 80, 8}, {}, {70, 80}},
    ["mask of queries"] = {{2, 2, 70, 8}, {2, 2, 80, 8}, {2, 2, 80, 8}, {}, {2, 2, 70, 1}},
    dropout = {{2, 2, 70, 8}, {2, 2, 80, 8}, {2, 2, 80, 8}, {dropout_p = 0.4}},
    ["no keys"] = {{2, 2, 9, 8}, {2, 2, 0, 8}, {2, 2, 0, 8}, {}},
    ["no batch"] = {{0, 2, 9, 8}, {0, 2, 9, 8}, {0, 2, 9, 8}, {}},
  }

  -- Output and gradients of one of the two ways.
  local function run(fn, inputs, options, weights)
    accelhost.manual_seed(5)
    local o = options
    local output = fn(inputs[1], inputs[2], inputs[3], o.attn_mask, o.dropout_p or 0, o.is_causal or false, o.scale,
      o.enable_gqa or false)
    local wanted = {inputs[1], inputs[2], inputs[3]}
    if o.attn_mask and o.attn_mask.requires_grad then wanted[4] = o.attn_mask end
    return output, accelhost.autograd.grad((output * weights):sum(), wanted), accelhost.rand(1):item()
  end

  for name, case in pairs(cases) do
    it("equals matmuls and a softmax: " .. name, function()
      local masks = case[5] and {
        leaf(unpack(case[5])), leaf(unpack(case[5])):detach(), accelhost.randn(case[5]):gt(0),
        accelhost.randn(case[5]):gt(0):transpose(-2, -1):contiguous():transpose(-2, -1),
      } or {false}
      for _, mask in ipairs(masks) do
        case[4].attn_mask = mask or nil
        local inputs = {leaf(unpack(case[1])), leaf(unpack(case[2])), leaf(unpack(case[3]))}
        local size = {case[1][1], case[1][2], case[1][3], case[3][4]}
        local weights = accelhost.randn(size, {dtype = "float64"})
        local wanted, wanted_grads, wanted_next = run(C.attention_by_ops, inputs, case[4], weights)
        local got, grads, next_draw = run(C.scaled_dot_product_attention, inputs, case[4], weights)
        check.near(check.flat(wanted), got, 1e-12)
        for i, grad in ipairs(wanted_grads) do check.near(check.flat(grad), grads[i], 1e-12) end
        assert.equal(wanted_next, next_draw) -- as much was drawn
      end
    end)
  end

  it("accepts heads behind tokens in memory, as a linear layer writes them, and returns them so", function()
    local packed = leaf(2, 33, 3, 4, 16)
    local q, k, v = unpack(packed:permute(2, 0, 3, 1, 4):unbind(0))
    local output = attention(q, k, v, {is_causal = true})
    assert.is_true(output:transpose(1, 2):is_contiguous())
    local same = attention(q:contiguous(), k:contiguous(), v:contiguous(), {is_causal = true})
    check.near(check.flat(same), output, 0)
    local first = accelhost.autograd.grad(output:square():sum(), {packed})[1]
    check.near(check.flat(accelhost.autograd.grad(same:square():sum(), {packed})[1]), first, 0)
  end)

  it("has second derivatives without stored scores", function()
    local function pair(...) return leaf(...), leaf(...), leaf(...) end
    local function with(options)
      return function(q, k, v)
        accelhost.manual_seed(2)
        return attention(q, k, v, options)
      end
    end
    for _, options in ipairs {{}, {is_causal = true}, {dropout_p = 0.3}} do
      gradcheck.gradgradcheck(with(options), {pair(1, 1, 8, 2)})
    end
    local q, k, v = leaf(1, 2, 8, 2), leaf(1, 1, 3, 2), leaf(1, 1, 3, 2)
    gradcheck.gradgradcheck(with {enable_gqa = true, attn_mask = accelhost.ones(8, 3):tril(1):to("bool")}, {q, k, v})
    gradcheck.gradgradcheck(attention, {leaf(1, 1, 8, 1), leaf(1, 1, 2, 1), leaf(1, 1, 2, 1), leaf(8, 2)})
  end)

  it("returns zeros, and no gradient, where a query attends to nothing", function()
    local q, k, v = leaf(1, 1, 10, 4), leaf(1, 1, 12, 4), leaf(1, 1, 12, 4)
    local mask = accelhost.ones({10, 12}, {dtype = "bool"})
    mask:select(0, 3):fill_(false)
    local added = accelhost.zeros({10, 12}, {dtype = "float64"}):masked_fill(mask:logical_not(), -inf)
    for _, given in ipairs {mask, added} do
      local output = attention(q, k, v, given)
      local grads = accelhost.autograd.grad(output:sum(), {q, k, v})
      assert.equal(0, output:select(2, 3):abs():sum():item())
      assert.equal(0, grads[1]:select(2, 3):abs():sum():item())
      for _, grad in ipairs(grads) do assert.is_true(grad:isfinite():all():item()) end
    end
  end)

  it("handles scores beyond the range of the exponential", function()
    local q, k = accelhost.zeros(1, 1, 8, 4), accelhost.zeros(1, 1, 70, 4)
    q:fill_(1e4)
    k:select(2, 69):fill_(1e4) -- in the second block of keys
    local v = accelhost.arange(70):float():view(1, 1, 70, 1):expand(1, 1, 70, 4)
    check.near(69, attention(q, k, v):select(2, 0)[0][0][0]:item(), 0)
    check.near(34, attention(q, -k, v):select(2, 0)[0][0][0]:item(), 1e-4)
    k:select(2, 5):fill_(nan)
    assert.is_true(attention(q, k, v):isnan():all():item())
    local seen = accelhost.ones({70}, {dtype = "bool"})
    seen[5] = false
    check.near(69, attention(q, k, v, seen)[0][0][0][0]:item(), 0)
  end)

  it("returns the same bits for any number of threads", function()
    local packed = accelhost.randn(3, 150, 4, 32)
    local function once()
      local x = packed:transpose(1, 2):detach():requires_grad_()
      local y = attention(x, x, x, {is_causal = true})
      y:backward(y:detach())
      return {check.flat(y), check.flat(x.grad)}
    end
    local before = accelhost.get_num_threads()
    accelhost.set_num_threads(1)
    local one = once()
    accelhost.set_num_threads(3)
    local three = once()
    accelhost.set_num_threads(before)
    assert.same(one, three)
  end)

  for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
    it("reads no scores of an earlier call where " .. dtype .. " queries do not see keys", function()
      local function once(values, window)
        local x = values:detach():requires_grad_()
        local ends = accelhost.tensor({0, 150}, {dtype = "int32"})
        local y = F.varlen_attn(x, x, x, ends, ends, 150, 150, {window_size = window})
        y:backward(accelhost.ones_like(y))
        return y, x.grad
      end
      local values = accelhost.randn({150, 2, 32}):to(dtype)
      for _, right in ipairs {0, 3, 20} do
        once(accelhost.full_like(values, nan), {-1, -1})
        local y, grad = once(values, {-1, right})
        assert.is_true(y:isfinite():all():item() and grad:isfinite():all():item())
      end
    end)
  end

  it("sees all keys alike where a mask adds the least number to each, and has finite gradients", function()
    accelhost.manual_seed(5)
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
      for _, queries in ipairs {1, 3, 20} do
        for _, number in ipairs {accelhost.finfo(dtype).min, -1e9} do
          local q, k = accelhost.randn({1, 2, queries, 16}):to(dtype), accelhost.randn({1, 2, 40, 16}):to(dtype)
          local v = accelhost.randn({1, 2, 40, 16}):to(dtype)
          for _, tensor in ipairs {q, k, v} do tensor:requires_grad_() end
          local output = attention(q, k, v, {attn_mask = accelhost.full({queries, 40}, number, {dtype = dtype})})
          local mean = v:detach():double():mean(2, {keepdim = true})
          local near = dtype == "bfloat16" and 1e-2 or 1e-6
          if number < -1e9 then assert.is_true((output:double() - mean):abs():max():item() < near, dtype) end
          output:sum():backward()
          for _, tensor in ipairs {q, k, v} do assert.is_true(tensor.grad:isfinite():all():item(), dtype) end
        end
      end
    end
  end)

  it("uses memory for tokens, not for pairs of them", function()
    local tokens = 4096
    local q = accelhost.randn({1, 1, tokens, 16}):requires_grad_()
    local before, scores = accelhost.memory_stats(), 4 * tokens * tokens
    local output = attention(q, q, q, {is_causal = true, dropout_p = 0.1})
    output:sum():backward()
    assert.is_true(accelhost.memory_stats().peak <= math.max(before.peak, before.live + scores / 8))
  end)

  it("reports mismatched arguments", function()
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
