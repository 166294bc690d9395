-- MLPs whose activation is multiplied by a second linear map, act(gate) * up, by one op: as by two.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local models, peft = accelhost.models, accelhost.peft
local F = accelhost.nn.functional

local by_two = {
  silu = function(x, y) return F.silu(x) * y end,
  gelu = function(x, y) return F.gelu(x) * y end,
  gelu_tanh = function(x, y) return F.gelu(x, {approximate = "tanh"}) * y end,
}

-- The number of calls of the op while fn runs; `replaced`: they are computed by two ops.
local function count(fn, replaced)
  local calls, original = 0, C.activation_mul
  C.activation_mul = function(x, y, name)
    calls = calls + 1
    if replaced then return by_two[name](x, y) end
    return original(x, y, name)
  end
  local done, failure = pcall(fn)
  C.activation_mul = original
  if not done then error(failure, 0) end
  return calls
end

describe("activation_mul", function()
  for name, two in pairs(by_two) do
    it("has the bits of two ops in float32 and float64, in forward and backward: " .. name, function()
      for _, dtype in ipairs {"float32", "float64"} do
        accelhost.manual_seed(1)
        local x, y = accelhost.randn(7, 33):to(dtype), accelhost.randn(7, 33):to(dtype)
        local grad, found = accelhost.randn(7, 33):to(dtype), {}
        for i, fn in ipairs {two, function(a, b) return C.activation_mul(a, b, name) end} do
          local a, b = x:clone():requires_grad_(), y:clone():requires_grad_()
          local out = fn(a, b)
          out:backward(grad)
          found[i] = {out:detach(), a.grad, b.grad}
        end
        for i = 1, 3 do assert.is_true(found[1][i]:equal(found[2][i])) end
      end
    end)

    it("rounds bfloat16 once, where two ops round twice: " .. name, function()
      accelhost.manual_seed(2)
      local x, y = (3 * accelhost.randn(9, 50)):bfloat16(), accelhost.randn(9, 50):bfloat16()
      assert.is_true(two(x:float(), y:float()):bfloat16():equal(C.activation_mul(x, y, name)))
    end)

    it("has first and second derivatives, also of views: " .. name, function()
      accelhost.manual_seed(3)
      local x = accelhost.randn({3, 8}, {dtype = "float64"}):requires_grad_()
      local y = accelhost.randn({4, 3}, {dtype = "float64"}):requires_grad_()
      local function fn(a, b) return C.activation_mul(a:narrow(1, 2, 4), b:t(), name) end
      gradcheck.gradcheck(fn, {x, y})
      gradcheck.gradgradcheck(fn, {x, y})
    end)
  end

  it("writes over a factor only where nothing reads it again", function()
    accelhost.manual_seed(4)
    local x, y = accelhost.randn(5, 6):requires_grad_(), accelhost.randn(5, 6):requires_grad_()
    local other = y * 1
    local kept, loss = other:detach():clone(), C.activation_mul(x, other, "silu"):sum()
    loss:backward {retain_graph = true}
    local first = x.grad:clone()
    loss:backward()
    assert.is_true(other:equal(kept))
    check.near(check.flat(first * 2), x.grad, 1e-6)
  end)

  it("computes a large result again for the product that reads it, and holds its two factors alone", function()
    if accelhost.get_default_device() ~= "cpu" then return end
    accelhost.manual_seed(5)
    local rows, width = 576, 1024 -- 2.25 MiB, above the size from which gates are computed again
    local x, w = accelhost.randn(rows, 8), accelhost.randn({8, width}):requires_grad_()
    local w1, w2 = accelhost.randn({width, 8}):requires_grad_(), accelhost.randn({width, 8}):requires_grad_()
    local function loss_of(op) return F.linear(op(F.linear(x, w1), F.linear(x, w2)), w):square():sum() end
    collectgarbage()
    local before = C.system.memory_stats().live
    local loss = loss_of(function(a, b) return C.activation_mul(a, b, "silu") end)
    collectgarbage()
    local held = (C.system.memory_stats().live - before) / (4 * rows * width)
    assert.is_true(held > 1.9 and held < 2.2)
    loss:backward()
    local found = {w.grad, w1.grad, w2.grad}
    w.grad, w1.grad, w2.grad = nil, nil, nil
    loss_of(by_two.silu):backward()
    for i, parameter in ipairs {w, w1, w2} do check.near(check.flat(parameter.grad), found[i], 1e-3) end
  end)

  it("reports wrong arguments", function()
    local x = accelhost.zeros(2, 3)
    check.raises("activation_mul: expected 'silu', 'gelu' or 'gelu_tanh', got 'relu'", function()
      C.activation_mul(x, x, "relu")
    end)
    check.raises("activation_mul: expected two tensors of one shape and dtype, got float32 (2, 3) and float32 (3,)",
      function() C.activation_mul(x, accelhost.zeros(3), "silu") end)
    check.raises("activation_mul: expected two tensors of one shape and dtype, got float32 (2, 3) and float64 (2, 3)",
      function() C.activation_mul(x, x:double(), "silu") end)
  end)
end)

local sizes = {vocab_size = 30, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2,
  num_attention_heads = 2, num_key_value_heads = 2, pad_token_id = 0}
local function with(more)
  local config = {}
  for _, from in ipairs {sizes, more or {}} do
    for name, value in pairs(from) do config[name] = value end
  end
  return config
end
local makers = {
  Llama = function() return models.LlamaForCausalLM(with()) end,
  ["Llama with adapters"] = function()
    return peft.get_peft_model(models.LlamaForCausalLM(with()),
      peft.LoraConfig {r = 2, target_modules = "all-linear", init_lora_weights = false})
  end,
  ["Llama with checkpointing"] = function()
    local model = models.LlamaForCausalLM(with())
    model:gradient_checkpointing_enable()
    return model
  end,
  Qwen2 = function() return models.Qwen2ForCausalLM(with()) end,
  Gemma2 = function() return models.Gemma2ForCausalLM(with {head_dim = 4, num_key_value_heads = 1}) end,
  Phi3 = function() return models.Phi3ForCausalLM(with()) end,
  T5 = function()
    return models.T5ForConditionalGeneration {vocab_size = 30, d_model = 8, d_kv = 4, d_ff = 16, num_layers = 1,
      num_heads = 2, feed_forward_proj = "gated-gelu", dropout_rate = 0}
  end,
}

local function step(model, text)
  model:zero_grad()
  local loss = model{input_ids = text, labels = text}.loss
  loss:backward()
  local found = {loss:detach()}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.grad then found[#found + 1] = parameter.grad:clone() end
  end
  return found
end

describe("A gated MLP of", function()
  for name, make in pairs(makers) do
    it(name .. " is computed by one op, with the bits of two", function()
      accelhost.manual_seed(6)
      local text, model = accelhost.randint(1, 30, {2, 5}), make()
      model:train()
      local one, two
      assert.is_true(count(function() one = step(model, text) end) > 0)
      count(function() two = step(model, text) end, true)
      assert.equal(#two, #one)
      assert.is_true(#one > 1)
      for i, t in ipairs(two) do assert.is_true(t:equal(one[i])) end
    end)
  end

  it("a model in bfloat16 has the loss and gradients of two ops, up to their rounding", function()
    accelhost.manual_seed(7)
    local text, model = accelhost.randint(1, 30, {2, 5}), models.LlamaForCausalLM(with()):bfloat16()
    local one, two = step(model, text), nil
    count(function() two = step(model, text) end, true)
    for i, t in ipairs(two) do
      local wanted, found = t:float(), one[i]:float()
      assert.is_true((wanted - found):norm():item() <= 0.02 * wanted:norm():item() + 1e-6)
    end
  end)

  it("a model with another activation is computed by two ops", function()
    local model = models.LlamaForCausalLM(with {hidden_act = "relu"})
    assert.equal(0, count(function() step(model, accelhost.randint(1, 30, {1, 4})) end))
  end)

  it("leaves the results of watched linear maps to the hooks", function()
    accelhost.manual_seed(8)
    local model, kept = models.LlamaForCausalLM(with()), {}
    for path, module in model:named_modules() do
      if path:find "gate_proj$" or path:find "up_proj$" or path:find "down_proj$" then
        module:register_forward_hook(function(_, _, out) kept[#kept + 1] = out end)
      end
    end
    step(model, accelhost.randint(1, 30, {1, 4}))
    assert.equal(6, #kept)
    for _, out in ipairs(kept) do assert.is_true(out:abs():sum():item() > 0) end
  end)

  it("a captured step has the losses of the function", function()
    local function train(compiles)
      accelhost.manual_seed(9)
      local accelerator = accelhost.Accelerator {cpu = true}
      local model = models.LlamaForCausalLM(with())
      local optimizer = accelhost.optim.AdamW(model:parameters(), {lr = 0.01})
      model, optimizer = accelerator:prepare(model, optimizer)
      local function fn(text)
        local loss = model{input_ids = text, labels = text}.loss
        accelerator:backward(loss)
        optimizer:step()
        optimizer:zero_grad()
        return loss
      end
      local call, losses = compiles and accelerator:compile(fn) or fn, {}
      for i = 1, 8 do losses[i] = call(accelhost.randint(1, 30, {2, 5})):item() end
      if compiles then assert.is_true(call.captured) end
      return losses
    end
    assert.same(train(false), train(true))
  end)
end)
