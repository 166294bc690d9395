-- TrainingArguments: names, defaults, contradictions, and the command line.
local accelhost = require "accelhost"
local TrainingArguments = accelhost.TrainingArguments

local function fails(given, text)
  local fine, message = pcall(TrainingArguments, given)
  assert.is_false(fine)
  assert.matches(text, message, 1, true)
end

describe("TrainingArguments", function()
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

  it("derives what is left out", function()
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

  it("says why it does not take what transformers has", function()
    fails({push_to_hub = true}, "there is no hub")
    fails({deepspeed = "x"}, "models are whole on every process here")
    fails({warmup_ratio = 0.1}, "warmup_steps below 1")
    fails({remove_unused_columns = true}, "only false is taken")
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

  it("reads the command line beside a script's own options", function()
    local args, own = TrainingArguments.parse_args({{"data", "here", "folder"}, defaults = {num_train_epochs = 1}},
      {"--learning_rate", "0.1", "--fp16", "--data", "there", "--no_logging_nan_inf_filter", "--report_to=jsonl"})
    assert.same({0.1, 1, true, false, "jsonl", "there"}, {args.learning_rate, args.num_train_epochs, args.fp16,
      args.logging_nan_inf_filter, args.report_to, own.data})
    assert.has_error(function() TrainingArguments.parse_args({{"seed", 1, "x"}}, {}) end)
  end)

  it("lists all arguments", function()
    assert.matches("learning_rate +5e%-05 +the rate after warm%-up", TrainingArguments.help())
  end)

  it("name what exists where they refuse an argument", function()
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
