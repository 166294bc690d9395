-- TrainingArguments: names, defaults, contradictions, and the command line.
local accelhost = require "accelhost"
local defaults = require("spec.support.fixtures").load("trainer").defaults
local rows = require "accelhost.trainer.rows"

local TrainingArguments = accelhost.TrainingArguments

local function fails(given, text)
  local fine, message = pcall(TrainingArguments, given)
  assert.is_false(fine)
  assert.matches(text, message, 1, true)
end

describe("TrainingArguments", function()
  it("print those that have another value than their default", function()
    assert.equal("TrainingArguments()", tostring(TrainingArguments()))
    assert.equal('TrainingArguments(output_dir=runs/x, learning_rate=0.001, report_to=["jsonl"])',
      tostring(TrainingArguments("runs/x", {learning_rate = 1e-3, report_to = {"jsonl"}})))
  end)

  it("has transformers' defaults", function()
    local args = TrainingArguments()
    local expected = {
      output_dir = "trainer_output", num_train_epochs = 3, max_steps = -1, per_device_train_batch_size = 8,
      per_device_eval_batch_size = 8, gradient_accumulation_steps = 1, learning_rate = 5e-5, weight_decay = 0,
      adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8, max_grad_norm = 1, lr_scheduler_type = "linear",
      warmup_steps = 0, logging_strategy = "steps", logging_steps = 500, eval_strategy = "no", save_strategy = "steps",
      save_steps = 500, seed = 42, label_smoothing_factor = 0, optim = "adamw_torch_fused", report_to = "none",
      eval_delay = 0, load_best_model_at_end = false, dataloader_num_workers = 0, logging_nan_inf_filter = true,
    }
    for name, value in pairs(expected) do assert.equal(value, args[name], name) end
  end)

  it("derives omitted arguments", function()
    local args = TrainingArguments {eval_strategy = "steps", logging_steps = 20, save_steps = 40,
      load_best_model_at_end = true}
    assert.equal(20, args.eval_steps)
    assert.equal("loss", args.metric_for_best_model)
    assert.is_false(args.greater_is_better)
    assert.is_true(args.do_eval)
    assert.is_true(TrainingArguments{metric_for_best_model = "accuracy", eval_strategy = "epoch",
      save_strategy = "epoch", load_best_model_at_end = true}.greater_is_better)
    assert.equal(5, TrainingArguments{logging_steps = 0.1}:interval("logging_steps", 50))
  end)

  it("names the nearest argument for one that it does not know", function()
    fails({learning_rte = 1}, "did you mean 'learning_rate'?")
    fails({eval_strategy = "step"}, "did you mean 'steps'?")
    fails({per_device_train_batch_size = 0}, "per_device_train_batch_size: expected an integer of at least 1")
  end)

  it("reports why it does not accept arguments of transformers", function()
    fails({push_to_hub = true}, "there is no hub")
    fails({deepspeed = "x"}, "there is no DeepSpeed here")
    fails({warmup_ratio = 0.1}, "warmup_steps below 1")
    fails({remove_unused_columns = true}, "only false is supported")
    assert.is_truthy(TrainingArguments{remove_unused_columns = false})
  end)

  it("refuses arguments that contradict each other", function()
    fails({fp16 = true, bf16 = true}, "bf16 or fp16, not both")
    fails({load_best_model_at_end = true}, "needs an eval_strategy")
    fails({load_best_model_at_end = true, eval_strategy = "epoch"}, "save_strategy = eval_strategy")
    fails({load_best_model_at_end = true, eval_strategy = "steps", eval_steps = 30, save_steps = 50}, "a multiple of")
    fails({save_strategy = "best"}, "needs an eval_strategy")
    fails({lr_scheduler_type = "reduce_lr_on_plateau"}, "needs an eval_strategy")
    fails({max_steps = 0}, "max_steps")
    fails({save_steps = 2.5}, "a whole number")
  end)

  it("reads the command line together with a script's own options", function()
    local args, own = TrainingArguments.parse_args({{"data", "here", "folder"}, defaults = {num_train_epochs = 1}},
      {"--learning_rate", "0.1", "--fp16", "--data", "there", "--no_logging_nan_inf_filter", "--report_to=jsonl"})
    assert.same({0.1, 1, true, false, "jsonl", "there"}, {args.learning_rate, args.num_train_epochs, args.fp16,
      args.logging_nan_inf_filter, args.report_to, own.data})
    assert.error_matches(function() TrainingArguments.parse_args({{"seed", 1, "x"}}, {}) end,
      "TrainingArguments.parse_args: 'seed' is an argument of the Trainer already$")
  end)

  it("lists all arguments", function()
    assert.matches("learning_rate +5e%-05 +the rate after warm%-up", TrainingArguments.help())
  end)

  describe("compared with transformers'", function()
    -- Defaults that are other here, each with the reason.
    local own = {
      disable_tqdm = "false: a bar is drawn where there is a terminal", run_name = "trackers need a name",
      label_names = "the names of default_data_collator", output_dir = "None becomes trainer_output there too",
      activation_checkpointing = "None becomes false there too",
      gradient_checkpointing = "None becomes false there too",
    }
    -- Those with only one value whose default there is another, as in the guide.
    local other = {
      remove_unused_columns = true, ddp_find_unused_parameters = true, restore_callback_states_from_checkpoint = true,
    }
    local taken = {}
    for _, row in ipairs(rows.taken) do taken[row[1]] = row end

    for _, name in ipairs(require("accelhost.util.arguments").sorted_keys(defaults)) do
      local row, fixed, refused = taken[name], rows.fixed[name], rows.refused[name]
      local how = row and "accepts" or fixed and "accepts one value of" or "refuses"
      it(how .. " " .. name, function()
        local theirs = defaults[name]
        if row and not own[name] then
          if type(theirs) == "table" then assert.same(theirs, row[3]) else assert.equal(theirs, row[3] or false) end
        elseif fixed then
          local known = false
          for _, value in ipairs(fixed[1]) do known = known or value == theirs end
          assert.equal(not other[name], known)
          assert.is_truthy(TrainingArguments{[name] = fixed[1][1]})
          if #fixed[1] == 1 then fails({[name] = "another"}, fixed[2]) end
        elseif not row then
          fails({[name] = theirs or 1}, refused)
        end
      end)
    end
  end)

  it("has no argument that transformers' has not but those of old names", function()
    local own = {logging_dir = true}
    for _, row in ipairs(rows.taken) do assert.is_true(defaults[row[1]] ~= nil or own[row[1]] == true, row[1]) end
  end)

  it("refuses each optimizer of transformers' that is none here, with the reason", function()
    for _, name in ipairs {"adamw_torch_8bit", "galore_adamw", "lomo", "paged_lion_32bit", "schedule_free_adamw",
      "ademamix", "muon", "lbfgs"} do
      fails({optim = name}, ("optim: '%s' is not supported: "):format(name))
    end
    fails({optim = "adamw_troch"}, "did you mean 'adamw_torch'?")
    fails({optim = "sgd", optim_args = "momentum"}, "optim_args: expected NAME=NUMBER")
    fails({optim = "sgd", optim_args = "momentun=0.9"}, "did you mean 'momentum'?")
    assert.equal("momentum=0.9", TrainingArguments{optim = "sgd", optim_args = "momentum=0.9"}.optim_args)
  end)

  it("reads tables as JSON", function()
    local args = TrainingArguments.parse_args({}, {"--lr_scheduler_kwargs", '{"num_cycles": 2}'})
    assert.same({num_cycles = 2}, args.lr_scheduler_kwargs)
    fails({lr_scheduler_kwargs = "num_cycles=2"}, "expected a JSON object")
    fails({include_for_metrics = {"outputs"}}, "expected names among inputs, loss")
    assert.equal("all", TrainingArguments{include_num_input_tokens_seen = true}.include_num_input_tokens_seen)
  end)

  it("read fsdp in transformers' words", function()
    local function plugin(given)
      return require("accelhost.trainer.fsdp").plugin(TrainingArguments(given))
    end
    assert.is_nil(plugin {})
    assert.is_nil(plugin {fsdp = ""})
    assert.same({}, plugin {fsdp = true})
    assert.same({sharding_strategy = "SHARD_GRAD_OP"}, plugin {fsdp = "shard_grad_op auto_wrap"})
    assert.same({sharding_strategy = "FULL_SHARD", transformer_cls_names_to_wrap = {"Block"}, fsdp_version = 2},
      plugin {fsdp = {"full_shard", "auto_wrap"},
        fsdp_config = '{"transformer_layer_cls_to_wrap": "Block", "min_num_params": 0, "version": 2, "xla": false}'})
    local function refused(given, text) assert.error_matches(function() plugin(given) end, text, 1, true) end
    refused({fsdp = "full_shard offload"},
      "fsdp: 'offload' is not supported: parameters and gradients are not offloaded")
    refused({fsdp = "shard"}, "fsdp: expected full_shard, shard_grad_op, no_shard or auto_wrap, got")
    refused({fsdp_config = {min_num_params = 5}}, "fsdp_config: it needs fsdp = 'full_shard' or 'shard_grad_op'")
    refused({fsdp = true, fsdp_config = {xla = true}}, "there is no XLA here")
  end)

  it("name existing functions where they refuse an argument", function()
    local named = 0
    for name, reason in pairs(require "accelhost.trainer.rows".refused) do
      for path in reason:gmatch "accelhost%.([%a_%.]+)" do
        local value = accelhost
        for word in path:gmatch "[%a_]+" do value = value[word] end
        assert.truthy(value, name)
        named = named + 1
      end
    end
    assert.is_true(named > 2)
  end)
end)
