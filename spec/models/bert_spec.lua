-- BERT against transformers: outputs, losses, gradients, and sentence embeddings of real weights.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local datasets = require "spec.support.datasets"
local models = accelhost.models

local folder = "spec/fixtures/models/"
local expected = require("spec.support.fixtures").load("models/expected").bert
local tensors = require "spec.support.tensors"

local ids = tensors.long

local weighed = tensors.weighed

local function batch(more)
  local inputs = {input_ids = ids(expected.ids), attention_mask = ids(expected.mask)}
  for name, value in pairs(more or {}) do inputs[name] = value end
  return inputs
end

describe("BertForMaskedLM", function()
  local inputs = batch {token_type_ids = ids(expected.types), labels = ids(expected.labels)}

  it("returns transformers' logits, hidden states, loss and gradients", function()
    local model = models.BertForMaskedLM.from_pretrained(folder .. "bert")
    local output = model(inputs, {output_hidden_states = true})
    check.near(expected.logits, output.logits[1][2], 2e-5)
    check.near(expected.loss, output.loss:item(), 1e-5)
    assert.equals(3, #output.hidden_states)
    for i, state in ipairs(output.hidden_states) do
      check.near(expected.states[i], weighed(state[1]), 5e-5, "hidden state " .. i)
    end
    output.loss:backward()
    check.near(expected.grad_words, weighed(model.bert.embeddings.word_embeddings.weight.grad), 2e-5)
    check.near(expected.grad_query, weighed(model.bert.encoder.layer[1].attention.self.query.weight.grad), 2e-5)
  end)

  it("returns the weights of attention when requested, and the same states then", function()
    local model = models.BertForMaskedLM.from_pretrained(folder .. "bert", {pack_texts = false})
    local given = batch {output_attentions = true}
    local output = model(given)
    local flat = {}
    for _, row in ipairs(expected.attention) do
      for _, value in ipairs(row) do flat[#flat + 1] = value end
    end
    check.near(flat, output.attentions[2][0][0], 1e-5)
    check.near(check.flat(model(batch()).logits), output.logits, 1e-5)
  end)

  for dtype, tolerance in pairs {float64 = 1e-6, float16 = 5e-3, bfloat16 = 5e-2} do
    it("computes in " .. dtype .. ", on the device meta its shapes", function()
      local model = models.BertForMaskedLM.from_pretrained(folder .. "bert", {dtype = dtype})
      local output = model(inputs)
      assert.equals(dtype, output.logits.dtype)
      check.near(expected.loss, output.loss:to("float64"):item(), tolerance)
      output.loss:backward()
      assert.is_true(model.bert.encoder.layer[1].attention.self.key.weight.grad:isfinite():all():item())
      model:to "meta"
      assert.same({2, 5, 29}, model(ids(expected.ids):to "meta").logits:shape())
    end)
  end

  it("has one tensor for the word embeddings and the scores", function()
    local model = models.BertForMaskedLM.from_pretrained(folder .. "bert")
    assert.equals(model.bert.embeddings.word_embeddings.weight, model.cls.predictions.decoder.weight)
    assert.equals(model.cls.predictions.bias, model.cls.predictions.decoder.bias)
  end)
end)

describe("A BERT with a classifier returns transformers' logits and loss", function()
  for name, class in pairs {sequence = "BertForSequenceClassification", token = "BertForTokenClassification"} do
    it("in " .. class, function()
      local model = models[class].from_pretrained(folder .. name, {pack_texts = false})
      assert.equals(3, model.config.num_labels)
      local output = model(batch {labels = ids(expected[name].labels)})
      local logits = accelhost.tensor(expected[name].logits)
      check.near(check.flat(logits), output.logits, 2e-5)
      check.near(expected[name].loss, output.loss:item(), 1e-5)
    end)
  end
end)

describe("The loss of BertForSequenceClassification", function()
  local sizes = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, intermediate_size = 8}
  local function made(labels)
    sizes.num_labels = labels
    return models.BertForSequenceClassification(sizes):eval()
  end
  local words = ids {{1, 2}, {3, 4}}

  it("is the squared error with one label", function()
    local model, labels = made(1), accelhost.tensor {0.5, 2}
    local output = model {input_ids = words, labels = labels}
    check.near(((output.logits:reshape(-1) - labels) ^ 2):mean():item(), output.loss:item(), 1e-6)
  end)

  it("is the binary cross entropy with floating labels", function()
    local model, labels = made(2), accelhost.tensor {{0, 1}, {1, 1}}
    local output = model {input_ids = words, labels = labels}
    check.near(accelhost.nn.functional.binary_cross_entropy_with_logits(output.logits, labels):item(),
      output.loss:item(), 1e-6)
  end)
end)

describe("BERT refuses", function()
  local model = models.BertModel {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, max_position_embeddings = 4}
  local rows = {
    {"an input that it does not know", {input_ids = ids {{1}}, lables = ids {1}}, "unknown argument 'lables'"},
    {"no input", {}, "expected either input_ids or inputs_embeds"},
    {"one row of ids", ids {1, 2}, "input_ids: expected 2 dims (batch, tokens), got shape (2,)"},
    {"floating ids", accelhost.ones(1, 2), 'input_ids: expected integers, got float32 (a tensor of Lua numbers'},
    {"too many tokens", ids {{1, 1, 1, 1, 1}}, "5 tokens are more than the model's 4 positions; call "
      .. "the tokenizer with truncation = true, max_length = 4"},
    {"a mask of another shape", {input_ids = ids {{1, 2}}, attention_mask = ids {{1}}},
      "attention_mask: expected shape (1, 2), got (1, 1)"},
    {"a text", "hello", "expected tensors by name"},
  }
  for _, row in ipairs(rows) do
    it(row[1], function()
      check.raises(row[3], function() model(row[2]) end)
    end)
  end

  it("a width that its heads do not divide", function()
    check.raises("hidden_size 10 is no multiple of num_attention_heads 12", function()
      models.BertModel {hidden_size = 10, num_hidden_layers = 1}
    end)
  end)

  it("an activation that is not there", function()
    check.raises("unknown activation 'sinus' (known: gelu, ", function()
      models.BertModel {hidden_size = 12, num_hidden_layers = 1, hidden_act = "sinus"}
    end)
  end)
end)

describe("all-MiniLM-L6-v2", function()
  datasets.it("returns transformers' mean-pooled embeddings of 100 sentences to 1e-5", "minilm", function(dir)
    local fixture = require("spec.support.fixtures").load "minilm"
    local most, rows, masks = 0, {}, {}
    for _, row in ipairs(fixture.ids) do most = math.max(most, #row) end
    for i, row in ipairs(fixture.ids) do
      rows[i], masks[i] = {}, {}
      for k = 1, most do
        rows[i][k], masks[i][k] = row[k] or 0, row[k] and 1 or 0
      end
    end
    local model, told = models.AutoModel.from_pretrained(dir, {output_loading_info = true})
    assert.equals(0, #told.missing_keys + #told.unexpected_keys)
    local mask = ids(masks)
    local states = accelhost.no_grad(function()
      return model {input_ids = ids(rows), attention_mask = mask}.last_hidden_state
    end)
    local kept = mask:unsqueeze(-1):to "float32"
    local means = (states * kept):sum(1) / kept:sum(1)
    assert.equals(100, means:size(0))
    for i = 0, 99 do
      check.near(fixture.means[i + 1], means[i]:narrow(0, 0, 24), 1e-5, "sentence " .. i)
      check.near(fixture.weighed[i + 1], weighed(means[i]), 1e-5, "sentence " .. i)
    end
  end)
end)
