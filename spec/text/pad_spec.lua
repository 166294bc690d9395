-- Tokenizer:pad, for samples that were encoded one by one.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local VOCABULARY = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2, ["##er"] = 3}

local function tokenizer(config)
  return accelhost.text.Tokenizer({model = {type = "WordPiece", vocab = VOCABULARY}}, config or {pad_token = "[PAD]"})
end

describe("tokenizer:pad", function()
  it("returns the result of the call with padding", function()
    local made = tokenizer()
    local whole, rows = made({"deeper", "deep"}, {padding = true}), made({"deeper", "deep"}, {return_tensors = false})
    local apart = {made("deeper", {return_tensors = false}), made("deep", {return_tensors = false})}
    for _, encoded in ipairs {rows, apart} do
      local batch = made:pad(encoded)
      for _, name in ipairs {"input_ids", "attention_mask", "token_type_ids"} do
        assert.same(whole[name]:tolist(), batch[name]:tolist())
        assert.equal("int64", batch[name].dtype)
      end
      assert.same({"deep", "##er"}, batch:tokens(0))
    end
  end)

  it("stacks one number a sample under its own name, and is a collate function", function()
    local made = tokenizer()
    local rows = {{input_ids = {2, 3, 0}, label = 1}, {input_ids = accelhost.tensor({2}, {dtype = "int64"}), label = 0}}
    local loader = accelhost.data.DataLoader(rows,
      {batch_size = 2, collate_fn = function(batch) return made:pad(batch) end})
    for batch in loader do
      assert.same({{2, 3, 0}, {2, 1, 1}}, batch.input_ids:tolist())
      assert.same({1, 0}, batch.label:tolist())
      assert.is_nil(batch.labels)
    end
  end)

  it("pads to a length, to a multiple, from the left, and one sample alone", function()
    local made = tokenizer()
    local rows = {input_ids = {{2, 3}, {2}}}
    assert.same({{1, 1, 2, 3}, {1, 1, 1, 2}},
      made:pad(rows, {padding_side = "left", pad_to_multiple_of = 4}).input_ids:tolist())
    assert.same({{2, 3, 1, 1, 1}, {2, 1, 1, 1, 1}},
      made:pad(rows, {padding = "max_length", max_length = 5}).input_ids:tolist())
    assert.same({2, 3, 1}, made:pad({input_ids = {2, 3}}, {padding = "max_length", max_length = 3}).input_ids:tolist())
    local lists = made:pad(rows, {return_tensors = false, return_attention_mask = false})
    assert.same({{2, 3}, {2, 1}}, lists.input_ids)
    assert.is_nil(lists.attention_mask)
  end)

  it("refuses wrong arguments", function()
    local made, rows = tokenizer(), {input_ids = {{2, 3}, {2}}}
    check.raises("tokenizer.pad: padding = false: expected samples of one length, got 1 to 2 tokens",
      function() made:pad(rows, {padding = false}) end)
    check.raises("tokenizer.pad: encoded_inputs has no 'input_ids'", function() made:pad {} end)
    check.raises("tokenizer.pad: encoded_inputs: expected samples, or columns of them, got number 3",
      function() made:pad(3) end)
    check.raises("tokenizer.pad: sample 2 has no 'label', which sample 1 has",
      function() made:pad {{input_ids = {1}, label = 1}, {input_ids = {1}}} end)
    check.raises("tokenizer.pad: padding 'max_length' needs max_length",
      function() made:pad(rows, {padding = "max_length"}) end)
    check.raises("tokenizer.pad: the tokenizer has no pad_token", function() tokenizer {}:pad(rows) end)
  end)
end)
