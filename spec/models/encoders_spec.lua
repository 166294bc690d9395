-- Encoders against transformers: each case of scripts/fixtures/encoders, each head, each check.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local files = require "spec.support.files"
local with_head = require "spec.support.heads"
local models, optim, json = accelhost.models, accelhost.optim, accelhost.json

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/encoders/"
local expected = require("spec.support.fixtures").load "models/encoders/expected"
local TOKENS = 12

local function load(case, numbers, changes)
  local fields = {}
  for name, value in pairs(numbers.fields) do fields[name] = value end
  for name, value in pairs(changes or {}) do fields[name] = value end
  local dtype = fields.dtype or "float64"
  fields.dtype = "float32"
  return with_head.load(fixtures .. case, numbers.class, numbers.missing, fields):to(dtype)
end

-- Return the inputs of a head, and the mask [batch, tokens].
local function batch_of(model, name, dtype)
  local config, ids, mask = model.config, {}, {}
  for i, row in ipairs(expected.rows) do
    ids[i], mask[i] = {}, {}
    for k = 1, TOKENS do
      ids[i][k], mask[i][k] = row[k] or config.pad_token_id, row[k] and 1 or 0
    end
  end
  local batch = {input_ids = tensors.long(ids), attention_mask = tensors.long(mask)}
  if (config.type_vocab_size or 0) > 1 then batch.token_type_ids = tensors.long(expected.types) end
  if name == "choices" then
    for key, tensor in pairs(batch) do batch[key] = tensor:unsqueeze(0) end
  end
  local labelled = {}
  for key, tensor in pairs(batch) do labelled[key] = tensor end
  for key, values in pairs(expected.labels[name]) do
    local is_long = name ~= "several" and name ~= "number"
    labelled[key] = is_long and tensors.long(values) or tensors.double(values):to(dtype or "float64")
  end
  return labelled, batch
end

-- Return the logits as the fixture has them: those of texts, or of tokens that are no padding.
local function logits_of(output, batch)
  local kept = batch.attention_mask:reshape(-1):ne(0):nonzero():reshape(-1)
  local logits = output.logits or accelhost.stack({output.start_logits, output.end_logits}, -1)
  if logits:size(0) ~= 2 or logits:size(1) ~= TOKENS then return logits end
  return logits:flatten(0, 1):index_select(0, kept)
end

local function flat(rows) return check.flat(tensors.double(rows)) end

local function copy_without(batch, name)
  local copy = {}
  for key, value in pairs(batch) do copy[key] = value end
  copy[name] = nil
  return copy
end

-- The checks: sentence -> function(case, the head's name, the fixture's numbers), in their order.
local sentences = {}
local checks = setmetatable({}, {__newindex = function(self, sentence, run)
  sentences[#sentences + 1] = sentence
  rawset(self, sentence, run)
end})

local function has_numbers(case, name, numbers, changes)
  local model = load(case, numbers, changes)
  local batch = batch_of(model, name)
  local output = model(batch)
  check.near(flat(numbers.logits), logits_of(output, batch), 1e-10)
  check.near(numbers.loss, output.loss:item(), 1e-10)
  output.loss:backward()
  local count = 0
  for path, gradient in pairs(numbers.gradients) do
    check.near(gradient, tensors.weighed(model:get_parameter(path).grad), 1e-9, path)
    count = count + 1
  end
  assert.is_true(count > 10)
end

checks["returns transformers' logits, loss and gradients in float64"] = function(case, name, numbers)
  has_numbers(case, name, numbers)
end

checks["returns the same where padding is computed"] = function(case, name, numbers)
  if models[numbers.class].config_class.defaults.pack_texts == nil then return end
  has_numbers(case, name, numbers, {pack_texts = false})
end

checks["returns them in float32 to its rounding"] = function(case, name, numbers)
  local model = load(case, numbers, {dtype = "float32"})
  local labelled, batch = batch_of(model, name, "float32")
  check.near(flat(numbers.logits), logits_of(model(batch), batch), 2e-5) -- distilbert: 0.9e-5, with UBSan 1.2e-5
  check.near(numbers.loss, model(labelled).loss:item(), 1e-5)
end

checks["has transformers' losses in 20 steps of AdamW"] = function(case, name, numbers)
  local model, losses = load(case, numbers), {}
  local batch = batch_of(model, name)
  local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1})
  for i = 1, #numbers.steps do
    local loss = model(batch).loss
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    losses[i] = loss:item()
  end
  check.near(numbers.steps, losses, 1e-9)
end

checks["has transformers' loss and gradient with dropout"] = function(case, name, numbers)
  for _, packs in ipairs {true, false} do
    local can_pack = models[numbers.class].config_class.defaults.pack_texts ~= nil
    local model = load(case, numbers, can_pack and {pack_texts = packs} or nil):train()
    local batch = batch_of(model, name)
    accelhost.manual_seed(11)
    local loss = model(batch).loss
    loss:backward()
    check.near(numbers.dropout, {loss:item(), tensors.weighed(model:get_input_embeddings().weight.grad)}, 1e-9)
  end
end

checks["has the same bits and gradients with layers computed again"] = function(case, name, numbers)
  local function step(enable)
    local model = load(case, numbers):train()
    if enable then model:gradient_checkpointing_enable() end
    accelhost.manual_seed(4)
    local loss = model(batch_of(model, name)).loss
    loss:backward()
    local found = {loss:item()}
    for path, parameter in model:named_parameters() do found[path] = parameter.grad and parameter.grad:tolist() end
    return found
  end
  assert.same(step(false), step(true))
end

checks["computes in bfloat16, and under autocast"] = function(case, name, numbers)
  local model = load(case, numbers, {dtype = "bfloat16"})
  local output = model(batch_of(model, name, "bfloat16"))
  assert.equal("bfloat16", (output.logits or output.start_logits).dtype)
  check.near(numbers.loss, output.loss:to("float32"):item(), 0.15)
  model = load(case, numbers, {dtype = "float32"})
  local batch = batch_of(model, name, "float32")
  local loss = accelhost.autocast("cpu", function() return model(batch).loss end)
  loss:backward()
  check.near(numbers.loss, loss:to("float32"):item(), 0.15)
  assert.equal("float32", model:parameters()[1].grad.dtype)
end

local automatic = {
  masked = "AutoModelForMaskedLM", single = "AutoModelForSequenceClassification",
  several = "AutoModelForSequenceClassification", number = "AutoModelForSequenceClassification",
  tokens = "AutoModelForTokenClassification", answers = "AutoModelForQuestionAnswering",
  choices = "AutoModelForMultipleChoice",
}

checks["is saved and read again, bit for bit, with the entries of its configuration"] = function(case, name, numbers)
  local kept = os.getenv "ACCELHOST_SAVED" -- for `scripts/fixtures/encoders read`
  local leave = temporary.enter()
  local folder = kept and ("%s/%s.%s"):format(kept, case, name) or "out"
  local model = load(case, numbers, {dtype = "float32"})
  model:save_pretrained(folder)
  local Auto = models[automatic[name] or numbers.class]
  local again, report = Auto.from_pretrained(folder, {output_loading_info = true})
  assert.equal(numbers.class, again._name)
  assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
  for path, tensor in pairs(model:state_dict()) do assert.is_true(again:state_dict()[path]:equal(tensor), path) end
  local before, after = json.decode(files.read(fixtures .. case .. "/config.json")),
    json.decode(files.read(folder .. "/config.json"))
  leave()
  assert.equal("float32", after.dtype)
  for _, field in ipairs {"architectures", "torch_dtype", "transformers_version"} do before[field] = nil end
  for field, value in pairs(before) do
    if value ~= json.null and numbers.fields[field] == nil then assert.same(value, after[field], field) end
  end
end

checks["is counted on the device meta, without memory for its weights"] = function(case, name, numbers)
  local before = accelhost.get_default_device()
  local config = models.AutoConfig.from_pretrained(fixtures .. case, numbers.fields)
  local batch = batch_of({config = config}, name, "float32")
  for key, tensor in pairs(batch) do batch[key] = tensor:to "meta" end
  accelhost.set_default_device "meta"
  local ok, output = pcall(function()
    local result = models[numbers.class](config)(batch)
    result.loss:backward()
    return result
  end)
  accelhost.set_default_device(before)
  assert(ok, output)
  assert.equal("meta", output.loss.device)
end

checks["trains to the same bits in a captured step"] = function(case, name, numbers)
  local function losses(compiled)
    local accelerator = accelhost.Accelerator {cpu = true}
    local model = load(case, numbers, {dtype = "float32"}):train()
    local batch = copy_without(batch_of(model, name, "float32"), "attention_mask")
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
    model, optimizer = accelerator:prepare(model, optimizer)
    accelhost.manual_seed(8)
    local function step(given)
      local loss = model(given).loss
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      return loss
    end
    local call, found = compiled and accelerator:compile(step) or step, {}
    for i = 1, 5 do found[i] = call(batch):item() end
    if compiled then assert.is_true(call.captured) end
    return found
  end
  assert.same(losses(false), losses(true))
end

local names = {}
for name in pairs(expected.cases) do names[#names + 1] = name end
table.sort(names)

for _, case in ipairs(names) do
  local heads = {}
  for name in pairs(expected.cases[case]) do heads[#heads + 1] = name end
  table.sort(heads)
  for _, name in ipairs(heads) do
    local numbers = expected.cases[case][name]
    describe(("%s (%s, %s)"):format(numbers.class, case, name), function()
      for _, sentence in ipairs(sentences) do
        it(sentence, function() checks[sentence](case, name, numbers) end)
      end
    end)
  end

  describe("The encoder of " .. case, function()
    local numbers = expected.cases[case].masked

    it("returns transformers' hidden states and weights of attention", function()
      local model = load(case, numbers)
      local _, batch = batch_of(model, "masked")
      local output = model(batch, {output_hidden_states = true, output_attentions = true})
      for i, state in ipairs(output.hidden_states) do check.near(numbers.states[i], tensors.weighed(state[0]), 1e-9) end
      for i, weights in ipairs(output.attentions) do
        check.near(numbers.attentions[i], tensors.weighed(weights[0]), 1e-9)
      end
      assert.equal(#numbers.states, #output.hidden_states)
      assert.equal(#numbers.attentions, #output.attentions)
    end)

    it("returns the same for vectors of the tokens, and for position_ids", function()
      local model = load(case, numbers)
      local _, batch = batch_of(model, "masked")
      batch = {input_ids = batch.input_ids:narrow(0, 0, 1)}
      local logits = model(batch).logits
      local vectors = model:get_input_embeddings()(batch.input_ids)
      assert.is_true(logits:equal(model{inputs_embeds = vectors}.logits))
      local first = (case == "mpnet" or case:find "roberta") and 2 or 0
      batch.position_ids = accelhost.arange(first, first + TOKENS):view(1, TOKENS)
      check.near(check.flat(logits), model(batch).logits, 1e-12)
    end)

    it("refuses more tokens than it has positions", function()
      local model = load(case, numbers)
      local most = (case == "mpnet" or case:find "roberta") and 38 or 40
      assert.equal(most, model(accelhost.full({1, most}, 5):long()).logits:size(1))
      check.raises(("%d tokens are more than the model's %d positions"):format(most + 1, most), function()
        model(accelhost.full({1, most + 1}, 5):long())
      end)
    end)
  end)
end

describe("The configuration of an encoder", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  local function write(case, changes)
    accelhost.utils.makedirs "made"
    local values = json.decode(files.read(fixtures .. case .. "/config.json"))
    for name, value in pairs(changes) do values[name] = value end
    files.write("made/config.json", json.encode(values))
    return "made"
  end

  it("keeps entries that change no number, and writes them again", function()
    local config = models.AutoConfig.from_pretrained(write("distilbert", {tie_weights_ = true, seq_note = {1, 2}}))
    assert.same({1, 2}, config:to_dict().seq_note)
    assert.is_true(config:with {num_labels = 4}:to_dict().tie_weights_)
  end)

  local refused = {
    {"roberta", "position_embedding_type", "relative_key", "RobertaConfig: position_embedding_type = 'relative_key'"},
    {"bert", "is_decoder", true, "BertConfig: is_decoder = "},
    {"electra", "add_cross_attention", true, "ElectraConfig: add_cross_attention = "},
    {"distilbert", "quantization_config", {bits = 4}, "DistilBertConfig: quantization_config = "},
    {"xlm_roberta", "embedding_size", 8, "XLMRobertaConfig: embedding_size = number 8"},
    {"bert", "relative_attention_num_buckets", 32, "BertConfig: relative_attention_num_buckets = number 32"},
    {"mpnet", "hidden_act", "sinus", "MPNetConfig: hidden_act: unknown activation 'sinus'"},
    {"distilbert", "activation", "sinus", "DistilBertConfig: activation: unknown activation 'sinus'"},
    {"roberta", "pad_token_id", json.null, "RobertaConfig: pad_token_id: expected a token's number, got nil"},
    {"distilbert", "dim", 26, "DistilBertConfig: dim 26 is no multiple of n_heads 4"},
  }
  for _, row in ipairs(refused) do
    it(("of %s refuses %s where it changes the numbers and is not implemented"):format(row[1], row[2]), function()
      check.raises(row[4], function()
        models.AutoModel.from_config(models.AutoConfig.from_pretrained(write(row[1], {[row[2]] = row[3]})))
      end)
    end)
  end

  it("of ELECTRA refuses a summary that it does not know", function()
    check.raises("ElectraConfig: summary_type: expected first, last or mean, got 'attn'", function()
      models.ElectraForMultipleChoice {hidden_size = 12, num_hidden_layers = 1, summary_type = "attn"}
    end)
  end)

  it("of DistilBERT has other families' names", function()
    local config = models.DistilBertConfig {hidden_size = 48, num_attention_heads = 4, num_hidden_layers = 2}
    assert.same({48, 4, 2}, {config.dim, config.n_heads, config.n_layers})
    assert.same({48, 4, 2}, {config.hidden_size, config.num_attention_heads, config.num_hidden_layers})
    assert.is_nil(config:to_dict().hidden_size)
    assert.equal(24, config:with {hidden_size = 24}.dim)
  end)

  it("lets a folder's missing, unexpected and mismatched tensors be named", function()
    for _, case in ipairs {"distilbert", "mpnet"} do
      local model = load(case, expected.cases[case].masked, {dtype = "float32"})
      model:save_pretrained "out"
      local state = accelhost.load "out/model.safetensors"
      local prefix = model.base_model_prefix
      local norm, words = prefix .. ".embeddings.LayerNorm.weight", prefix .. ".embeddings.position_embeddings.weight"
      state[norm], state[prefix .. ".extra"], state[words] = nil, accelhost.ones(2), accelhost.ones(3, 24)
      for name, tensor in pairs(state) do state[name] = tensor:clone() end
      accelhost.save(state, "out/model.safetensors")
      check.raises(words, function() models.AutoModelForMaskedLM.from_pretrained "out" end)
      local _, report = models.AutoModelForMaskedLM.from_pretrained("out", {
        ignore_mismatched_sizes = true, output_loading_info = true,
      })
      table.sort(report.missing_keys)
      assert.same({norm, words}, report.missing_keys)
      assert.same({prefix .. ".extra"}, report.unexpected_keys)
      assert.same({words, {3, 24}, {40, 24}}, report.mismatched_keys[1])
    end
  end)

  it("with another number of labels than 2 is refused by a model of answers", function()
    check.raises("RobertaForQuestionAnswering: num_labels: expected 2, the begin and the end of an answer, got 3",
      function()
        models.RobertaForQuestionAnswering {hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
      end)
  end)

  it("ties the scores of words to the embeddings unless tie_word_embeddings is false", function()
    local sizes = {vocab_size = 9, num_hidden_layers = 1, hidden_size = 12, embedding_size = 4}
    local model = models.ElectraForMaskedLM(sizes)
    assert.equal(model.electra.embeddings.word_embeddings.weight, model.generator_lm_head.weight)
    sizes.tie_word_embeddings = false
    model = models.ElectraForMaskedLM(sizes)
    assert.are_not.equal(model.electra.embeddings.word_embeddings.weight, model.generator_lm_head.weight)
    local roberta = models.RobertaForMaskedLM {vocab_size = 9, num_hidden_layers = 1, hidden_size = 12}
    assert.equal(roberta.lm_head.bias, roberta.lm_head.decoder.bias)
  end)
end)

describe("New weights", function()
  it("of DistilBERT's positions are sinusoids where the configuration asks for them", function()
    local model = models.DistilBertForMaskedLM {dim = 12, n_heads = 2, n_layers = 1, hidden_dim = 8, vocab_size = 9,
      sinusoidal_pos_embds = true}
    local weight = model.distilbert.embeddings.position_embeddings.weight
    check.near(flat(expected.sinusoids), weight:narrow(0, 0, 40), 1e-7)
    assert.is_true(weight.requires_grad)
  end)

  it("are normal, and zero in the rows of padding and in biases", function()
    accelhost.manual_seed(1)
    local model = models.RobertaForMaskedLM {vocab_size = 500, num_hidden_layers = 1, hidden_size = 48}
    local words = model.roberta.embeddings.word_embeddings.weight
    assert.equal(0, words[1]:abs():sum():item())
    assert.equal(0, model.roberta.embeddings.position_embeddings.weight[1]:abs():sum():item())
    assert.equal(0, model.lm_head.bias:abs():sum():item())
    check.near(0.02, words:std():item(), 2e-3)
  end)
end)

describe("Relative positions", function()
  it("have MPNet's buckets", function()
    local relative = require "accelhost.models.common.relative"
    assert.same(expected.buckets, relative.buckets(accelhost.arange(-300, 301), 32, 128):tolist())
  end)
end)

describe("A batch without padding", function()
  it("is computed as with a mask that hides nothing", function()
    for _, case in ipairs(names) do
      local model = load(case, expected.cases[case].masked)
      local ids = tensors.long {expected.rows[1]}
      local logits = model(ids).logits
      assert.is_true(logits:equal(model{input_ids = ids, attention_mask = accelhost.ones_like(ids)}.logits))
      assert.is_true(logits:equal(model{input_ids = ids, token_type_ids = accelhost.zeros_like(ids)}.logits))
    end
  end)
end)

-- config.json files of published models, without the entries that name files and versions, and the numbers of their
-- parameters.
local published = {
  {"distilbert-base-uncased", "AutoModelForMaskedLM", 66985530, {model_type = "distilbert", activation = "gelu",
    attention_dropout = 0.1, dim = 768, dropout = 0.1, hidden_dim = 3072, max_position_embeddings = 512, n_heads = 12,
    n_layers = 6, qa_dropout = 0.1, seq_classif_dropout = 0.2, sinusoidal_pos_embds = false, tie_weights_ = true,
    vocab_size = 30522}},
  {"roberta-base", "AutoModelForMaskedLM", 124697433, {model_type = "roberta", bos_token_id = 0, eos_token_id = 2,
    hidden_size = 768, intermediate_size = 3072, layer_norm_eps = 1e-5, max_position_embeddings = 514,
    num_attention_heads = 12, num_hidden_layers = 12, pad_token_id = 1, type_vocab_size = 1, vocab_size = 50265}},
  {"xlm-roberta-base", "AutoModelForMaskedLM", 278295186, {model_type = "xlm-roberta", bos_token_id = 0,
    eos_token_id = 2, hidden_size = 768, intermediate_size = 3072, layer_norm_eps = 1e-5, output_past = true,
    max_position_embeddings = 514, num_attention_heads = 12, num_hidden_layers = 12, pad_token_id = 1,
    position_embedding_type = "absolute", type_vocab_size = 1, use_cache = true, vocab_size = 250002}},
  {"all-mpnet-base-v2", "AutoModelForMaskedLM", 109518527, {model_type = "mpnet", bos_token_id = 0, eos_token_id = 2,
    hidden_size = 768, intermediate_size = 3072, layer_norm_eps = 1e-5, max_position_embeddings = 514,
    num_attention_heads = 12, num_hidden_layers = 12, pad_token_id = 1, relative_attention_num_buckets = 32,
    vocab_size = 30527}},
  {"electra-small-generator", "AutoModelForMaskedLM", 13546682, {model_type = "electra", embedding_size = 128,
    hidden_size = 256, intermediate_size = 1024, num_attention_heads = 4, num_hidden_layers = 12,
    summary_activation = "gelu", summary_last_dropout = 0.1, summary_type = "first", summary_use_proj = true,
    type_vocab_size = 2, vocab_size = 30522}},
  {"all-MiniLM-L6-v2", "AutoModelForMaskedLM", 22744506, {model_type = "bert", gradient_checkpointing = false,
    hidden_size = 384, intermediate_size = 1536, num_attention_heads = 12, num_hidden_layers = 6, use_cache = true,
    position_embedding_type = "absolute", type_vocab_size = 2, vocab_size = 30522}},
  {"t5-small", "AutoModelForSeq2SeqLM", 60506624, {model_type = "t5", d_ff = 2048, d_kv = 64, d_model = 512,
    decoder_start_token_id = 0, is_encoder_decoder = true, n_positions = 512, num_heads = 8, num_layers = 6,
    output_past = true, relative_attention_num_buckets = 32, vocab_size = 32128}},
  {"flan-t5-small", "AutoModelForSeq2SeqLM", 76961152, {model_type = "t5", d_ff = 1024, d_kv = 64, d_model = 512,
    decoder_start_token_id = 0, feed_forward_proj = "gated-gelu", num_decoder_layers = 8, num_heads = 6,
    num_layers = 8, tie_word_embeddings = false, vocab_size = 32128}},
}

describe("The configuration of a published encoder", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  for _, row in ipairs(published) do
    it("makes a model with its number of parameters: " .. row[1], function()
      files.write("config.json", json.encode(row[4]))
      local config, before, count = models.AutoConfig.from_pretrained ".", accelhost.get_default_device(), 0
      accelhost.set_default_device "meta"
      local ok, message = pcall(function()
        local model, ids = models[row[2]].from_config(config), accelhost.zeros({1, 16}, {dtype = "int64"})
        for _, parameter in ipairs(model:parameters()) do count = count + parameter:numel() end
        model {input_ids = ids, labels = ids}
      end)
      accelhost.set_default_device(before)
      assert(ok, message)
      assert.equal(row[3], count)
    end)
  end
end)
