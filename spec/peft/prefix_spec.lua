-- Virtual tokens of models that write texts against peft: scripts/fixtures/prompts.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local check = require "spec.support.check"
local run = require "spec.support.run"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, optim, peft = accelhost.models, accelhost.optim, accelhost.peft

local root = require("lfs").currentdir() .. "/spec/fixtures/"
local expected = require("spec.support.fixtures").load "peft/prefixes"
local ids, right, left = tensors.long(expected.ids), tensors.long(expected.right), tensors.long(expected.left)
local configs = {
  PREFIX_TUNING = peft.PrefixTuningConfig, P_TUNING = peft.PromptEncoderConfig, PROMPT_TUNING = peft.PromptTuningConfig,
}

local function is_t5(case) return case.base:find "^t5" ~= nil end

local function base_of(case, dtype)
  local kind = is_t5(case) and models.AutoModelForSeq2SeqLM or models.AutoModelForCausalLM
  return kind.from_pretrained(root .. "models/" .. case.base, {dtype = dtype or "float32"})
end

local function tuned(case, dtype, more)
  local fields = {}
  for _, source in ipairs {case.fields, more or {}} do
    for name, value in pairs(source) do fields[name] = value end
  end
  fields.peft_type = nil
  accelhost.manual_seed(expected.seed)
  return peft.get_peft_model(base_of(case, dtype), configs[case.fields.peft_type](fields))
end

local function batch_of(case)
  return {
    input_ids = ids, attention_mask = right,
    labels = is_t5(case) and tensors.long(expected.labels) or ids:masked_fill(right:eq(0), -100),
  }
end

local function last_logits(model, batch)
  if batch.attention_mask then batch.attention_mask = left end -- right padding ends with tokens that none reads
  return accelhost.no_grad(function() return model(batch).logits:select(1, -1) end)
end

local function train(model, case, each)
  local optimizer, batch = optim.AdamW(model:parameters(), {lr = 1e-2}), batch_of(case)
  for i, wanted in ipairs(case.losses) do
    local loss = model(batch).loss
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    each(wanted, loss:item(), i)
  end
end

-- Return the tokens after greedy search without an end.
local function written(model, options)
  local batch = {input_ids = ids, max_new_tokens = 6, do_sample = false, eos_token_id = 99}
  for name, value in pairs(options or {}) do batch[name] = value end
  return model:generate(batch):tolist()
end

describe("prefix tuning and P-tuning", function()
  for _, name in ipairs(arguments.sorted_keys(expected.cases)) do
    local case = expected.cases[name]
    it(("compute, train and continue texts as peft does: %s"):format(name), function()
      local model = tuned(case)
      assert.same({case.trainable, case.all}, {model:get_nb_trainable_parameters()})
      check.near(case.float32, last_logits(model, batch_of(case)), 1e-5)
      model = tuned(case, "float64")
      check.near(case.float64, last_logits(model, batch_of(case)), 1e-10)
      train(model, case, function(wanted, loss, step) check.near(wanted, loss, 1e-9, "step " .. step) end)
      model:to "float32"
      check.near(case.loss, model(batch_of(case)).loss:item(), 1e-5)
      for _, cached in ipairs {true, false} do
        assert.same(case.tokens, written(model, {use_cache = cached}))
        if case.padded then
          assert.same(case.padded, written(model, {use_cache = cached, attention_mask = left}))
        end
        if case.beams then
          assert.same(case.beams, written(model, {use_cache = cached, attention_mask = right, num_beams = 3,
            num_return_sequences = 2, min_new_tokens = 2, eos_token_id = 1}))
        end
      end
      local kept = os.getenv "ACCELHOST_SAVED" -- for `scripts/fixtures/prompts read`
      if kept then model:save_pretrained(kept .. "/" .. name) end
    end)
  end

  it("are read from peft's folders, and from saved ones with equal numbers", function()
    for _, name in ipairs {"projected", "t5", "p_tuning", "t5_p_tuning"} do
      local case = expected.cases[name]
      local model = peft.PeftModel.from_pretrained(base_of(case), root .. "peft/prefix_" .. name)
      check.near(case.loss, model(batch_of(case)).loss:item(), 1e-5)
      assert.same(case.tokens, written(model))
      temporary.with(function(folder)
        model:save_pretrained(folder)
        local again = peft.PeftModel.from_pretrained(base_of(case), folder)
        assert.equal(model(batch_of(case)).loss:item(), again(batch_of(case)).loss:item())
      end)
    end
  end)

  it("continue long texts by captured steps, beams and an assistant as without a cache", function()
    for _, name in ipairs {"llama", "gpt2", "p_tuning"} do
      local case = expected.cases[name]
      local model, one = tuned(case), ids:narrow(0, 0, 1)
      local plain = written(model, {input_ids = one, max_new_tokens = 20, use_cache = false})
      assert.same(plain, written(model, {input_ids = one, max_new_tokens = 20}))
      assert.same(plain, written(model, {input_ids = one, max_new_tokens = 20, assistant_model = base_of(case)}))
      assert.same(plain, written(model, {input_ids = one, max_new_tokens = 20, prompt_lookup_num_tokens = 3}))
      local beams = {num_beams = 3, repetition_penalty = 1.2, attention_mask = left}
      beams.use_cache = false
      local slow = written(model, beams)
      beams.use_cache = true
      assert.same(slow, written(model, beams))
      model:disable_adapter(function() assert.same(written(base_of(case)), written(model)) end)
    end
  end)

  it("continue a cache of an earlier call", function()
    for _, name in ipairs {"llama", "p_tuning"} do
      local model = tuned(expected.cases[name]):eval()
      local whole = last_logits(model, {input_ids = ids})
      local first = model {input_ids = ids:narrow(1, 0, 5), use_cache = true}
      check.near(check.flat(whole), last_logits(model,
        {input_ids = ids:narrow(1, 5, 3), past_key_values = first.past_key_values}), 1e-5)
    end
  end)

  it("are computed again in backward with equal gradients", function()
    local case, gradients = expected.cases.projected, {}
    for i, again in ipairs {false, true} do
      local model = tuned(case, "float64"):train()
      if again then model:gradient_checkpointing_enable() end
      model(batch_of(case)).loss:backward()
      gradients[i] = model.prompt_encoder.default.embedding.weight.grad:tolist()
    end
    assert.same(gradients[1], gradients[2])
  end)

  it("save and load the trained numbers alone with a run", function()
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(tuned(expected.cases.projected))
    local encoder = model.prompt_encoder.default
    temporary.with(function(folder)
      accelerator:save_state(folder)
      local before = tensors.weights(encoder)
      accelhost.no_grad(function()
        for _, tensor in ipairs(encoder:parameters()) do tensor:zero_() end
      end)
      accelerator:load_state(folder)
      assert.same(before, tensors.weights(encoder))
      local state = accelhost.load(folder .. "/model.safetensors")
      assert.same({"prompt_embeddings", "transform.0.bias", "transform.0.weight", "transform.2.bias",
        "transform.2.weight"}, arguments.sorted_keys(state))
    end)
    accelerator:free_memory()
  end)

  it("train in several processes as in one, and resume", function()
    temporary.with(function(folder)
      local function output(words, sharding, classifier)
        local environment = {SHARDING = sharding, CLASSIFIER = classifier,
          FOLDER = ("%s/%s%d%s"):format(folder, sharding, #words, classifier or "")}
        local result = run.host(words, {env = environment})
        run.succeeds(result)
        return result.stdout
      end
      local case = "spec/peft/cases/prefix.lua"
      for _, classifier in ipairs {false, "1"} do
        classifier = classifier or nil
        local alone = output({case}, "none", classifier)
        local fourth, again = alone:match "(%d+%.%d+)\n(%d+%.%d+)\n$"
        assert.equal(fourth, again)
        for _, sharding in ipairs {"none", "full"} do
          assert.equal(alone, output({"launch", "--num_processes", "2", case}, sharding, classifier))
        end
      end
    end)
  end)

  it("are trained by a Trainer in bfloat16", function()
    for _, name in ipairs {"projected", "t5", "p_tuning", "t5_prompt"} do
      local case = expected.cases[name]
      temporary.with(function(folder)
        local rows = {}
        for i = 1, 2 do
          local labels = is_t5(case) and tensors.long(expected.labels) or ids
          rows[i] = {input_ids = ids[i - 1], labels = labels[i - 1]}
        end
        local trainer = accelhost.Trainer {
          model = tuned(case), train_dataset = rows,
          args = accelhost.TrainingArguments {output_dir = folder, max_steps = 3, per_device_train_batch_size = 2,
            learning_rate = 1e-2, bf16 = true, disable_tqdm = true},
        }
        local result = trainer:train()
        assert.is_true(result.training_loss == result.training_loss)
        assert.equal(3, result.global_step)
      end)
    end
  end)

  it("name wrong configurations, models and folders", function()
    local llama, t5 = expected.cases.llama, expected.cases.t5
    check.raises("PrefixTuningConfig: num_virtual_tokens: expected a positive integer, got nil", function()
      peft.PrefixTuningConfig()
    end)
    check.raises("prefix tuning: the keys of the model have 3 heads of 6 numbers, those of the configuration 3 of 5.333"
      .. "33; expected num_attention_heads = 3, token_dim = 18", function() tuned(t5, nil, {token_dim = 16}) end)
    check.raises("prefix tuning is for models that continue texts (task_type \"CAUSAL_LM\"), T5 (\"SEQ_2_SEQ_LM\") and "
      .. "classifiers of texts or tokens (\"SEQ_CLS\", \"TOKEN_CLS\"); got LlamaForCausalLM with task_type "
      .. "\"SEQ_2_SEQ_LM\"", function() tuned(llama, nil, {task_type = "SEQ_2_SEQ_LM"}) end)
    check.raises("P-tuning: token_dim: expected 16, the width of the model's embeddings, got 18", function()
      peft.get_peft_model(base_of(t5), peft.PromptEncoderConfig {num_virtual_tokens = 2, token_dim = 18})
    end)
    check.raises("P-tuning: modules_to_save: expected none, for a model that continues texts", function()
      peft.get_peft_model(base_of(t5), peft.PromptEncoderConfig {num_virtual_tokens = 2, modules_to_save = {"shared"}})
    end)
    check.raises("prompt tuning is for models that continue texts", function()
      local model = models.ViTForImageClassification {hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 1,
        intermediate_size = 8, image_size = 8, patch_size = 4}
      peft.get_peft_model(model, peft.PromptTuningConfig {num_virtual_tokens = 2})
    end)
    check.raises("prompt_embeddings: expected shape (3, 36), got (3, 32)", function()
      peft.PeftModel.from_pretrained(base_of(t5), root .. "peft/prefix_projected", {config = peft.PrefixTuningConfig {
        num_virtual_tokens = 3, token_dim = 18, num_layers = 1}})
    end)
    local folder = root .. "peft/prefix_projected"
    check.raises("peft/prefix_projected/adapter_config.json': prefix tuning: the keys of the model have 2 heads of 16",
      function() peft.PeftModel.from_pretrained(base_of(expected.cases.gpt_neox), folder) end)
    check.raises(("is_trainable: '%s/adapter_model.safetensors' has the computed vectors"):format(folder), function()
      peft.PeftModel.from_pretrained(base_of(llama), folder, {is_trainable = true})
    end)
  end)
end)
