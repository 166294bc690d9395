--- varlen_attn: sequences of unequal lengths behind each other. Numbers of scripts/fixtures/attention.py.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixture = require("spec.support.fixtures").load("attention").varlen
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional
local EXACT = 1e-13

local weighed = tensors.weighed

local draw = tensors.leaf

local function places(list, dtype)
  return accelhost.tensor(list, {dtype = dtype or "int32"})
end

local function longest(list)
  local most = 0
  for i = 2, #list do most = math.max(most, list[i] - list[i - 1]) end
  return most
end

local function inputs(case)
  accelhost.manual_seed(3)
  local queries, keys = case.queries[#case.queries], case.keys[#case.keys]
  return draw(queries, case.heads, case.width), draw(keys, case.key_heads, case.width),
    draw(keys, case.key_heads, case.value_width)
end

local function attend(case, q, k, v, dtype)
  return F.varlen_attn(q, k, v, places(case.queries, dtype), places(case.keys, dtype), longest(case.queries),
    longest(case.keys), {window_size = case.window, scale = case.scale, enable_gqa = case.heads ~= case.key_heads})
end

-- The same of one sequence, written out.
local function written_out(q, k, v, scale, causal)
  local scores = q:transpose(0, 1):matmul(k:permute(1, 2, 0)) * scale
  if causal then
    local seen = accelhost.ones({q:size(0), k:size(0)}, {dtype = "bool"}):tril(k:size(0) - q:size(0))
    scores = scores:masked_fill(seen:logical_not(), -math.huge)
  end
  return scores:softmax(-1):matmul(v:transpose(0, 1)):transpose(0, 1), scores:logsumexp(-1)
end

describe("varlen_attn", function()
  it("returns PyTorch's numbers and gradients", function()
    for _, case in ipairs(fixture) do
      for _, dtype in ipairs {"int32", "int64"} do
        local q, k, v = inputs(case)
        local output = attend(case, q, k, v, dtype)
        check.near(case.output, output, EXACT)
        local weights = accelhost.arange(output:numel(), {dtype = "float64"}):sin():view(output:shape())
        output:backward(weights)
        check.near(case.grads, {weighed(q.grad), weighed(k.grad), weighed(v.grad)}, EXACT)
      end
    end
  end)

  it("has the gradients of differences", function()
    for _, case in ipairs(fixture) do
      gradcheck.gradcheck(function(...) return attend(case, ...) end, {inputs(case)})
    end
  end)

  it("reports that it has no derivatives of higher order", function()
    local q, k, v = inputs(fixture[1])
    check.raises("backward of attention: its second derivative is not implemented", function()
      accelhost.autograd.grad(attend(fixture[1], q, k, v):square():sum(), q, {create_graph = true})
    end)
  end)

  it("reads views of one matmul in place, and computes their gradients", function()
    local cu = places {0, 20, 57, 200}
    for _, dtype in ipairs {"float32", "float64"} do
      local packed = accelhost.randn({200, 3, 4, 32}, {dtype = dtype, requires_grad = true})
      local q, k, v = unpack(packed:unbind(1))
      local output = F.varlen_attn(q, k, v, cu, cu, 143, 143, {is_causal = true})
      output:backward(output:detach())
      local copies = {}
      for i, part in ipairs {q, k, v} do copies[i] = part:detach():contiguous():requires_grad_() end
      local same = F.varlen_attn(copies[1], copies[2], copies[3], cu, cu, 143, 143, {is_causal = true})
      same:backward(same:detach())
      check.near(check.flat(same), output, 0)
      for i, copy in ipairs(copies) do check.near(check.flat(copy.grad), packed.grad:select(1, i - 1), 0) end
    end
  end)

  it("agrees with explicit formulas, for blocks of every size", function()
    for _, size in ipairs {{1, 1, 16}, {17, 40, 32}, {64, 64, 24}, {65, 129, 64}, {130, 66, 8}, {200, 200, 80}} do
      local queries, keys, width = unpack(size)
      for _, causal in ipairs {false, true} do
        local q, k, v = draw(queries, 2, width), draw(keys, 2, width), draw(keys, 2, width)
        local output, lse = F.varlen_attn(q, k, v, places {0, queries}, places {0, keys}, queries, keys,
          {is_causal = causal, scale = 0.2, return_aux = {lse = true}})
        local blind = causal and math.max(queries - keys, 0) or 0 -- queries that see no key
        local count = queries - blind
        local expected, sums = written_out(q:narrow(0, blind, count), k, v, 0.2, causal)
        check.near(check.flat(expected), output:narrow(0, blind, count), 1e-12)
        check.near(check.flat(sums), lse:narrow(1, blind, count), 1e-12)
        assert.equal(0, output:narrow(0, 0, blind):abs():sum():item())
        assert.is_true(lse:narrow(1, 0, blind):eq(math.huge):all():item())
        local weights = accelhost.randn({queries, 2, width}, {dtype = "float64"})
        local got = accelhost.autograd.grad((output * weights):sum(), {q, k, v})
        local wanted = accelhost.autograd.grad((expected * weights:narrow(0, blind, count)):sum(), {q, k, v})
        for i = 1, 3 do check.near(check.flat(wanted[i]), got[i], 1e-12) end
      end
    end
  end)

  it("agrees between dtypes", function()
    local cu = places {0, 33, 40}
    precision.agree(function(q, k, v) return F.varlen_attn(q, k, v, cu, cu, 33, 33, {is_causal = true}) end,
      {{40, 2, 16}, {40, 2, 16}, {40, 2, 16}}, 1e-4)
    for dtype, tolerance in pairs {bfloat16 = 2e-2, float16 = 2e-3} do
      local q = accelhost.randn({40, 2, 20}):to(dtype):requires_grad_()
      local wide = q:detach():float():requires_grad_()
      local half = F.varlen_attn(q, q, q, cu, cu, 33, 33)
      local full = F.varlen_attn(wide, wide, wide, cu, cu, 33, 33)
      assert.equal(dtype, half.dtype)
      check.near(check.flat(full), half:float(), tolerance)
      half:sum():backward()
      full:sum():backward()
      check.near(check.flat(wide.grad), q.grad:float(), 3 * tolerance)
    end
  end)

  it("counts the first seqused_k keys of a sequence", function()
    local q, k, v = draw(4, 1, 3), draw(9, 1, 3), draw(9, 1, 3)
    local output = F.varlen_attn(q, k, v, places {0, 1, 4}, places {0, 4, 9}, 3, 5, {seqused_k = places {2, 4}})
    local index = accelhost.tensor({0, 1, 4, 5, 6, 7}, {dtype = "int64"})
    local same = F.varlen_attn(q, k:index_select(0, index), v:index_select(0, index), places {0, 1, 4},
      places {0, 2, 6}, 3, 4)
    check.near(check.flat(same), output, EXACT)
    local got = accelhost.autograd.grad(output:square():sum(), {k, v})
    local wanted = accelhost.autograd.grad(same:square():sum(), {k, v})
    for i = 1, 2 do check.near(check.flat(wanted[i]), got[i], EXACT) end
  end)

  it("drops weights in forward as in backward", function()
    local q, k, v = accelhost.zeros(70, 2, 16), accelhost.zeros(300, 2, 16), accelhost.ones(300, 2, 16)
    v:requires_grad_()
    local function drop()
      accelhost.manual_seed(4)
      return F.varlen_attn(q, k, v, places {0, 3, 70}, places {0, 100, 300}, 67, 200, {dropout_p = 0.5})
    end
    local output = drop()
    assert.is_true((output - 1):abs():amax():item() < 0.5 and (output:mean() - 1):abs():item() < 0.02)
    check.near(check.flat(output), drop(), 0)
    -- Equal weights: a value's gradient is the sum of its kept weights.
    output:backward(accelhost.ones_like(output))
    check.near(output:select(2, 0):sum():item(), v.grad:select(2, 0):sum():item(), 1e-2)
    local leaves = {draw(5, 2, 3), draw(5, 2, 3), draw(5, 2, 4)}
    gradcheck.gradcheck(function(...)
      accelhost.manual_seed(4)
      local a, b, c = ...
      return F.varlen_attn(a, b, c, places {0, 2, 5}, places {0, 2, 5}, 3, 3, {dropout_p = 0.4})
    end, leaves)
  end)

  it("accepts no sequences, empty ones, and no heads", function()
    local none = accelhost.zeros(0, 2, 4)
    assert.same({0, 2, 4}, F.varlen_attn(none, none, none, places {0}, places {0}, 0, 0):shape())
    local q, k = draw(2, 2, 4), draw(0, 2, 4)
    local output = F.varlen_attn(q, k, k, places {0, 2}, places {0, 0}, 2, 0)
    output:sum():backward()
    check.near(0, output:abs():sum():item() + q.grad:abs():sum():item(), 0)
    local headless = accelhost.zeros(2, 0, 4)
    assert.same({2, 0, 4}, F.varlen_attn(headless, headless, headless, places {0, 2}, places {0, 2}, 2, 2):shape())
  end)

  it("returns the same bits for any number of threads", function()
    local q, cu = accelhost.randn(600, 4, 32), places {0, 5, 300, 600}
    local function run()
      local x = q:detach():requires_grad_()
      local y = F.varlen_attn(x, x, x, cu, cu, 300, 300, {is_causal = true})
      y:backward(y:detach())
      return {check.flat(y), check.flat(x.grad)}
    end
    local before = accelhost.get_num_threads()
    accelhost.set_num_threads(1)
    local one = run()
    accelhost.set_num_threads(3)
    local three = run()
    accelhost.set_num_threads(before)
    assert.same(one, three)
  end)

  it("computes in the dtype of an autocast block", function()
    local q, cu = accelhost.randn(5, 2, 4):to "cpu", places {0, 5}:to "cpu"
    local y = accelhost.autocast({device_type = "cpu", dtype = "bfloat16"}, function()
      return F.varlen_attn(q, q, q, cu, cu, 5, 5)
    end)
    assert.equal("bfloat16", y.dtype)
  end)

  local q, two, cu = accelhost.zeros(5, 2, 4), accelhost.zeros(5, 1, 4), places {0, 2, 5}
  local function with(options) return {q, q, q, cu, cu, 3, 3, options} end
  for message, call in pairs {
    ["cu_seq_q must rise from 0 to the number of rows, 5"] = {q, q, q, places {0, 3, 2, 5}, cu, 3, 3},
    ["cu_seq_k must rise from 0 to the number of rows, 5"] = {q, q, q, cu, places {0, 2, 4}, 3, 3},
    ["expected cu_seq_q int32 or int64 (n + 1,), got float32 (3,)"] = {q, q, q, cu:float(), cu, 3, 3},
    ["sequence 1 of cu_seq_k has length 3, expected at most 2"] = {q, q, q, cu, cu, 3, 2},
    ["cu_seq_q has 2 sequences, cu_seq_k 1"] = {q, q, q, cu, places {0, 5}, 5, 5},
    ["expected as many heads in key as in query (or enable_gqa), got (5, 1, 4) and (5, 2, 4)"] =
      {q, two, two, cu, cu, 3, 3},
    ["expected query (T, H, E), key (S, G, E) and value (S, G, V), got (5, 2, 4), (5, 2, 4) and (5, 1, 4)"] =
      {q, q, two, cu, cu, 3, 3},
    ["expected a floating query, and key and value of its dtype, got float32, float64 and float32"] =
      {q, q:double(), q, cu, cu, 3, 3},
    ["seqused_k: sequence 0 has 2 keys, not 3"] = with {seqused_k = places {3, 1}},
    ["expected seqused_k int32 or int64 (2,), got int32 (1,)"] = with {seqused_k = places {3}},
    ["block_table: there is no cache in pages here"] = with {block_table = cu},
    ["num_splits: keys are never split"] = with {num_splits = 2},
    ["window_size: expected two integers of at least -1"] = with {window_size = {1}},
    ["is_causal and a window_size to the right exclude each other"] = with {window_size = {1, 1}, is_causal = true},
    ["scale: expected a number above 0, got number 0"] = with {scale = 0},
    ["expected dropout_p from 0 to below 1, got 1"] = with {dropout_p = 1},
  } do
    it("reports: " .. message, function()
      check.raises(message, function() F.varlen_attn(unpack(call)) end)
    end)
  end
end)
