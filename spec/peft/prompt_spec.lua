-- Prompt tuning against peft: scripts/fixtures/prompts.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, optim, peft = accelhost.models, accelhost.optim, accelhost.peft

local root = require("lfs").currentdir() .. "/spec/fixtures/"
local expected = require("spec.support.fixtures").load "peft/prompts"
local ids, mask = tensors.long(expected.ids), tensors.long(expected.mask)

local function base() return models.AutoModelForCausalLM.from_pretrained(root .. "models/decoders/llama") end

local function tuned(values)
  accelhost.manual_seed(5)
  return peft.get_peft_model(base(), peft.PromptTuningConfig(values or {num_virtual_tokens = 4}))
end

describe("prompt tuning", function()
  it("draws and trains peft's vectors", function()
    local model = tuned()
    assert.same({expected.trainable, expected.all}, {model:get_nb_trainable_parameters()})
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
    local batch = {input_ids = ids, attention_mask = mask, labels = ids:masked_fill(mask:eq(0), -100)}
    for i, wanted in ipairs(expected.losses) do
      local loss = model(batch).loss
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      check.near(wanted, loss:item(), 1e-5, "step " .. i)
    end
    temporary.with(function(folder)
      model:save_pretrained(folder)
      local again = peft.PeftModel.from_pretrained(base(), folder)
      check.near(expected.loss, again {input_ids = ids, labels = ids}.loss:item(), 1e-4)
      assert.equal(4, peft.PromptTuningConfig.from_pretrained(folder).num_virtual_tokens)
    end)
  end)

  it("reads peft's folders and continues texts as peft does", function()
    local model = peft.PeftModel.from_pretrained(base(), root .. "peft/prompt")
    check.near(expected.loss, model {input_ids = ids, labels = ids}.loss:item(), 1e-5)
    for _, cached in ipairs {true, false} do
      local options = {max_new_tokens = 6, do_sample = false, use_cache = cached}
      assert.same(expected.tokens, model:generate(ids, options):tolist())
      assert.same(expected.tokens, model:generate({input_ids = ids}, options):tolist())
    end
    local plain = base():generate(ids, {max_new_tokens = 6, do_sample = false})
    assert.same(plain:tolist(), model:unload():generate(ids, {max_new_tokens = 6, do_sample = false}):tolist())
  end)

  it("saves and loads the vectors alone with a run", function()
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(tuned())
    local prompt = model.prompt_encoder.default.embedding.weight
    temporary.with(function(folder)
      accelerator:save_state(folder)
      local before = prompt:detach():clone()
      accelhost.no_grad(function() prompt:zero_() end)
      accelerator:load_state(folder)
      assert.same(before:tolist(), prompt:tolist())
    end)
    accelerator:free_memory()
  end)

  it("names wrong configurations and calls", function()
    check.raises("num_virtual_tokens: expected a positive integer, got nil", function() peft.PromptTuningConfig() end)
    check.raises("prompt_tuning_init: TEXT is not implemented", function()
      tuned {num_virtual_tokens = 2, prompt_tuning_init = "TEXT"}
    end)
    check.raises("prompt tuning is for models that continue texts", function()
      tuned {num_virtual_tokens = 2, task_type = "SEQ_CLS"}
    end)
    check.raises("merge_and_unload: not with prompt tuning", function() tuned():merge_and_unload() end)
    check.raises("unknown option 'target_modules'", function()
      peft.PromptTuningConfig {num_virtual_tokens = 2, target_modules = {"q_proj"}}
    end)
    check.raises("prompt_embeddings: expected shape (5, 16), got (4, 16)", function()
      peft.PeftModel.from_pretrained(base(), root .. "peft/prompt",
        {config = peft.PromptTuningConfig {num_virtual_tokens = 5}})
    end)
  end)
end)
