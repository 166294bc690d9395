--- Attention in the dtypes of training, against the same in float64: widths that fill tiles and widths that do not,
--- lengths around the sizes of blocks, masks, windows, shared heads, sequences behind each other.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local F = accelhost.nn.functional

-- Tolerances of output and gradients against float64's, whose inputs are those of the dtype.
local tolerance = {float32 = 2e-5, bfloat16 = 4e-2, float16 = 6e-3}

-- query, key, value: {batch, heads, tokens, width}
local cases = {
  ["narrow heads"] = {{2, 2, 33, 5}, {2, 2, 40, 5}, {2, 2, 40, 3}, {}},
  ["heads of 32"] = {{1, 2, 70, 32}, {1, 2, 50, 32}, {1, 2, 50, 32}, {}},
  ["heads of 64, causal"] = {{1, 2, 140, 64}, {1, 2, 140, 64}, {1, 2, 140, 64}, {is_causal = true}},
  ["heads of 80, shared"] = {{1, 4, 40, 80}, {1, 2, 40, 80}, {1, 2, 40, 80}, {enable_gqa = true, is_causal = true}},
  ["heads of 128 and 104"] = {{1, 1, 66, 128}, {1, 1, 35, 128}, {1, 1, 35, 104}, {scale = 0.2}},
  ["heads of 200"] = {{1, 1, 20, 200}, {1, 1, 36, 200}, {1, 1, 36, 200}, {}},
  ["a mask of pairs"] = {{2, 2, 34, 16}, {2, 2, 70, 16}, {2, 2, 70, 16}, {mask = "bool"}},
  ["a mask for all keys alike"] = {{1, 2, 34, 16}, {1, 2, 70, 16}, {1, 2, 70, 16},
    {mask = "bool", mask_size = {34, 1}}},
  ["a mask of keys"] = {{2, 2, 34, 16}, {2, 2, 70, 16}, {2, 2, 70, 16}, {mask = "added", mask_size = {2, 1, 1, 70}}},
  ["a negative scale"] = {{1, 2, 70, 16}, {1, 2, 70, 16}, {1, 2, 70, 16}, {scale = -0.4, is_causal = true}},
  ["a scale of zero"] = {{1, 1, 20, 16}, {1, 1, 70, 16}, {1, 1, 70, 16}, {scale = 0}},
  ["many keys, few queries"] = {{1, 1, 9, 32}, {1, 1, 300, 32}, {1, 1, 300, 32}, {}},
  ["many queries, few keys"] = {{1, 1, 200, 64}, {1, 1, 30, 64}, {1, 1, 30, 64}, {}},
  ["one query, all keys"] = {{2, 3, 1, 64}, {2, 3, 129, 64}, {2, 3, 129, 64}, {}},
  ["few queries, a mask of pairs"] = {{2, 2, 7, 40}, {2, 2, 131, 40}, {2, 2, 131, 24}, {mask = "bool"}},
  ["few queries, the last blocks masked"] = {{1, 2, 3, 64}, {1, 2, 200, 64}, {1, 2, 200, 64},
    {mask = "first", seen = 61}},
  ["few queries, the first blocks masked"] = {{1, 2, 8, 16}, {1, 2, 150, 16}, {1, 2, 150, 16},
    {mask = "last", seen = 130}},
  ["few queries, more keys than a block of them"] = {{1, 2, 5, 48}, {1, 2, 1100, 48}, {1, 2, 1100, 48},
    {mask = "bool"}},
  ["one query, more keys than a block of them"] = {{1, 3, 1, 16}, {1, 3, 1027, 16}, {1, 3, 1027, 80}, {}},
  ["few queries, all keys of the first block masked"] = {{1, 1, 4, 32}, {1, 1, 700, 32}, {1, 1, 700, 32},
    {mask = "last", seen = 601}},
  ["few queries, a mask that is added"] = {{2, 2, 3, 24}, {2, 2, 70, 24}, {2, 2, 70, 24}, {mask = "added"}},
  ["a mask that is added"] = {{2, 2, 34, 16}, {2, 2, 70, 16}, {2, 2, 70, 16}, {mask = "added"}},
}

local function near(wanted, got, dtype, what)
  check.near(check.flat(wanted), got:to("float64"), tolerance[dtype], what)
end

-- Output and gradients of query, key and value.
local function run(inputs, dtype, weights, attend)
  local leaves = {}
  for i, input in ipairs(inputs) do leaves[i] = input:detach():to(dtype):requires_grad_() end
  local output = attend(leaves[1], leaves[2], leaves[3], function(t) return t:to(dtype) end)
  return output, accelhost.autograd.grad((output:to("float64") * weights):sum(), leaves)
end

local function compare(inputs, dtype, size, attend)
  for i, input in ipairs(inputs) do inputs[i] = input:to(dtype):to("float64") end
  local weights = accelhost.randn(size, {dtype = "float64"})
  local wanted, wanted_grads = run(inputs, "float64", weights, attend)
  local got, grads = run(inputs, dtype, weights, attend)
  near(wanted, got, dtype, "output")
  for i, name in ipairs {"query", "key", "value"} do near(wanted_grads[i], grads[i], dtype, "gradient of " .. name) end
end

describe("attention without scores in memory", function()
  for dtype in pairs(tolerance) do
    for name, case in pairs(cases) do
      it(("agrees in %s with float64: %s"):format(dtype, name), function()
        accelhost.manual_seed(7)
        local inputs, o = {}, case[4]
        for i = 1, 3 do inputs[i] = accelhost.randn(case[i], {dtype = "float64"}) end
        local mask = o.mask and accelhost.randn(o.mask_size or {case[1][3], case[2][3]}, {dtype = "float64"})
        if mask then mask = mask:to(dtype):to("float64") end
        if o.mask == "bool" then mask = mask:gt(0) end
        if o.seen then
          local places = accelhost.arange(case[2][3]):view(1, -1)
          mask = o.mask == "first" and places:lt(o.seen) or places:ge(o.seen)
        end
        compare(inputs, dtype, {case[1][1], case[1][2], case[1][3], case[3][4]}, function(q, k, v, cast)
          return F.scaled_dot_product_attention(q, k, v, o.mask == "added" and cast(mask) or mask, 0,
            o.is_causal or false, o.scale, o.enable_gqa or false)
        end)
      end)
    end

    it("agrees in " .. dtype .. " with float64: sequences behind each other, in a window", function()
      accelhost.manual_seed(8)
      local inputs = {}
      for i, heads in ipairs {4, 2, 2} do inputs[i] = accelhost.randn({150, heads, 24}, {dtype = "float64"}) end
      local starts = accelhost.tensor({0, 70, 70, 73, 150}, {dtype = "int32"})
      compare(inputs, dtype, {150, 4, 24}, function(q, k, v)
        return (F.varlen_attn(q, k, v, starts, starts, 77, 77, {window_size = {20, 3}, enable_gqa = true}))
      end)
    end)

    it("agrees in " .. dtype .. " with float64 where scores rise and fall from key to key", function()
      accelhost.manual_seed(10)
      local inputs = {}
      for i = 1, 3 do inputs[i] = accelhost.randn({1, 2, 200, 16}, {dtype = "float64"}) end
      local far = accelhost.linspace(-1, 1, 200, {dtype = "float64"}):mul(7):sin():mul(4):reshape(200, 1)
      inputs[2], inputs[3] = inputs[2] * far, inputs[3] * 0.2
      compare(inputs, dtype, {1, 2, 200, 16}, function(q, k, v) return F.scaled_dot_product_attention(q, k, v) end)
    end)

    it("drops the same weights in " .. dtype .. " as in float64", function()
      local inputs = {}
      accelhost.manual_seed(13)
      for i = 1, 3 do inputs[i] = accelhost.randn({2, 2, 140, 24}, {dtype = "float64"}) end
      compare(inputs, dtype, {2, 2, 140, 24}, function(q, k, v)
        accelhost.manual_seed(11)
        return F.scaled_dot_product_attention(q, k, v, {dropout_p = 0.4, is_causal = true})
      end)
    end)

    it("agrees in " .. dtype .. " with float64 where heads follow tokens and rows are not aligned", function()
      accelhost.manual_seed(9)
      local inputs = {}
      for i = 1, 3 do inputs[i] = accelhost.randn({2, 37, 3, 17}, {dtype = "float64"}) end
      compare(inputs, dtype, {2, 3, 37, 16}, function(q, k, v)
        local heads = {}
        for i, t in ipairs {q, k, v} do heads[i] = t:narrow(3, 1, 16):transpose(1, 2) end
        return F.scaled_dot_product_attention(heads[1], heads[2], heads[3], {is_causal = true})
      end)
    end)
  end

  -- query, key and value: few queries, 3 and 5 dims, heads and batches that are shared.
  local shapes = {
    {{2, 4, 1, 64}, {2, 4, 64, 64}}, {{1, 4, 7, 64}, {1, 2, 64, 64}, {enable_gqa = true}}, {{4, 64, 64}, {4, 64, 64}},
    {{2, 33, 16}, {2, 40, 16}, {is_causal = true}}, {{4, 20, 32}, {2, 30, 32}, {enable_gqa = true}},
    {{2, 1, 2, 20, 64}, {2, 1, 2, 30, 64}}, {{2, 2, 20, 64}, {1, 2, 30, 64}}, {{20, 64}, {30, 64}},
  }
  for dtype, tiny in pairs {bfloat16 = 2 ^ -8, float16 = 2 ^ -11} do
    it("rounds no scores, and sums of weights no more than results are, in " .. dtype, function()
      accelhost.manual_seed(12)
      for _, case in ipairs(shapes) do
        local inputs = {}
        for i = 1, 3 do
          inputs[i] = accelhost.randn(case[math.min(i, 2)], {dtype = "float64"}):mul(2):to(dtype):double()
        end
        local size = case[1]
        local weights = accelhost.randn(size, {dtype = "float64"})
        local function attend(q, k, v) return F.scaled_dot_product_attention(q, k, v, case[3]) end
        local wanted, wanted_grads = run(inputs, "float64", weights, attend)
        local got, grads = run(inputs, dtype, weights, attend)
        assert.same(wanted:shape(), got:shape())
        local function error_of(a, b) return ((a:double() - b):abs():max() / b:abs():max()):item() end
        assert.is_true(error_of(got, wanted) < tiny, ("%s: output off by %g"):format(#size, error_of(got, wanted)))
        for i = 1, 3 do
          local off = error_of(grads[i], wanted_grads[i])
          assert.is_true(off < 4 * tiny, ("%d dims: gradient %d off by %g"):format(#size, i, off))
        end
      end
    end)
  end

  it("returns zeros and no gradient for a query that attends to nothing", function()
    local q, k, v = accelhost.randn(1, 1, 9, 8), accelhost.randn(1, 1, 20, 8), accelhost.randn(1, 1, 20, 8)
    local mask = accelhost.ones({9, 20}, {dtype = "bool"})
    mask:select(0, 4):fill_(false)
    q:requires_grad_()
    local output = F.scaled_dot_product_attention(q, k, v, mask)
    output:sum():backward()
    assert.equal(0, output:select(2, 4):abs():sum():item())
    assert.equal(0, q.grad:select(2, 4):abs():sum():item())
    assert.is_true(q.grad:abs():sum():item() > 0)
  end)

  it("drops the same weights forward, in its gradients and in their gradients", function()
    local inputs = {}
    for i = 1, 3 do inputs[i] = accelhost.randn({1, 2, 70, 8}, {dtype = "float64"}):requires_grad_() end
    local function grads(more)
      accelhost.manual_seed(11)
      local output = F.scaled_dot_product_attention(inputs[1], inputs[2], inputs[3], nil, 0.3)
      return output, accelhost.autograd.grad(output:square():sum(), inputs, {create_graph = more})
    end
    local output, by_kernel = grads(false)
    local _, by_products = grads(true)
    for i = 1, 3 do check.near(check.flat(by_products[i]:detach()), by_kernel[i], 1e-10) end
    -- The output is linear in the values.
    local linear = (by_kernel[3] * inputs[3]:detach()):sum():item()
    check.near({2 * output:detach():square():sum():item()}, accelhost.tensor({linear}, {dtype = "float64"}), 1e-9)
    -- Of 2 * 70 * 70 weights as many stay as shall.
    local ones = accelhost.ones({1, 2, 70, 8}, {dtype = "float64"})
    local same = accelhost.zeros({1, 2, 70, 8}, {dtype = "float64"})
    local mean = F.scaled_dot_product_attention(same, same, ones, nil, 0.3):mean():item()
    assert.is_true(math.abs(mean - 1) < 0.03)
  end)

  it("keeps a NaN to the queries that see it", function()
    local q, k, v = accelhost.randn(1, 1, 40, 8), accelhost.randn(1, 1, 40, 8), accelhost.randn(1, 1, 40, 8)
    k:select(2, 35):fill_(0 / 0)
    local seen = F.scaled_dot_product_attention(q, k, v, {is_causal = true}):isnan():any(-1):reshape(-1)
    for i = 0, 39 do assert.equal(i >= 35, seen[i]:item() ~= 0 and seen[i]:item() ~= false) end
  end)
end)
