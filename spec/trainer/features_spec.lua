-- Additions of the Trainer's arguments to the loop: counting of causal labels, noise, optimizers, streams, trackers,
-- and the kept outputs of an evaluation.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local json = require "accelhost.util.json"
local silently = require "spec.support.silently"
local support = require "spec.support.trainer"

local nn, F, data, models = accelhost.nn, accelhost.nn.functional, accelhost.data, accelhost.models

local set_of = support.set_of

local function trainer_of(options)
  local args = {disable_tqdm = true, logging_steps = 1, per_device_train_batch_size = 8, learning_rate = 1e-2,
    save_strategy = "no", num_train_epochs = 1}
  for name, value in pairs(options.args or {}) do args[name] = value end
  options.args = args
  options.model = options.model or nn.Linear(4, 2)
  options.train_dataset = options.train_dataset or set_of(32)
  if not options.loss then
    options.compute_loss_func = function(outputs, labels) return F.cross_entropy(outputs, labels) end
  end
  options.loss = nil
  local trainer = accelhost.Trainer(options)
  trainer:remove_callback(accelhost.PrinterCallback)
  return trainer
end

local function train(options)
  local trainer = trainer_of(options)
  return trainer, silently(trainer.train, trainer)
end

local fails = support.fails

local function gpt2(dropout)
  accelhost.manual_seed(1)
  return models.GPT2LMHeadModel {
    vocab_size = 11, n_positions = 8, n_embd = 8, n_layer = 2, n_head = 2, resid_pdrop = dropout, embd_pdrop = dropout,
    attn_pdrop = dropout,
  }
end

local Ids = data.Dataset:extend "Ids"
function Ids:len() return 12 end -- luacheck: ignore self
function Ids:get(i) -- luacheck: ignore self
  local ids, labels = {}, {}
  for k = 1, 6 do
    ids[k] = (i * 3 + k) % 11
    labels[k] = k > i % 5 + 1 and -100 or ids[k]
  end
  return {input_ids = ids, labels = labels}
end

-- A stream of rows, the same in each pass, or only once.
local Stream = data.IterableDataset:extend "Stream"
function Stream:init(rows, once) self.count, self.once = rows, once end
function Stream:iter()
  local at = self.over and self.count or 0
  self.over = self.once
  return function()
    at = at + 1
    if at <= self.count then return accelhost.full({4}, at / 10), at % 2 end
  end
end

describe("a Trainer of a model that computes its loss", function()
  it("passes the labels of pairs, as of ImageFolder and TensorDataset, to the model", function()
    local images, labels = accelhost.rand(16, 3, 8, 8), accelhost.arange(16):remainder(3)
    local function vit()
      accelhost.manual_seed(2)
      return models.ViTForImageClassification {hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
        intermediate_size = 8, image_size = 8, patch_size = 4, num_labels = 3}
    end
    local Named = data.Dataset:extend "Named"
    function Named:len() return 16 end -- luacheck: ignore self
    function Named:get(i) return {pixel_values = images[i], labels = labels[i]:item()} end -- luacheck: ignore self
    local adapter = accelhost.peft.LoraConfig {r = 2, target_modules = {"query"}, init_lora_weights = false}
    for _, wrap in ipairs {function(model) return model end,
      function(model) return accelhost.peft.get_peft_model(model, adapter) end} do
      local losses = {}
      for i, set in ipairs {data.TensorDataset(images, labels), Named()} do
        local trainer = train {model = wrap(vit()), train_dataset = set, loss = "own",
          args = {train_sampling_strategy = "sequential"}}
        losses[i] = {trainer.state.log_history[1].loss, trainer.state.log_history[2].loss}
      end
      assert.equal("number", type(losses[1][2]))
      assert.same(losses[2], losses[1])
    end
  end)
end)

describe("a Trainer of a causal model", function()
  it("counts the labels that are predicted, not the first of each row", function()
    local trainer = trainer_of {model = gpt2(0), train_dataset = Ids(), loss = "own"}
    local labels = accelhost.tensor({{1, 2, 3}, {4, -100, -100}, {-100, 5, 6}}, {dtype = "int64"})
    assert.equal(4, trainer:num_items_in_batch {labels = labels})
    local classes = trainer_of{}
    assert.equal(6, classes:num_items_in_batch {labels = labels})
  end)

  it("has the same gradients however its rows fall into micro-batches", function()
    local norms = {}
    for _, sizes in ipairs {{12, 1}, {3, 4}} do
      local trainer = train {model = gpt2(0), train_dataset = Ids(), loss = "own", args = {
        per_device_train_batch_size = sizes[1], gradient_accumulation_steps = sizes[2],
        train_sampling_strategy = "sequential",
      }}
      norms[#norms + 1] = trainer.state.log_history[1].grad_norm
    end
    assert.near(norms[1], norms[2], 1e-5)
  end)

  it("smooths the labels of the next tokens", function()
    local model = gpt2(0)
    local trainer = trainer_of {model = model, train_dataset = Ids(), eval_dataset = Ids(), loss = "own",
      args = {label_smoothing_factor = 0.1, per_device_eval_batch_size = 12}}
    local batch = {}
    for i = 1, 12 do batch[i] = Ids():get(i - 1) end
    batch = accelhost.default_data_collator(batch)
    local logits = model{input_ids = batch.input_ids}.logits:narrow(1, 0, 5):reshape(-1, 11)
    local expected = F.cross_entropy(logits, batch.labels:narrow(1, 1, 5):reshape(-1), {label_smoothing = 0.1})
    assert.near(expected:item(), trainer:evaluate().eval_loss, 1e-6)
  end)

  it("computes its loss without logits in training with use_liger_kernel, and with them in evaluation", function()
    local results = {}
    for _, liger in ipairs {false, true} do
      local seen = {}
      local trainer = trainer_of {model = gpt2(0), train_dataset = Ids(), eval_dataset = Ids(), loss = "own",
        args = {use_liger_kernel = liger, train_sampling_strategy = "sequential"}}
      function trainer:compute_loss(model, inputs) -- luacheck: ignore self
        local outputs = model(inputs)
        seen[model.training and "train" or "eval"] = outputs.logits ~= nil
        return outputs.loss, outputs
      end
      silently(trainer.train, trainer)
      results[#results + 1] = {trainer:evaluate().eval_loss, trainer.state.log_history[1].loss}
      assert.same({train = not liger, eval = true}, seen)
    end
    assert.same(results[1], results[2])
    fails("use_liger_kernel excludes label_smoothing_factor, which reads the logits of a step", trainer_of,
      {model = gpt2(0), loss = "own", args = {use_liger_kernel = true, label_smoothing_factor = 0.1}})
    fails("use_liger_kernel excludes compute_loss_func", trainer_of, {args = {use_liger_kernel = true}})
  end)

  it("gets noise on its embeddings in training alone, and none afterwards", function()
    local first = {}
    for _, alpha in ipairs {false, 5, 5} do
      local model = gpt2(0)
      local trainer = train {model = model, train_dataset = Ids(), eval_dataset = Ids(), loss = "own",
        args = {neftune_noise_alpha = alpha or nil, train_sampling_strategy = "sequential", learning_rate = 0}}
      first[#first + 1] = {trainer.state.log_history[1].loss, trainer:evaluate().eval_loss}
      model:train()
      local ids = accelhost.arange(6):view(1, 6)
      assert.is_true(model(ids).logits:eq(model(ids).logits):all():item())
    end
    assert.are_not.equal(first[1][1], first[2][1])
    assert.equal(first[2][1], first[3][1])
    assert.equal(first[1][2], first[2][2])
    fails("has no method get_input_embeddings()", train, {args = {neftune_noise_alpha = 5}})
  end)

  it("accepts the newer name of gradient_checkpointing, too", function()
    local trainer = train {model = gpt2(0.1), train_dataset = Ids(), loss = "own",
      args = {activation_checkpointing = true}}
    assert.is_true(trainer.model.is_gradient_checkpointing)
  end)

  it("counts its input tokens, those of padding or not", function()
    for kind, expected in pairs {all = 72, non_padding = 24} do
      local Padded = Ids:extend "Padded"
      function Padded:get(i)
        local row = Ids.get(self, i)
        row.attention_mask = {1, 1, 0, 0, 0, 0}
        return row
      end
      local trainer = train {model = gpt2(0), train_dataset = Padded(), loss = "own",
        args = {include_num_input_tokens_seen = kind}}
      assert.equal(expected, trainer.state.num_input_tokens_seen)
      assert.is_number(trainer.state.log_history[1].train_tokens_per_second)
    end
  end)
end)

describe("a Trainer", function()
  it("makes each optimizer that it names", function()
    for _, name in ipairs(require "accelhost.trainer.optimizer".names) do
      local trainer, output = train {args = {optim = name, weight_decay = 0.01}}
      assert.equal(4, output.global_step)
      assert.equal(0.01, trainer.optimizer.param_groups[1].weight_decay)
    end
  end)

  it("excludes from weight decay the parameters that transformers excludes", function()
    local model = nn.Module:extend "Named"
    function model:init()
      self.normalizer = nn.Linear(4, 4)
      self.batch = nn.BatchNorm1d(4)
      self.out_norm = nn.Linear(4, 2)
      self.norm = nn.BatchNorm1d(2)
      self.last = nn.LayerNorm(2)
    end
    function model:forward(x) return self.last(self.norm(self.out_norm(self.batch(self.normalizer(x))))) end
    local made = model()
    local trainer = train {model = made, args = {weight_decay = 0.1}}
    local groups = trainer.optimizer.param_groups
    assert.equal(2, #groups[1].params) -- normalizer.weight and batch.weight
    assert.is_true(groups[1].params[1] == made.normalizer.weight and groups[1].params[2] == made.batch.weight)
    assert.equal(8, #groups[2].params)
  end)

  it("releases the cache of memory as often as configured", function()
    local calls, before = 0, C.system.empty_cache
    C.system.empty_cache = function() calls = calls + 1 end
    local fine, reason = pcall(train, {args = {torch_empty_cache_steps = 2, num_train_epochs = 2}})
    C.system.empty_cache = before
    assert.is_true(fine, reason)
    assert.equal(4, calls)
  end)

  it("accepts losses of other dtypes and shapes from batch to batch", function()
    local expected, calls = {}, 0
    local trainer = train {args = {logging_steps = 4}, loss = true, compute_loss = function(model, inputs)
      local value = F.cross_entropy(model(inputs.inputs), inputs.labels)
      calls = calls + 1
      expected[calls] = value:item()
      if calls % 2 == 0 then return value:reshape(1) end
      return calls == 1 and value:to "float64" or value
    end}
    local mean = (expected[1] + expected[2] + expected[3] + expected[4]) / 4
    assert.near(mean, trainer.state.log_history[1].loss, 1e-6)
  end)

  it("trains on the CPU with use_cpu", function()
    local trainer = train {args = {use_cpu = true}}
    assert.equal("cpu", trainer.accelerator.device)
  end)

  it("iterates over a stream as often as its updates need, and ends with a message when it is exhausted", function()
    local trainer, output = train {train_dataset = Stream(20), args = {max_steps = 7}}
    assert.equal(7, output.global_step)
    assert.near(2 + 1 / 7, trainer.state.epoch, 1e-9)
    for _, case in ipairs {{Stream(20, true), 3}, {Stream(0), 0}} do
      _, output = train {train_dataset = case[1], args = {max_steps = 7}}
      assert.equal(case[2], output.global_step)
    end
    fails("does not know its length: pass max_steps", train, {train_dataset = Stream(20)})
  end)

  it("evaluates and predicts a stream", function()
    local trainer = trainer_of {eval_dataset = Stream(20)}
    assert.is_number(trainer:evaluate().eval_loss)
    assert.equal(20, trainer:predict(Stream(20)).label_ids:size(0))
  end)

  it("passes logged values to a tracker, with its arguments", function()
    folder.with(function(path)
      train {eval_dataset = set_of(8), args = {output_dir = path, report_to = "jsonl", run_name = "first",
        eval_strategy = "epoch", logging_steps = 2}}
      local steps, keys = {}, {}
      local names = {}
      for name in assert(io.popen("find " .. path .. " -name '*.jsonl'")):lines() do names[#names + 1] = name end
      assert.equal(1, #names)
      for line in io.lines(names[1]) do
        local entry = json.decode(line)
        if entry.step then steps[#steps + 1] = entry.step end
        for key in pairs(entry.values or entry) do keys[key] = true end
      end
      assert.same({2, 4, 4, 4}, steps)
      for _, key in ipairs {"loss", "grad_norm", "learning_rate", "eval_loss", "train_loss"} do
        assert.is_true(keys[key], key)
      end
    end)
  end)
end)

describe("an evaluation of a Trainer", function()
  it("keeps losses alone with prediction_loss_only", function()
    local seen = 0
    local trainer = trainer_of {eval_dataset = set_of(9), args = {prediction_loss_only = true},
      compute_metrics = function() seen = seen + 1 return {} end}
    assert.is_number(trainer:evaluate().eval_loss)
    local output = trainer:predict(set_of(9))
    assert.equal(0, seen)
    assert.is_nil(output.predictions)
    assert.is_nil(output.label_ids)
    assert.is_number(output.metrics.test_loss)
  end)

  it("moves predictions to the CPU after some batches, and returns the same", function()
    local moved, on_cpu = 0, require("accelhost.trainer.predictions").on_cpu
    require("accelhost.trainer.predictions").on_cpu = function(part)
      moved = moved + 1
      return on_cpu(part)
    end
    local model, set = nn.Linear(4, 2), set_of(20)
    local outputs = {}
    for i, steps in ipairs {false, 2} do
      outputs[i] = trainer_of{model = model, args = {eval_accumulation_steps = steps or nil}}:predict(set)
    end
    require("accelhost.trainer.predictions").on_cpu = on_cpu
    assert.equal(2, moved) -- of three batches
    assert.is_true(outputs[1].predictions:eq(outputs[2].predictions):all():item())
  end)

  it("returns lists by batch with eval_do_concat_batches = false", function()
    local output = trainer_of{args = {eval_do_concat_batches = false}}:predict(set_of(20))
    assert.equal(3, #output.predictions)
    assert.same({4, 2}, output.predictions[3]:shape())
    assert.same({4}, output.label_ids[3]:shape())
  end)

  it("passes compute_metrics inputs and losses only when configured", function()
    local got
    local function compute(prediction)
      got = prediction
      return {}
    end
    trainer_of{eval_dataset = set_of(9), compute_metrics = compute}:evaluate()
    assert.is_nil(got.inputs)
    assert.is_nil(got.losses)
    trainer_of{eval_dataset = set_of(9), compute_metrics = compute, args = {include_for_metrics = {"inputs", "loss"}}}
      :evaluate()
    assert.same({9, 4}, got.inputs:shape())
    assert.same({9}, got.losses:shape())
  end)

  it("calls compute_metrics batch by batch with batch_eval_metrics, and keeps only predict's results", function()
    local calls = {}
    local options = {eval_dataset = set_of(20), args = {batch_eval_metrics = true}, compute_metrics = function(p, last)
      calls[#calls + 1] = ("%d %s"):format(p.label_ids:size(0), tostring(last))
      return last and {rows = #calls} or nil
    end}
    local trainer = trainer_of(options)
    assert.equal(3, trainer:evaluate().eval_rows)
    assert.same({"8 false", "8 false", "4 true"}, calls)
    local output = trainer:predict(set_of(10))
    assert.equal(5, output.metrics.test_rows)
    assert.equal(10, output.predictions:size(0))
  end)

  it("reports wrong metrics of compute_metrics", function()
    local function metrics(value)
      local trainer = trainer_of {eval_dataset = set_of(9), compute_metrics = function() return value end}
      return trainer:evaluate()
    end
    fails("compute_metrics: expected it to return a table of numbers by name, got nil", metrics, nil)
    fails("compute_metrics: expected it to return a table of numbers by name, got number 3", metrics, 3)
    fails("compute_metrics: expected it to return a table of numbers by name, one key is number 1", metrics, {0.5})
    fails("compute_metrics: 'acc': expected a number, got a tensor of shape (2,)", metrics, {acc = accelhost.ones(2)})
    fails("compute_metrics: 'acc': expected a number, got a function", metrics, {acc = print})
    assert.equal(1, metrics{acc = accelhost.ones(1)}.eval_acc)
  end)
end)
