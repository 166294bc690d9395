-- Batches of encoded texts: padding, and labels for language models.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local data, text = accelhost.data, accelhost.text

-- Make a tokenizer with the fields that a collator reads.
local function tokenizer(more)
  local made = {pad_token_id = 0, cls_token_id = 2, mask_token_id = 4, padding_side = "right", pad_token_type_id = 3,
    len = function() return 30 end}
  for name, value in pairs(more or {}) do made[name] = value end
  return setmetatable(made, {})
end

local function lists(batch)
  local result = {}
  for name, value in pairs(batch) do result[name] = value:tolist() end
  return result
end

local samples = {
  {input_ids = {5, 6, 7}, token_type_ids = {0, 0, 1}, label = 1, text = "left out"},
  {input_ids = accelhost.tensor({{8}}, {dtype = "int64"}), token_type_ids = {1}, label = 0, text = "too"},
}

describe("DataCollatorWithPadding", function()
  it("fills up to the longest, with a mask, and makes labels", function()
    local batch = text.DataCollatorWithPadding(tokenizer())(samples)
    assert.same({
      input_ids = {{5, 6, 7}, {8, 0, 0}}, token_type_ids = {{0, 0, 1}, {1, 3, 3}},
      attention_mask = {{1, 1, 1}, {1, 0, 0}}, labels = {1, 0},
    }, lists(batch))
    for _, value in pairs(batch) do assert.equal("int64", value.dtype) end
  end)

  it("fills from the left, to a length and to a multiple", function()
    local left = text.DataCollatorWithPadding(tokenizer{padding_side = "left"}, {pad_to_multiple_of = 4})(samples)
    assert.same({{0, 5, 6, 7}, {0, 0, 0, 8}}, left.input_ids:tolist())
    assert.same({{0, 1, 1, 1}, {0, 0, 0, 1}}, left.attention_mask:tolist())
    local long = text.DataCollatorWithPadding(tokenizer(), {padding = "max_length", max_length = 5})
    assert.same({{5, 6, 7, 0, 0}, {8, 0, 0, 0, 0}}, long(samples).input_ids:tolist())
  end)

  it("pads labels of tokens with -100 and keeps numbers that are none as float32", function()
    local batch = text.DataCollatorWithPadding(tokenizer()) {
      {input_ids = {5, 6}, labels = {1, 2}, score = 0.5}, {input_ids = {8}, labels = {3}, score = 1},
    }
    assert.same({{1, 2}, {3, -100}}, batch.labels:tolist())
    assert.same({"float32", 0.5, 1}, {batch.score.dtype, unpack(batch.score:tolist())})
  end)

  it("is for labels of tokens under its name there", function()
    local rows = {{input_ids = {5, 6}, labels = {1, 2}}, {input_ids = {8}, labels = {3}}}
    local batch = text.DataCollatorForTokenClassification(tokenizer())(rows)
    assert.same(lists(text.DataCollatorWithPadding(tokenizer())(rows)), lists(batch))
    assert.same({{1, 2}, {3, -100}}, batch.labels:tolist())
  end)

  it("is a loader's collate function, of a table's rows", function()
    local set = data.Table {text = {"a b c", "d", "e f"}, label = {0, 1, 1}}:map(function(row)
      local ids = {}
      for letter in row.text:gmatch "%a" do ids[#ids + 1] = letter:byte() end
      return {input_ids = ids}
    end)
    local shapes = {}
    local loader = data.DataLoader(set, {batch_size = 2, collate_fn = text.DataCollatorWithPadding(tokenizer())})
    for batch in loader do shapes[#shapes + 1] = batch.input_ids:shape() end
    assert.same({{2, 3}, {1, 2}}, shapes)
  end)

  it("reports mismatched arguments", function()
    local collate = text.DataCollatorWithPadding(tokenizer())
    check.raises("DataCollatorWithPadding: sample 2 has no 'input_ids'", function() collate{samples[1], {}} end)
    check.raises("sample 2 has no 'label', which sample 1 has", function() collate{samples[1], {input_ids = {1},
      token_type_ids = {1}}} end)
    check.raises("'input_ids' of sample 1: expected a tensor or a table of numbers, got 'x'",
      function() collate{{input_ids = "x"}} end)
    check.raises("expected a table of samples", function() collate{} end)
    check.raises("the tokenizer has no pad_token",
      function() text.DataCollatorWithPadding(tokenizer{pad_token_id = false})(samples) end)
    check.raises("padding: false does not pad",
      function() text.DataCollatorWithPadding(tokenizer(), {padding = false}) end)
    check.raises('padding "max_length" needs max_length',
      function() text.DataCollatorWithPadding(tokenizer(), {padding = "max_length"}) end)
  end)
end)

describe("DataCollatorForLanguageModeling", function()
  it("uses a causal model's tokens as labels, without padding", function()
    local collate = text.DataCollatorForLanguageModeling(tokenizer{mask_token_id = false}, {mlm = false})
    local batch = collate{{input_ids = {5, 6, 7}}, {input_ids = {8}}}
    assert.same({{5, 6, 7}, {8, 0, 0}}, batch.input_ids:tolist())
    assert.same({{5, 6, 7}, {8, -100, -100}}, batch.labels:tolist())
  end)

  -- PyTorch 2.15's numbers for transformers' lines (bernoulli, bernoulli, bernoulli, randint) with seed 3.
  local INPUTS = {
    {2, 4, 4, 4, 9, 4, 11, 12, 13, 14},
    {2, 16, 4, 5, 6, 7, 4, 0, 0, 0},
    {2, 4, 14, 4, 4, 4, 4, 6, 4, 4},
    {2, 10, 4, 4, 11, 4, 4, 16, 4, 5},
  }
  local LABELS = {
    {-100, 6, 7, 8, -100, 10, -100, -100, -100, -100},
    {-100, -100, 17, -100, 6, -100, 8, -100, -100, -100},
    {-100, 13, -100, 15, 16, 17, 5, -100, 7, 8},
    {-100, -100, 11, 12, 13, 14, 15, 16, 17, -100},
  }

  it("masks as transformers does with the seed", function()
    local rows = {}
    for i = 0, 3 do
      local ids = {2}
      for k = 1, i == 1 and 6 or 9 do ids[k + 1] = (i * 10 + k) % 13 + 5 end
      rows[i + 1] = {input_ids = ids}
    end
    local collate = text.DataCollatorForLanguageModeling(tokenizer(), {mlm_probability = 0.4})
    accelhost.manual_seed(3)
    local batch = collate(rows)
    assert.same(INPUTS, batch.input_ids:tolist())
    assert.same(LABELS, batch.labels:tolist())
    local generator = accelhost.Generator()
    generator:manual_seed(3)
    collate = text.DataCollatorForLanguageModeling(tokenizer(), {mlm_probability = 0.4, generator = generator})
    assert.same(INPUTS, collate(rows).input_ids:tolist())
    for _, row in ipairs(rows) do
      row.special_tokens_mask = {}
      for k = 1, #row.input_ids do row.special_tokens_mask[k] = 1 end
    end
    batch = collate(rows)
    assert.same({true, false}, {batch.labels:eq(-100):all():item(), batch.special_tokens_mask ~= nil})
  end)

  it("chooses, masks and replaces with the configured probabilities", function()
    local ids = {}
    for k = 1, 20000 do ids[k] = 40 end
    accelhost.manual_seed(1)
    local batch = text.DataCollatorForLanguageModeling(tokenizer())({{input_ids = ids}})
    local chosen = batch.labels:ne(-100)
    local count = chosen:sum():item()
    check.near(0.15, count / 20000, 0.01)
    check.near(0.8, batch.input_ids:eq(4):sum():item() / count, 0.02)
    check.near(0.1, batch.input_ids:eq(40):logical_and(chosen):sum():item() / count, 0.02)
    assert.truthy(batch.input_ids:eq(40):logical_or(chosen):all():item())
  end)

  it("needs a mask token", function()
    check.raises("mlm: the tokenizer has no mask_token",
      function() text.DataCollatorForLanguageModeling(tokenizer{mask_token_id = false}) end)
    check.raises("add up to more than 1", function()
      text.DataCollatorForLanguageModeling(tokenizer(), {random_replace_prob = 0.3})
    end)
  end)
end)

describe("DataCollatorWithFlattening", function()
  local rows = {{input_ids = {7, 8, 9}}, {input_ids = accelhost.tensor({4, 5}, {dtype = "int64"}), labels = {-100, 6}}}

  it("makes one row of the texts, whose positions begin at 0 in each", function()
    local batch = text.DataCollatorWithFlattening()(rows)
    assert.same({{7, 8, 9, 4, 5}}, batch.input_ids:tolist())
    assert.same({{-100, 8, 9, -100, 6}}, batch.labels:tolist())
    assert.same({{0, 1, 2, 0, 1}}, batch.position_ids:tolist())
    batch = text.DataCollatorWithFlattening {return_position_ids = false, separator_id = -1}(rows)
    assert.same({{-1, 8, 9, -1, 6}}, batch.labels:tolist())
    assert.is_nil(batch.position_ids)
  end)

  it("names labels of another number", function()
    check.raises("labels: expected 2, one for each of the input_ids, got 1", function()
      text.DataCollatorWithFlattening()({{input_ids = {1, 2}, labels = {1}}})
    end)
  end)
end)
