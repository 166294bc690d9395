-- Decoders with rotary embeddings against transformers: each case of scripts/fixtures/decoders, each check.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local files = require "spec.support.files"
local with_head = require "spec.support.heads"
local models, optim, json = accelhost.models, accelhost.optim, accelhost.json
local rotary = require "accelhost.models.decoders.rotary"

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/decoders/"
local expected = require("spec.support.fixtures").load "models/decoders/expected"
local prompt, mask = tensors.long(expected.ids), tensors.long(expected.mask)
local positions = (mask:cumsum(-1) - 1):clamp_min(0)
local NEW = 20

local names, writers, sorters = {}, {}, {}
for name in pairs(expected.cases) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  local list = expected.cases[name].class:find "ForCausalLM" and writers or sorters
  list[#list + 1] = name
end

local function load(name, dtype)
  return models[expected.cases[name].class].from_pretrained(fixtures .. name, {dtype = dtype or "float64"})
end

-- Each model once; checks that change weights load their own.
local loaded = setmetatable({}, {__index = function(self, name)
  self[name] = load(name)
  return self[name]
end})

local function flat(rows) return check.flat(tensors.double(rows)) end

-- A text longer than the windows, which no fixture limits.
local function long_ids(tokens)
  accelhost.manual_seed(5)
  return accelhost.randint(3, 37, {2, tokens})
end

-- The checks of a model that continues texts: sentence -> function(name, the fixture's numbers), in their order.
local sentences = {}
local checks = setmetatable({}, {__newindex = function(self, sentence, run)
  sentences[#sentences + 1] = sentence
  rawset(self, sentence, run)
end})

checks["returns transformers' logits, loss and gradients in float64"] = function(name, numbers)
  local model = load(name)
  local output = model {input_ids = prompt, labels = prompt}
  check.near(flat(numbers.logits), output.logits:select(1, -1), 1e-10)
  check.near(numbers.loss, output.loss:item(), 1e-10)
  output.loss:backward()
  for parameter, gradient in pairs(numbers.gradients) do
    check.near(gradient, tensors.weighed(model:get_parameter(parameter).grad), 1e-9, parameter)
  end
end

checks["returns them in float32 to its rounding"] = function(name, numbers)
  local model = load(name, "float32")
  assert.equal("float32", model:parameters()[1].dtype)
  check.near(flat(numbers.logits), model(prompt).logits:select(1, -1), 1e-5)
end

checks["does not see padding on the left"] = function(name, numbers)
  local output = loaded[name] {input_ids = prompt, attention_mask = mask, position_ids = positions}
  check.near(flat(numbers.masked_logits), output.logits:select(1, -1), 1e-10)
end

checks["writes transformers' tokens after prompts of different lengths"] = function(name, numbers)
  local written = loaded[name]:generate(prompt, {
    attention_mask = mask, max_new_tokens = NEW, min_new_tokens = NEW, pad_token_id = 0,
  })
  assert.same(numbers.padded, written:narrow(1, prompt:size(1), NEW):tolist())
end

checks["has transformers' losses in 20 steps of AdamW"] = function(name, numbers)
  local model, losses = load(name), {}
  local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1})
  for i = 1, #numbers.steps do
    local loss = model {input_ids = prompt, labels = prompt}.loss
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    losses[i] = loss:item()
  end
  check.near(numbers.steps, losses, 1e-9)
end

checks["returns the same with keys and values of earlier tokens as for all at once"] = function(name)
  local model, ids = loaded[name], long_ids(24)
  local scaling = model.config.rope_parameters.rope_type
  if scaling == "dynamic" or scaling == "longrope" then ids = ids:narrow(1, 0, 8) end -- all angles change with length
  local whole, half = model {input_ids = ids, use_cache = false}, ids:size(1) / 2
  assert.is_nil(whole.past_key_values)
  local past = model(ids:narrow(1, 0, half)).past_key_values
  local middle = model {input_ids = ids:narrow(1, half, half - 1), past_key_values = past}
  check.near(check.flat(whole.logits:narrow(1, half, half - 1)), middle.logits, 1e-10)
  local last = model {input_ids = ids:narrow(1, 2 * half - 1, 1), past_key_values = middle.past_key_values}
  check.near(check.flat(whole.logits:select(1, 2 * half - 1)), last.logits, 1e-10)
  local kept = accelhost.no_grad(function()
    return model {input_ids = ids:narrow(1, 2 * half - 1, 1), past_key_values = middle.past_key_values}
  end)
  check.near(check.flat(last.logits), kept.logits, 1e-12)
end

checks["returns the same logits with the weights of attention, whose rows sum to 1"] = function(name)
  local model, ids = loaded[name], long_ids(24)
  local output = model {input_ids = ids, output_attentions = true, output_hidden_states = true}
  check.near(check.flat(model(ids).logits), output.logits, 1e-10)
  for i, weights in ipairs(output.attentions) do
    check.near(check.flat(accelhost.ones(2 * model.config.num_attention_heads * 24)), weights:sum(-1), 1e-10)
    local window = model.config.layer_types == nil and model.config.sliding_window
      or model.config.layer_types and model.config.layer_types[i] == "sliding_attention" and model.config.sliding_window
    local seen = weights[0][0][23]:ne(0):sum():item()
    assert.equal(window or 24, seen)
  end
  assert.equal(#output.attentions + 1, #output.hidden_states)
end

checks["has the same bits and gradients with layers computed again"] = function(name)
  local function step(enable)
    local model = load(name):train()
    if enable then model:gradient_checkpointing_enable() end
    local loss = model {input_ids = prompt, labels = prompt}.loss
    loss:backward()
    local found = {loss:item()}
    for path, parameter in model:named_parameters() do found[path] = parameter.grad:tolist() end
    return found
  end
  assert.same(step(false), step(true))
end

local older_fields = {
  rope_parameters = true, rope_theta = true, rope_scaling = true, partial_rotary_factor = true, rotary_pct = true,
  rotary_emb_base = true, rope_local_base_freq = true, sliding_window_pattern = true, transformers_version = true,
}

local function is_saved(name)
  local kept = os.getenv "ACCELHOST_SAVED" -- for `scripts/fixtures/decoders read`
  local leave = temporary.enter()
  local folder = kept and kept .. "/" .. name or "out"
  local model = load(name, "float32")
  model:save_pretrained(folder)
  local auto = name:find "_sequence$" and models.AutoModelForSequenceClassification or models.AutoModelForCausalLM
  local again, report = auto.from_pretrained(folder, {output_loading_info = true})
  assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
  for path, tensor in pairs(model:state_dict()) do assert.is_true(again:state_dict()[path]:equal(tensor), path) end
  local before, after = json.decode(files.read(fixtures .. name .. "/config.json")),
    json.decode(files.read(folder .. "/config.json"))
  leave()
  for field, value in pairs(before) do
    if field == "dtype" or field == "torch_dtype" then
      assert.equal("float32", after.dtype)
    elseif not older_fields[field] and value ~= json.null then
      assert.same(value, after[field], field)
    end
  end
  assert.same(before.rope_parameters or after.rope_parameters, after.rope_parameters)
  assert.is_table(after.rope_parameters)
end

checks["is saved and read again, bit for bit, with the entries of its configuration"] = is_saved

checks["computes in bfloat16, and under autocast"] = function(name, numbers)
  local output = load(name, "bfloat16") {input_ids = prompt, labels = prompt}
  assert.equal("bfloat16", output.logits.dtype)
  check.near(numbers.loss, output.loss:item(), 0.05)
  local model = load(name, "float32"):train()
  local loss = accelhost.autocast("cpu", function() return model {input_ids = prompt, labels = prompt}.loss end)
  loss:backward()
  check.near(numbers.loss, loss:item(), 0.05)
  assert.equal("float32", model:parameters()[1].grad.dtype)
end

checks["returns the loss alone, with the same gradients"] = function(name)
  local model = load(name)
  model {input_ids = prompt, labels = prompt}.loss:backward()
  local wanted = model:parameters()[1].grad
  model:zero_grad()
  local output = model {input_ids = prompt, labels = prompt, skip_logits = true}
  assert.is_nil(output.logits)
  output.loss:backward()
  check.near(check.flat(wanted), model:parameters()[1].grad, 1e-12)
  assert.equal(1, model {input_ids = prompt, logits_to_keep = 1}.logits:size(1))
end

checks["trains to the same bits in a captured step"] = function(name)
  local function losses(compiled)
    local accelerator = accelhost.Accelerator {cpu = true}
    local model = load(name, "float32"):train()
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
    model, optimizer = accelerator:prepare(model, optimizer)
    local function step(batch)
      local loss = model {input_ids = batch, labels = batch}.loss
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      return loss
    end
    local call, found = compiled and accelerator:compile(step) or step, {}
    for i = 1, 5 do found[i] = call(long_ids(12)):item() end
    if compiled then assert.is_true(call.captured) end
    return found
  end
  assert.same(losses(false), losses(true))
end

checks["has layers under transformers' names"] = function(name, numbers)
  local family = numbers.class:gsub("ForCausalLM$", "")
  local layer = family == "GPTNeoX" and "GPTNeoXLayer" or family .. "DecoderLayer"
  local base = loaded[name][loaded[name].base_model_prefix]
  assert.equal(layer, base.layers[1]._name)
end

checks["ignores the types of tokens, which tokenizers return"] = function(name)
  local model = loaded[name]
  local output = model {input_ids = prompt, token_type_ids = accelhost.ones_like(prompt)}
  assert.is_true(model(prompt).logits:equal(output.logits))
end

checks["is counted on the device meta, without memory for its weights"] = function(name)
  local before, config = accelhost.get_default_device(), models.AutoConfig.from_pretrained(fixtures .. name)
  accelhost.set_default_device "meta"
  local ok, output = pcall(function()
    local model = models.AutoModelForCausalLM.from_config(config)
    local ids = accelhost.zeros({2, 24}, {dtype = "int64"})
    local result = model {input_ids = ids, labels = ids}
    result.loss:backward()
    return result
  end)
  accelhost.set_default_device(before)
  assert(ok, output)
  assert.same({2, 24, 37}, output.logits:shape())
end

for _, name in ipairs(writers) do
  describe(("%s (%s)"):format(expected.cases[name].class, name), function()
    for _, sentence in ipairs(sentences) do
      it(sentence, function() checks[sentence](name, expected.cases[name]) end)
    end
  end)
end

for _, name in ipairs(sorters) do
  describe(expected.cases[name].class, function()
    it("returns transformers' logits, loss and gradients, by the last token that is no padding", function()
      local numbers, model = expected.cases[name], load(name)
      local output = model {input_ids = tensors.long(numbers.ids), labels = tensors.long(numbers.labels)}
      check.near(flat(numbers.logits), output.logits, 1e-10)
      check.near(numbers.loss, output.loss:item(), 1e-10)
      output.loss:backward()
      check.near(numbers.gradients["score.weight"], tensors.weighed(model.score.weight.grad), 1e-9)
    end)

    it("is saved and read again, bit for bit", function() is_saved(name) end)

    it("requires the number of padding for several texts", function()
      local model = load(name)
      model.config = model.config:with {pad_token_id = json.null}
      check.raises("a batch of several texts requires pad_token_id", function() model(prompt) end)
      assert.same({1, 3}, model(prompt:narrow(0, 0, 1)).logits:shape())
    end)
  end)
end

for name, numbers in pairs(expected.heads) do
  describe(("%s (%s)"):format(numbers.class, name), function()
    local ids, labels = tensors.long(numbers.ids), tensors.long(numbers.labels)
    local function with_head_of(dtype)
      local fields = {num_labels = 3, dtype = "float32"}
      return with_head.load(fixtures .. name, numbers.class, numbers.missing, fields):to(dtype)
    end

    it("returns transformers' logits, loss and gradients", function()
      local model = with_head_of "float64"
      local output = model {input_ids = ids, labels = labels}
      check.near(flat(numbers.logits), output.logits, 1e-10)
      check.near(numbers.loss, output.loss:item(), 1e-10)
      output.loss:backward()
      local count = 0
      for path, gradient in pairs(numbers.gradients) do
        check.near(gradient, tensors.weighed(model:get_parameter(path).grad), 1e-9, path)
        count = count + 1
      end
      assert.is_true(count > 5)
      check.near(flat(numbers.logits), with_head_of "float32" (ids).logits, 1e-5)
    end)

    it("has transformers' losses in 20 steps of AdamW", function()
      local model = with_head_of "float64"
      local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1})
      for step, wanted in ipairs(numbers.steps) do
        local loss = model {input_ids = ids, labels = labels}.loss
        loss:backward()
        optimizer:step()
        optimizer:zero_grad()
        check.near(wanted, loss:item(), 1e-9, "step " .. step)
      end
    end)
  end)
end

describe("Rotary embeddings", function()
  for _, row in ipairs(expected.frequencies) do
    local p = row.parameters
    local title = "have transformers' frequencies: %s, factor %s, %d tokens"
    it(title:format(p.rope_type, tostring(p.factor), row.length), function()
      local rotation = rotary.new("Spec", rotary.parameters("Spec", p, {}, 2048), 64, 2048)
      local found, factor = rotation.frequencies(row.length)
      check.near(row.inverse, found, 1e-13)
      for i, wanted in ipairs(row.inverse) do check.near(1, found[i] / wanted, 1e-12) end
      check.near(row.factor, factor, 1e-13)
    end)
  end

  local refusals = {
    {"a scaling that is not known", {rope_type = "su2"}, "rope_type 'su2' is not implemented (known: default, dynamic"},
    {"a parameter that is not known", {mrope_section = {1}}, "rope_parameters: 'mrope_section' is not implemented"},
    {"a scaling without a parameter", {rope_type = "linear"}, "rope_parameters: linear requires 'factor'"},
    {"factors that do not fit", {rope_type = "longrope", short_factor = {1}, long_factor = {1}},
      "short_factor: expected 4 numbers, got 1"},
    {"a wrong value", {factor = "two"}, "rope_parameters: factor: expected a number above 0, got 'two'"},
    {"an odd number of rotated features", {partial_rotary_factor = 0.4}, "3 of a head's 8 features are rotated"},
  }
  for _, row in ipairs(refusals) do
    it("refuse " .. row[1], function()
      check.raises(row[3], function()
        models.LlamaModel {vocab_size = 9, hidden_size = 16, intermediate_size = 8, num_hidden_layers = 1,
          num_attention_heads = 2, rope_parameters = row[2]}
      end)
    end)
  end
end)

describe("A decoder's configuration", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  local function write(changes)
    accelhost.utils.makedirs "made"
    local values = json.decode(files.read(fixtures .. "mistral/config.json"))
    for name, value in pairs(changes) do values[name] = value end
    files.write("made/config.json", json.encode(values))
    return "made"
  end

  it("keeps entries that change no number, and writes them again", function()
    local config = models.AutoConfig.from_pretrained(write {cache_note = {1, 2}, _name_or_path = "x"})
    assert.same({1, 2}, config:to_dict().cache_note)
    assert.equal("x", config:with {num_labels = 4}:to_dict()._name_or_path)
  end)

  for name, value in pairs {quantization_config = {bits = 4}, rope_interleaved = true, attention_bias = true,
    final_logit_softcapping = 30, num_local_experts = 8, residual_multiplier = 0.2} do
    it("refuses an entry that changes the numbers: " .. name, function()
      check.raises(("MistralConfig: %s = "):format(name), function()
        models.AutoConfig.from_pretrained(write {[name] = value})
      end)
    end)
  end

  it("derives fields from others, and again after a change", function()
    local config = models.LlamaConfig {hidden_size = 64, num_attention_heads = 4, num_hidden_layers = 2}
    assert.equal(16, config.head_dim)
    assert.equal(4, config.num_key_value_heads)
    config = config:with {num_attention_heads = 8, rope_theta = 7}
    assert.equal(8, config.head_dim)
    assert.equal(8, config.num_key_value_heads)
    assert.equal(7, config.rope_parameters.rope_theta)
    assert.equal(3, #models.Qwen2Config {num_hidden_layers = 2}:with {num_hidden_layers = 3}.layer_types)
  end)

  it("keeps the base of rotary embeddings where a scaling is changed", function()
    local scaling = {rope_type = "linear", factor = 2}
    local p = models.LlamaConfig {rope_theta = 9}:with {rope_scaling = scaling}.rope_parameters
    assert.same({rope_type = "linear", factor = 2, rope_theta = 9}, p)
    p = models.GPTNeoXConfig {rotary_emb_base = 9}:with {rotary_pct = 0.5}.rope_parameters
    assert.same({rope_type = "default", rope_theta = 9, partial_rotary_factor = 0.5}, p)
    p = models.Gemma3TextConfig {rope_theta = 9}:with {rope_scaling = scaling, rope_local_base_freq = 8}.rope_parameters
    assert.same({rope_type = "linear", factor = 2, rope_theta = 9}, p.full_attention)
    assert.same({rope_type = "default", rope_theta = 8}, p.sliding_attention)
    local model = models.MistralForCausalLM.from_pretrained(fixtures .. "mistral", {rope_theta = 7, sliding_window = 3})
    assert.equal(7, model.config.rope_parameters.rope_theta)
    assert.equal(2, model.config.rope_parameters.factor)
  end)

  it("refuses heads and layers that do not fit", function()
    check.raises("LlamaConfig: num_attention_heads 4 is no multiple of num_key_value_heads 3", function()
      models.LlamaConfig {num_attention_heads = 4, num_key_value_heads = 3, hidden_size = 8}
    end)
    check.raises("LlamaConfig: hidden_size 9 is no multiple of num_attention_heads 4", function()
      models.LlamaConfig {num_attention_heads = 4, hidden_size = 9}
    end)
    check.raises("Qwen2Config: layer_types: expected 2 names, got 1", function()
      models.Qwen2Config {num_hidden_layers = 2, layer_types = {"full_attention"}}
    end)
    check.raises("layer_types: expected full_attention or sliding_attention, got", function()
      models.Qwen2Config {num_hidden_layers = 1, layer_types = {"linear_attention"}}
    end)
  end)

  it("lets a folder's missing, unexpected and mismatched tensors be named", function()
    load("mistral", "float32"):save_pretrained "out"
    local path = "out/model.safetensors"
    local state = accelhost.load(path)
    state["model.norm.weight"], state["model.extra"] = nil, accelhost.ones(2)
    state["lm_head.weight"] = accelhost.ones(3, 16)
    for name, tensor in pairs(state) do state[name] = tensor:clone() end
    accelhost.save(state, path)
    check.raises("lm_head.weight", function() models.MistralForCausalLM.from_pretrained "out" end)
    local _, report = models.MistralForCausalLM.from_pretrained("out", {
      ignore_mismatched_sizes = true, output_loading_info = true,
    })
    assert.equal("model.norm.weight", report.missing_keys[1])
    assert.same({"model.extra"}, report.unexpected_keys)
    assert.same({"lm_head.weight", {3, 16}, {37, 16}}, report.mismatched_keys[1])
  end)

  it("has GPT-NeoX's head under the name of its checkpoints", function()
    load("gpt_neox", "float32"):save_pretrained "out"
    local state = accelhost.load "out/model.safetensors"
    assert.is_truthy(state["embed_out.weight"])
    assert.is_nil(state["lm_head.weight"])
  end)

  it("accepts torch_dtype in place of dtype", function()
    local model = models.LlamaForCausalLM.from_pretrained(fixtures .. "llama", {torch_dtype = "bfloat16"})
    assert.equal("bfloat16", model:parameters()[1].dtype)
    assert.equal("bfloat16", model.config.dtype)
  end)
end)

-- The factors of 96 features.
local function factors_of(first)
  local list = {}
  for i = 1, 48 do list[i] = first + i end
  return list
end

-- config.json files of published models, without the entries that name files and versions, and the numbers of their
-- parameters.
local published = {
  {"SmolLM2-135M", 134515008, {model_type = "llama", hidden_size = 576, intermediate_size = 1536, vocab_size = 49152,
    num_hidden_layers = 30, num_attention_heads = 9, num_key_value_heads = 3, max_position_embeddings = 8192,
    rms_norm_eps = 1e-5, rope_theta = 100000, rope_scaling = json.null, rope_interleaved = false, pretraining_tp = 1,
    is_llama_config = true, tie_word_embeddings = true, attention_bias = false, mlp_bias = false,
    initializer_range = 0.041666666666666664, torch_dtype = "bfloat16"}},
  {"Llama-3.2-1B", 1235814400, {model_type = "llama", hidden_size = 2048, intermediate_size = 8192,
    vocab_size = 128256, num_hidden_layers = 16, num_attention_heads = 32, num_key_value_heads = 8, head_dim = 64,
    max_position_embeddings = 131072, rope_theta = 500000, tie_word_embeddings = true, eos_token_id = {128001, 128008},
    rope_scaling = {factor = 32, high_freq_factor = 4, low_freq_factor = 1, original_max_position_embeddings = 8192,
      rope_type = "llama3"}}},
  {"Mistral-7B-v0.1", 7241732096, {model_type = "mistral", hidden_size = 4096, intermediate_size = 14336,
    vocab_size = 32000, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
    max_position_embeddings = 32768, rms_norm_eps = 1e-5, rope_theta = 10000, sliding_window = 4096}},
  {"Qwen2.5-0.5B", 494032768, {model_type = "qwen2", hidden_size = 896, intermediate_size = 4864, vocab_size = 151936,
    num_hidden_layers = 24, num_attention_heads = 14, num_key_value_heads = 2, max_position_embeddings = 32768,
    max_window_layers = 24, rope_theta = 1000000, sliding_window = 32768, use_sliding_window = false, use_mrope = false,
    tie_word_embeddings = true}},
  {"Qwen3-0.6B", 596049920, {model_type = "qwen3", hidden_size = 1024, intermediate_size = 3072, vocab_size = 151936,
    num_hidden_layers = 28, num_attention_heads = 16, num_key_value_heads = 8, head_dim = 128, max_window_layers = 28,
    max_position_embeddings = 40960, rope_scaling = json.null, rope_theta = 1000000, sliding_window = json.null,
    use_sliding_window = false, tie_word_embeddings = true, attention_bias = false}},
  {"gemma-2-2b", 2614341888, {model_type = "gemma2", hidden_size = 2304, intermediate_size = 9216, vocab_size = 256000,
    num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, sliding_window = 4096,
    hidden_act = "gelu_pytorch_tanh", hidden_activation = "gelu_pytorch_tanh", query_pre_attn_scalar = 256,
    attn_logit_softcapping = 50, final_logit_softcapping = 30, cache_implementation = "hybrid", rope_theta = 10000}},
  {"gemma-3-1b-pt", 999885952, {model_type = "gemma3_text", hidden_size = 1152, intermediate_size = 6912,
    vocab_size = 262144, num_hidden_layers = 26, num_attention_heads = 4, num_key_value_heads = 1, head_dim = 256,
    sliding_window = 512, sliding_window_pattern = 6, max_position_embeddings = 32768, rope_theta = 1000000,
    rope_local_base_freq = 10000, rope_scaling = json.null, final_logit_softcapping = json.null,
    attn_logit_softcapping = json.null, query_pre_attn_scalar = 256, cache_implementation = "hybrid"}},
  {"Phi-3-mini-4k-instruct", 3821079552, {model_type = "phi3", hidden_size = 3072, intermediate_size = 8192,
    vocab_size = 32064, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32, resid_pdrop = 0,
    embd_pdrop = 0, max_position_embeddings = 4096, original_max_position_embeddings = 4096, rope_scaling = json.null,
    rope_theta = 10000, sliding_window = 2047, attention_bias = false, rms_norm_eps = 1e-5}},
  {"Phi-3-mini-128k-instruct", 3821079552, {model_type = "phi3", hidden_size = 3072, intermediate_size = 8192,
    vocab_size = 32064, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32,
    max_position_embeddings = 131072, original_max_position_embeddings = 4096, rope_theta = 10000,
    rope_scaling = {type = "su", short_factor = factors_of(1.05), long_factor = factors_of(1.3)},
    sliding_window = 262144, auto_map = {AutoConfig = "configuration_phi3.Phi3Config"}}},
  {"pythia-70m", 70426624, {model_type = "gpt_neox", hidden_size = 512, intermediate_size = 2048, vocab_size = 50304,
    num_hidden_layers = 6, num_attention_heads = 8, hidden_act = "gelu", max_position_embeddings = 2048,
    layer_norm_eps = 1e-5, rotary_emb_base = 10000, rotary_pct = 0.25, use_parallel_residual = true,
    tie_word_embeddings = false, eos_token_id = 0}},
}

describe("The configuration of a published model", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  for _, row in ipairs(published) do
    it("makes a model with its number of parameters: " .. row[1], function()
      files.write("config.json", json.encode(row[3]))
      local config, before, count = models.AutoConfig.from_pretrained ".", accelhost.get_default_device(), 0
      accelhost.set_default_device "meta"
      local ok, message = pcall(function()
        local model = models.AutoModelForCausalLM.from_config(config)
        for _, parameter in ipairs(model:parameters()) do count = count + parameter:numel() end
        model(accelhost.zeros({1, 16}, {dtype = "int64"}))
      end)
      accelhost.set_default_device(before)
      assert(ok, message)
      assert.equal(row[2], count)
    end)
  end
end)

describe("A window", function()
  it("of keys is computed as all keys with a mask are", function()
    accelhost.manual_seed(2)
    local config = {vocab_size = 37, hidden_size = 32, intermediate_size = 24, num_hidden_layers = 2,
      num_attention_heads = 4, num_key_value_heads = 2}
    config.sliding_window = 16
    local model, ids = models.MistralForCausalLM(config):to "float64", long_ids(70)
    local without = model {input_ids = ids, attention_mask = accelhost.ones({2, 70}, {dtype = "int64"})}
    local padded = accelhost.ones({2, 70}, {dtype = "int64"})
    padded[0][0] = 0
    local masked = model {input_ids = ids, attention_mask = padded}
    check.near(check.flat(without.logits:select(0, 1)), masked.logits:select(0, 1), 1e-12)
    check.near(check.flat(without.logits:select(1, 69)), masked.logits:select(1, 69), 1e-12)
  end)
end)

describe("A block of a decoder", function()
  it("leaves tensors that hooks or its caller hold as they are", function()
    local config = {vocab_size = 37, hidden_size = 32, intermediate_size = 24, num_hidden_layers = 2,
      num_attention_heads = 4, num_key_value_heads = 2}
    accelhost.manual_seed(2)
    local model, ids = models.LlamaForCausalLM(config):to "float64":train(), long_ids(9)
    local without = model {input_ids = ids, labels = ids, output_hidden_states = true}
    without.loss:backward()
    local wanted = model:parameters()[2].grad:clone()
    model:zero_grad()
    local held = {}
    for path, module in model:named_modules() do
      if path:find "o_proj$" or path:find "down_proj$" or path:find "self_attn$" or path:find "mlp$" then
        module:register_forward_hook(function(_, _, out) held[#held + 1] = type(out) == "table" and out[1] or out end)
      end
    end
    local watched = model {input_ids = ids, labels = ids, output_hidden_states = true}
    watched.loss:backward()
    assert.equal(8, #held)
    for _, t in ipairs(held) do assert.equal(32, t:size(2)) end
    check.near(check.flat(wanted), model:parameters()[2].grad, 1e-12)
    for i, state in ipairs(without.hidden_states) do
      check.near(check.flat(state), watched.hidden_states[i], 1e-12)
    end
  end)
end)
