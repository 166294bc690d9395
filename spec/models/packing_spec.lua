-- Batches computed without their padding, against the same with it.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local models = accelhost.models

local config = {
  vocab_size = 19, hidden_size = 24, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 32,
  max_position_embeddings = 12, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0, num_labels = 3,
}

-- The same weights, packing and not.
local function pair(class, dtype, changes)
  local all = {pack_texts = true}
  for _, from in ipairs {config, changes or {}} do
    for name, value in pairs(from) do all[name] = value end
  end
  accelhost.manual_seed(3)
  local packs = models[class](all)
  all.pack_texts = false
  local pads = models[class](all)
  pads:load_state_dict(packs:state_dict())
  return packs:to(dtype or "float64"), pads:to(dtype or "float64")
end

local function numbers(rows) return accelhost.tensor(rows, {dtype = "int64"}) end
local right = numbers {{1, 1, 1, 1, 1, 1}, {1, 1, 0, 0, 0, 0}, {1, 1, 1, 0, 0, 0}}
local words = numbers {{3, 4, 5, 6, 7, 8}, {9, 10, 1, 2, 3, 4}, {11, 12, 13, 5, 6, 7}}

describe("A packed batch has", function()
  local masks = {
    {"padding at the right", right},
    {"padding at the left", right:flip {1}},
    {"holes", numbers {{1, 0, 1, 0, 1, 1}, {1, 0, 0, 0, 0, 1}, {0, 1, 1, 0, 0, 0}}},
    {"a mask of truth values", right:to "bool"},
    {"a floating mask", right:to "float32"},
  }
  local more = {
    {"", {}}, {" and types of tokens", {token_type_ids = words:remainder(2)}},
    {" and given positions", {position_ids = numbers {{5, 4, 3, 2, 1, 0}}}},
  }
  local packs, pads = pair "BertModel"
  for _, mask in ipairs(masks) do
    for _, given in ipairs(more) do
      it("the states of a padded one at its tokens and 0 at padding, with " .. mask[1] .. given[1], function()
        local batch = {input_ids = words, attention_mask = mask[2], output_hidden_states = true}
        for name, value in pairs(given[2]) do batch[name] = value end
        local kept = mask[2]:to("float64"):unsqueeze(-1)
        local got, wanted = packs(batch), pads(batch)
        assert.equals(3, #got.hidden_states)
        for i, state in ipairs(wanted.hidden_states) do
          check.near(check.flat(state * kept), got.hidden_states[i], 1e-12, "states " .. i)
        end
        check.near(check.flat(wanted.last_hidden_state * kept), got.last_hidden_state, 1e-12)
        if mask[2][0][0]:item() == 1 and mask[2][1][0]:item() == 1 and mask[2][2][0]:item() == 1 then
          check.near(check.flat(wanted.pooler_output), got.pooler_output, 1e-12)
        end
      end)
    end
  end

  it("the states of a padded one where vectors are given in place of words", function()
    local batch = {inputs_embeds = accelhost.randn({3, 6, 24}, {dtype = "float64"}), attention_mask = right}
    local kept = right:to("float64"):unsqueeze(-1)
    check.near(check.flat(pads(batch).last_hidden_state * kept), packs(batch).last_hidden_state, 1e-12)
  end)

  for dtype, tolerance in pairs {float32 = 1e-5, bfloat16 = 0.06, float16 = 0.01} do
    it("the states of a padded one in " .. dtype, function()
      local small, wide = pair("BertModel", dtype)
      local batch = {input_ids = words, attention_mask = right}
      local got = small(batch).pooler_output
      assert.equals(dtype, got.dtype)
      check.near(check.flat(wide(batch).pooler_output:to "float32"), got:to "float32", tolerance)
    end)
  end

  it("the loss and the gradients of a padded one", function()
    local small, wide = pair "BertForSequenceClassification"
    local batch = {input_ids = words, attention_mask = right, labels = numbers {0, 2, 1}}
    local got, wanted = small(batch), wide(batch)
    check.near(wanted.loss:item(), got.loss:item(), 1e-12)
    got.loss:backward()
    wanted.loss:backward()
    local others = {}
    for name, parameter in wide:named_parameters() do others[name] = parameter end
    for name, parameter in small:named_parameters() do
      check.near(check.flat(others[name].grad), parameter.grad, 1e-12, name)
    end
  end)

  it("dropout that forgets tokens in training only", function()
    local model = pair("BertModel", "float32", {hidden_dropout_prob = 0.5, attention_probs_dropout_prob = 0.5})
    local batch = {input_ids = words, attention_mask = right}
    local function states() return model(batch).pooler_output end
    assert.is_false(states():equal(states()))
    model:eval()
    assert.is_true(states():equal(states()))
  end)
end)

describe("The states of padding", function()
  local packs, pads = pair "BertModel"
  local function are_zero(model, mask, more)
    local batch = {input_ids = words, attention_mask = mask}
    for name, value in pairs(more or {}) do batch[name] = value end
    local states = model(batch).last_hidden_state
    return states[1][5]:abs():sum():item() == 0
  end

  it("are 0 in a packed batch", function() assert.is_true(are_zero(packs, right)) end)
  it("are computed with pack_texts = false", function() assert.is_false(are_zero(pads, right)) end)
  it("are computed where the weights of attention are asked for", function()
    assert.is_false(are_zero(packs, right, {output_attentions = true}))
  end)
  it("are computed where a text has no tokens", function()
    local mask = numbers {{1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}}
    assert.is_false(are_zero(packs, mask))
  end)
  it("are computed with a mask for each query", function()
    assert.is_false(are_zero(packs, right:unsqueeze(1):expand(3, 6, 6)))
  end)
  it("are computed where there is little padding", function()
    local mask = accelhost.ones(3, 6)
    mask[1][5] = 0
    assert.is_false(are_zero(packs, mask))
  end)
end)

describe("Dropout of a packed batch", function()
  local dropout = {hidden_dropout_prob = 0.3, attention_probs_dropout_prob = 0.4}
  local first_seen = numbers {{1, 0, 1, 0, 1, 1}, {1, 0, 0, 0, 0, 1}, {1, 1, 1, 0, 0, 0}}

  -- Loss, gradients and the next number of the generator of one training step.
  local function step(model, mask)
    accelhost.manual_seed(11)
    model:train()
    local out = model {input_ids = words, attention_mask = mask, labels = numbers {0, 1, 2}}
    out.loss:backward()
    local gradients = {}
    for name, parameter in model:named_parameters() do
      gradients[name] = parameter.grad
    end
    return out.loss, gradients, accelhost.rand(1):item()
  end

  for name, mask in pairs {["padding at the right"] = right, ["holes"] = first_seen} do
    it("draws the masks of the padded batch, with " .. name, function()
      local packs, pads = pair("BertForSequenceClassification", "float64", dropout)
      local got, got_gradients, got_next = step(packs, mask)
      local wanted, gradients, wanted_next = step(pads, mask)
      check.near(check.flat(wanted), got, 1e-12)
      assert.equal(wanted_next, got_next)
      for parameter, gradient in pairs(gradients) do
        check.near(check.flat(gradient), got_gradients[parameter], 1e-12, parameter)
      end
    end)
  end

  it("of everything draws nothing, as dropout does", function()
    local C = require "accelhost._C"
    local x, at = accelhost.ones(2, 3), accelhost.tensor({0, 3}, {dtype = "int64"})
    accelhost.manual_seed(1)
    local before = accelhost.rand(1):item()
    accelhost.manual_seed(1)
    assert.equal(0, C.padded_dropout(x, at, 4, 1):sum():item())
    assert.equal(before, accelhost.rand(1):item())
  end)

  it("refuses rows that are none of the padded batch", function()
    local C = require "accelhost._C"
    local x = accelhost.ones(2, 3)
    for _, rows in ipairs {{3, 0}, {0, 4}, {-1, 0}, {1, 1}} do
      check.raises("of the padded batch is out of order or not below 4",
        function() C.padded_dropout(x, numbers(rows), 4, 0.5) end)
    end
    check.raises("expected rows of the padded batch as int64 (2,) on the CPU, got int64 (3,)",
      function() C.padded_dropout(x, numbers {0, 1, 2}, 4, 0.5) end)
    check.raises("expected packed rows in a contiguous tensor",
      function() C.padded_dropout(accelhost.ones(3, 2):t(), numbers {0, 1}, 4, 0.5) end)
    local q, bounds = accelhost.ones(3, 1, 8), numbers {0, 2, 3}
    local function attend(at, starts) -- two sequences of 2 tokens when padded
      return C.attention(q, q, q, nil, starts or bounds, starts or bounds, nil, at, {2, 2, 2}, {-1, -1}, 1, 0.5)
    end
    assert.same({3, 1, 8}, attend(numbers {0, 1, 3}):shape())
    check.raises("attention: padded_at: row 1 is not of sequence 0", function() attend(numbers {0, 2, 3}) end)
  end)
end)
