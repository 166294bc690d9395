-- Virtual tokens of classifiers against peft: scripts/fixtures/prompts.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local check = require "spec.support.check"
local heads = require "spec.support.heads"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local optim, peft = accelhost.optim, accelhost.peft

local root = require("lfs").currentdir() .. "/spec/fixtures/"
local expected = require("spec.support.fixtures").load "peft/classifiers"
local IDS, mask = tensors.long(expected.ids), tensors.long(expected.mask)
local configs = {
  PREFIX_TUNING = peft.PrefixTuningConfig, P_TUNING = peft.PromptEncoderConfig, PROMPT_TUNING = peft.PromptTuningConfig,
}

local function base_of(case, dtype)
  local fields = #case.missing == 0 and {dtype = dtype or "float32"} or nil
  return heads.load(root .. "models/" .. case.base, case.class, case.missing, fields):to(dtype or "float32")
end

local function config_of(case, more)
  local fields = {task_type = case.task}
  for _, source in ipairs {case.fields, more or {}} do
    for name, value in pairs(source) do fields[name] = value end
  end
  fields.peft_type = nil
  return configs[case.fields.peft_type](fields)
end

local function tuned(case, dtype)
  local base = base_of(case, dtype)
  accelhost.manual_seed(expected.seed)
  return peft.get_peft_model(base, config_of(case))
end

-- The inputs of a step: the first row has padding.
local function batch_of(model, case)
  local hidden = mask:eq(0)
  local batch = {
    input_ids = IDS:remainder(model.config.vocab_size):masked_fill(hidden, model.config.pad_token_id),
    attention_mask = mask, labels = tensors.long {1, 0},
  }
  if case.task == "TOKEN_CLS" then
    batch.labels = IDS:remainder(model.config.num_labels):masked_fill(hidden, -100)
  end
  return batch
end

-- The logits of texts, or of the first token of each text.
local function logits_of(model, case)
  local logits = accelhost.no_grad(model, batch_of(model, case)).logits
  return logits:dim() == 2 and logits or logits:select(1, logits:size(1) - IDS:size(1))
end

local function train(model, case, count, each)
  local optimizer, batch = optim.AdamW(model:parameters(), {lr = 1e-2}), batch_of(model, case)
  for step = 1, count do
    local loss = model(batch).loss
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    if each then each(step, loss:item()) end
  end
end

describe("virtual tokens of classifiers", function()
  for _, name in ipairs(arguments.sorted_keys(expected.cases)) do
    local case = expected.cases[name]
    it("compute and train as peft's, and are saved: " .. name, function()
      local model = tuned(case)
      assert.same({case.trainable, case.all}, {model:get_nb_trainable_parameters()})
      check.near(case.float32, logits_of(model, case), 1e-5)
      model = tuned(case, "float64")
      check.near(case.float64, logits_of(model, case), 1e-10)
      train(model, case, #case.losses, function(step, loss)
        check.near(case.losses[step], loss, 1e-9, "step " .. step)
      end)
      model:to "float32"
      check.near(case.loss, model(batch_of(model, case)).loss:item(), 1e-5)
      temporary.with(function(folder)
        local kept = os.getenv "ACCELHOST_SAVED" -- for `scripts/fixtures/prompts read`
        if kept then folder = kept .. "/head_" .. name end
        model:save_pretrained(folder)
        local again = peft.PeftModel.from_pretrained(base_of(case), folder)
        check.near(check.flat(logits_of(model, case)), logits_of(again, case), 1e-6)
        assert.equal(0, (again:get_nb_trainable_parameters()))
      end)
    end)
  end

  it("are read from peft's folders", function()
    for _, name in ipairs {"bert_projected", "bert_tokens_p_tuning", "roberta"} do
      local case = expected.cases[name]
      local model = peft.PeftModel.from_pretrained(base_of(case), root .. "peft/head_" .. name)
      assert.equal("PeftModelFor" .. (case.task == "SEQ_CLS" and "Sequence" or "Token") .. "Classification",
        model:class_name())
      check.near(case.loss, model(batch_of(model, case)).loss:item(), 1e-5)
    end
  end)

  it("leave the model as it was without them", function()
    for _, name in ipairs {"bert", "roberta_p_tuning", "distilbert_p_tuning"} do
      local case = expected.cases[name]
      local base, model = base_of(case), tuned(case)
      local before = logits_of(base, case):tolist()
      train(model, case, 2)
      assert.are_not.same(before, logits_of(model, case):tolist())
      model:disable_adapter(function() assert.same(before, logits_of(model, case):tolist()) end)
      assert.are_not.same(before, logits_of(model, case):tolist())
      local names = arguments.sorted_keys(base:state_dict())
      assert.same(before, logits_of(model:unload(), case):tolist())
      assert.same(names, arguments.sorted_keys(model.base_model:state_dict()))
    end
  end)

  it("save and load the vectors and the head alone with a run", function()
    local accelerator, case = accelhost.Accelerator(), expected.cases.bert_projected
    local model = accelerator:prepare(tuned(case))
    temporary.with(function(folder)
      accelerator:save_state(folder)
      local before = logits_of(model, case):tolist()
      train(model, case, 1)
      assert.are_not.same(before, logits_of(model, case):tolist())
      accelerator:load_state(folder)
      assert.same(before, logits_of(model, case):tolist())
      assert.same({"base_model.classifier.bias", "base_model.classifier.weight", "prompt_embeddings",
        "transform.0.bias", "transform.0.weight", "transform.2.bias", "transform.2.weight"},
        arguments.sorted_keys(accelhost.load(folder .. "/model.safetensors")))
    end)
    accelerator:free_memory()
  end)

  it("have equal gradients where layers are computed again", function()
    local case, gradients = expected.cases.bert, {}
    for i, again in ipairs {false, true} do
      local model = tuned(case, "float64"):train()
      if again then model:gradient_checkpointing_enable() end
      accelhost.manual_seed(3)
      model(batch_of(model, case)).loss:backward()
      gradients[i] = model.prompt_encoder.default.embedding.weight.grad:tolist()
    end
    assert.same(gradients[1], gradients[2])
  end)

  it("are refused by name for other models, and where a folder is of another one", function()
    local bert, mpnet = expected.cases.bert, expected.cases.mpnet_prompt
    for _, case in ipairs {mpnet, expected.cases.distilbert_p_tuning} do
      check.raises(("prefix tuning: %s has no keys and values in front of a text; expected P-tuning or prompt tuning")
        :format(case.class), function()
          peft.get_peft_model(base_of(case), peft.PrefixTuningConfig {num_virtual_tokens = 2})
        end)
    end
    check.raises("got BertForSequenceClassification with task_type \"TOKEN_CLS\"", function()
      peft.get_peft_model(base_of(bert), config_of(bert, {task_type = "TOKEN_CLS"}))
    end)
    check.raises("MPNetModel: past_key_values: this family has no keys and values in front of a text", function()
      base_of(mpnet) {input_ids = IDS, past_key_values = {}}
    end)
    check.raises("BertModel: past_key_values: expected keys and values of 2 layers", function()
      base_of(bert) {input_ids = IDS:remainder(11), past_key_values = {{}}}
    end)
    check.raises("attention_mask: expected shape (2, 11), got (2, 12)", function()
      local model = tuned(bert)
      model {input_ids = IDS:remainder(11), attention_mask = accelhost.ones(2, 9):long()}
    end)
    local roberta = expected.cases.roberta
    check.raises("base_model.classifier.bias: expected shape (3,), got none: it is of another base model", function()
      peft.PeftModel.from_pretrained(base_of(bert), root .. "peft/head_roberta", {config = config_of(bert)})
    end)
    check.raises("prompt_embeddings: expected shape (4, 96), got (3, 96): it is of another base model", function()
      peft.PeftModel.from_pretrained(base_of(roberta), root .. "peft/head_roberta",
        {config = config_of(roberta, {num_virtual_tokens = 4})})
    end)
  end)
end)
