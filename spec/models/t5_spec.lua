-- T5 against transformers: scripts/fixtures/t5.py.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, optim, json = accelhost.models, accelhost.optim, accelhost.json
local relative = require "accelhost.models.common.relative"

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/t5/"
local expected = require("spec.support.fixtures").load "models/t5/expected"
local ids, mask, labels = tensors.long(expected.ids), tensors.long(expected.mask), tensors.long(expected.labels)
local batch = {input_ids = ids, attention_mask = mask, labels = labels}
local NEW = 12

local function load(name, dtype)
  return models.T5ForConditionalGeneration.from_pretrained(fixtures .. name, {dtype = dtype or "float64"})
end

local function flat(rows) return check.flat(tensors.double(rows)) end

local function with(more)
  local given = {}
  for name, value in pairs(batch) do given[name] = value end
  for name, value in pairs(more) do given[name] = value end
  return given
end

for _, name in ipairs {"t5", "t5_v1_1"} do
  local numbers = expected.cases[name]

  describe("T5ForConditionalGeneration of " .. name, function()
    it("returns transformers' logits, loss and gradients in float64", function()
      local model = load(name)
      local output = model(batch)
      check.near(flat(numbers.logits), output.logits, 1e-10)
      check.near(numbers.loss, output.loss:item(), 1e-10)
      output.loss:backward()
      for path, gradient in pairs(numbers.gradients) do
        check.near(gradient, tensors.weighed(model:get_parameter(path).grad), 1e-9, path)
      end
    end)

    it("returns them in float32 to its rounding", function()
      local output = load(name, "float32")(batch)
      check.near(flat(numbers.logits), output.logits, 1e-5)
      check.near(numbers.loss, output.loss:item(), 1e-5)
    end)

    it("returns transformers' states and weights of attention", function()
      local output = load(name)(with {output_hidden_states = true, output_attentions = true})
      check.near(flat(numbers.logits), output.logits, 1e-10)
      local found = {{}, {}, {}, {}}
      for i, state in ipairs(output.encoder_hidden_states) do found[1][i] = tensors.weighed(state[0]) end
      for i, state in ipairs(output.decoder_hidden_states) do found[2][i] = tensors.weighed(state) end
      for i, weights in ipairs(output.decoder_attentions) do found[3][i] = tensors.weighed(weights) end
      for i, weights in ipairs(output.cross_attentions) do found[4][i] = tensors.weighed(weights) end
      for i, field in ipairs {"encoder_states", "decoder_states", "decoder_attentions", "cross_attentions"} do
        check.near(numbers[field], found[i], 1e-9, field)
      end
    end)

    it("has transformers' losses in 20 steps of AdamW", function()
      local model, losses = load(name), {}
      local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1})
      for i = 1, #numbers.steps do
        local loss = model(batch).loss
        loss:backward()
        optimizer:step()
        optimizer:zero_grad()
        losses[i] = loss:item()
      end
      check.near(numbers.steps, losses, 1e-9)
    end)

    it("has transformers' loss and gradient with dropout", function()
      local model = load(name):train()
      accelhost.manual_seed(11)
      local loss = model(batch).loss
      loss:backward()
      check.near(numbers.dropout, {loss:item(), tensors.weighed(model.shared.weight.grad)}, 1e-9)
    end)

    it("writes transformers' tokens, with keys and values kept or not, and by beams", function()
      local model = load(name)
      local options = {attention_mask = mask, max_new_tokens = NEW, min_new_tokens = NEW}
      assert.same(numbers.greedy, model:generate(ids, options):tolist())
      options.use_cache = false
      assert.same(numbers.greedy, model:generate(ids, options):tolist())
      options.use_cache, options.num_beams = true, 3
      assert.same(numbers.beams, model:generate(ids, options):tolist())
    end)

    it("returns the same with keys and values of earlier tokens as for all at once", function()
      local model = load(name)
      local first = model:prepare_decoder_input_ids_from_labels(labels)
      local whole = model {input_ids = ids, attention_mask = mask, decoder_input_ids = first, use_cache = false}
      assert.is_nil(whole.past_key_values)
      local start = model {input_ids = ids, attention_mask = mask, decoder_input_ids = first:narrow(1, 0, 3)}
      local rest = model {
        attention_mask = mask, encoder_outputs = {last_hidden_state = start.encoder_last_hidden_state},
        decoder_input_ids = first:narrow(1, 3, 3), past_key_values = start.past_key_values,
      }
      check.near(check.flat(whole.logits:narrow(1, 3, 3)), rest.logits, 1e-10)
    end)

    it("ignores the types of tokens, which tokenizers return", function()
      local model = load(name)
      local typed = with {token_type_ids = accelhost.ones_like(ids)}
      assert.equal(model(batch).loss:item(), model(typed).loss:item())
    end)

    it("does not see hidden tokens of the decoder", function()
      local model = load(name)
      local inputs = model:prepare_decoder_input_ids_from_labels(labels)
      local seen = accelhost.ones({2, 6}, {dtype = "int64"})
      seen[0]:narrow(0, 1, 2):fill_(0)
      local function logits(given)
        return model {input_ids = ids, attention_mask = mask, decoder_input_ids = given, decoder_attention_mask = seen}
          .logits:select(1, 5)
      end
      local before = logits(inputs)
      inputs = inputs:clone()
      inputs[0][1] = 30
      check.near(check.flat(before), logits(inputs), 1e-12)
    end)

    it("has the same loss and gradients with layers computed again", function()
      local function step(enable)
        local model = load(name):train()
        if enable then model:gradient_checkpointing_enable() end
        accelhost.manual_seed(4)
        local loss = model(batch).loss
        loss:backward()
        local found = {}
        for _, parameter in ipairs(model:parameters()) do found[#found + 1] = parameter.grad:reshape(-1) end
        return loss:item(), accelhost.cat(found)
      end
      local loss, gradients = step(false)
      local loss_again, gradients_again = step(true)
      assert.equal(loss, loss_again)
      check.near(check.flat(gradients), gradients_again, 1e-12)
    end)

    it("computes in bfloat16, and under autocast", function()
      local output = load(name, "bfloat16")(batch)
      assert.equal("bfloat16", output.logits.dtype)
      check.near(numbers.loss, output.loss:to("float32"):item(), 0.1)
      local model = load(name, "float32")
      local loss = accelhost.autocast("cpu", function() return model(batch).loss end)
      loss:backward()
      check.near(numbers.loss, loss:to("float32"):item(), 0.1)
    end)

    it("is saved and read again, bit for bit, with the entries of its configuration", function()
      local kept = os.getenv "ACCELHOST_SAVED" -- for the fixture's script
      local leave = temporary.enter()
      local folder = kept and kept .. "/" .. name or "out"
      local model = load(name, "float32")
      model:save_pretrained(folder)
      local again, report = models.AutoModelForSeq2SeqLM.from_pretrained(folder, {output_loading_info = true})
      assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
      assert.is_true(model(batch).logits:equal(again(batch).logits))
      local before, after = json.decode(files.read(fixtures .. name .. "/config.json")),
        json.decode(files.read(folder .. "/config.json"))
      leave()
      for _, field in ipairs {"torch_dtype", "dtype", "transformers_version", "tie_word_embeddings"} do
        before[field] = nil
      end
      for field, value in pairs(before) do
        if value ~= json.null then assert.same(value, after[field], field) end
      end
    end)

    it("has the encoder and the model without a head in the same folder", function()
      local output = load(name)(batch)
      local encoder = models.T5EncoderModel.from_pretrained(fixtures .. name, {dtype = "float64"})
      local states = encoder {input_ids = ids, attention_mask = mask}.last_hidden_state
      assert.is_true(output.encoder_last_hidden_state:equal(states))
      local whole = models.AutoModel.from_pretrained(fixtures .. name, {dtype = "float64"})
      assert.equal("T5Model", whole._name)
      local first = load(name):prepare_decoder_input_ids_from_labels(labels)
      assert.same({2, 6, 16},
        whole{input_ids = ids, attention_mask = mask, decoder_input_ids = first}.last_hidden_state:shape())
    end)
  end)
end

describe("T5", function()
  it("has transformers' buckets of distances", function()
    local distance = accelhost.arange(-300, 301)
    for _, row in ipairs(expected.buckets) do
      assert.same(row.both, relative.buckets(distance, row.buckets, row.farthest):tolist())
      assert.same(row.before, relative.buckets(distance, row.buckets, row.farthest, true):tolist())
    end
  end)

  it("refuses entries, inputs and options that it does not know", function()
    check.raises("T5Config: is_encoder_decoder = ", function() models.T5Config {is_encoder_decoder = false} end)
    check.raises("T5Config: feed_forward_proj: unknown activation 'sinus'", function()
      models.T5Model {feed_forward_proj = "gated-sinus", num_layers = 1, d_model = 8}
    end)
    local model = load "t5"
    check.raises("expected decoder_input_ids, decoder_inputs_embeds or labels", function() model(ids) end)
    check.raises("expected 2 texts, as of the encoder, got 1", function()
      model {input_ids = ids, decoder_input_ids = labels:narrow(0, 1, 1)}
    end)
    check.raises("prompt_lookup_num_tokens: not with an encoder", function()
      model:generate(ids, {prompt_lookup_num_tokens = 2})
    end)
  end)

  it("ties the scores of words to the embeddings unless tie_word_embeddings is false", function()
    local sizes = {vocab_size = 9, d_model = 8, d_kv = 4, d_ff = 16, num_layers = 1, num_heads = 2}
    local model = models.T5ForConditionalGeneration(sizes)
    assert.equal(model.shared.weight, model.lm_head.weight)
    assert.equal(model.shared.weight, model.decoder.embed_tokens.weight)
    sizes.tie_word_embeddings = false
    model = models.T5ForConditionalGeneration(sizes)
    assert.are_not.equal(model.shared.weight, model.lm_head.weight)
    assert.equal(model.shared.weight, model.encoder.embed_tokens.weight)
  end)

  it("ties them too where the folder has no weights of theirs, and scales nothing", function()
    local plain = load "t5_v1_1"
    temporary.with(function(folder)
      local state = plain:state_dict()
      state["lm_head.weight"] = nil
      accelhost.save(state, folder .. "/model.safetensors")
      plain.config:save_pretrained(folder)
      local function check_folder(path)
        local model, info = models.T5ForConditionalGeneration.from_pretrained(path,
          {dtype = "float64", output_loading_info = true})
        assert.equal(model.shared.weight, model.lm_head.weight)
        assert.same({}, info.missing_keys)
        check.near(5.2235198, model(batch).loss:item(), 1e-6) -- transformers 5.24
        return model
      end
      check_folder(folder):save_pretrained(folder .. "/again")
      check_folder(folder .. "/again")
    end)
  end)

  it("draws new weights as transformers does", function()
    accelhost.manual_seed(1)
    local model = models.T5ForConditionalGeneration {vocab_size = 200, d_model = 64, d_kv = 16, d_ff = 128,
      num_layers = 1, num_heads = 4}
    local attention = model.encoder.block[1].layer[1].SelfAttention
    check.near(1, model.shared.weight:std():item(), 0.03)
    check.near(1, (attention.q.weight:std() / (64 * 16) ^ -0.5):item(), 0.05)
    check.near(1, (attention.k.weight:std() / 64 ^ -0.5):item(), 0.05)
    check.near(1, (model.encoder.block[1].layer[2].DenseReluDense.wo.weight:std() / 128 ^ -0.5):item(), 0.05)
    assert.equal(64, model.encoder.final_layer_norm.weight:sum():item())
  end)
end)

describe("DataCollatorForSeq2Seq", function()
  it("pads texts and labels apart, and makes the decoder's inputs by a model", function()
    local tokenizer = accelhost.text.Tokenizer({model = {type = "WordPiece", vocab = {["[UNK]"] = 1, ["[PAD]"] = 0}}},
      {pad_token = "[PAD]"})
    local rows = {{input_ids = {5, 6, 7}, labels = {8, 1}}, {input_ids = {9}, labels = {4, 3, 1}}}
    local found = accelhost.text.DataCollatorForSeq2Seq(tokenizer)(rows)
    assert.same({{5, 6, 7}, {9, 0, 0}}, found.input_ids:tolist())
    assert.same({{1, 1, 1}, {1, 0, 0}}, found.attention_mask:tolist())
    assert.same({{8, 1, -100}, {4, 3, 1}}, found.labels:tolist())
    assert.is_nil(found.decoder_input_ids)
    local collate = accelhost.text.DataCollatorForSeq2Seq(tokenizer, load "t5", {pad_to_multiple_of = 4})
    found = collate(rows)
    assert.same({{8, 1, -100, -100}, {4, 3, 1, -100}}, found.labels:tolist())
    assert.same({{0, 8, 1, 0}, {0, 4, 3, 1}}, found.decoder_input_ids:tolist())
    assert.is_nil(accelhost.text.DataCollatorForSeq2Seq(tokenizer)({{input_ids = {1}}}).labels)
  end)
end)
