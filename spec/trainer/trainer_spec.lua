-- The Trainer in this process: the bare loop's numbers, its order of operations, data, losses and failures.
local accelhost = require "accelhost"
local curves = require "accelhost.track.curves"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local silently = require "spec.support.silently"
local support = require "spec.support.trainer"

local nn, F, data, optim = accelhost.nn, accelhost.nn.functional, accelhost.data, accelhost.optim

local set_of = support.set_of

local function net() return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2)) end

local quiet = {on_log = function() end}

local function loss_of(model, inputs)
  local outputs = model(inputs.inputs)
  return F.cross_entropy(outputs, inputs.labels), outputs
end

-- Make a trainer whose output is not tested.
local function trainer_of(options)
  local args = {disable_tqdm = true, logging_steps = 1, per_device_train_batch_size = 8, learning_rate = 1e-2,
    save_strategy = "no", num_train_epochs = 2}
  for name, value in pairs(options.args or {}) do args[name] = value end
  options.args = args
  if not options.model then options.model_init = options.model_init or net end
  options.train_dataset = options.train_dataset or set_of(30)
  if options.compute_loss == nil then options.compute_loss = loss_of end
  if options.compute_loss == false then options.compute_loss = nil end
  local trainer = accelhost.Trainer(options)
  trainer:remove_callback(require("accelhost.trainer.callbacks").PrinterCallback)
  trainer:add_callback(quiet)
  return trainer
end

local function train(options)
  local trainer = trainer_of(options)
  return trainer, silently(trainer.train, trainer)
end

local fails = support.fails

local function column(trainer, name)
  local values = {}
  for _, entry in ipairs(trainer.state.log_history) do values[#values + 1] = entry[name] end
  return values
end

describe("Trainer", function()
  it("has the losses, rates and weights of the bare loop to the bit", function()
    local set = set_of(30)
    local accelerator = accelhost.Accelerator()
    accelhost.set_seed(42)
    local model = net()
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2, weight_decay = 0})
    local loader = data.DataLoader(set, {batch_size = 8, shuffle = true})
    model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
    local scheduler = accelerator:prepare(optim.get_scheduler("linear", optimizer,
      {num_warmup_steps = 2, num_training_steps = 8}))
    local losses, rates = {}, {}
    for _ = 1, 2 do
      for x, y in loader do
        local loss = F.cross_entropy(model(x), y)
        accelerator:backward(loss)
        accelerator:clip_grad_norm_(model:parameters(), 1)
        losses[#losses + 1], rates[#rates + 1] = loss:item(), scheduler:get_last_lr()[1]
        optimizer:step()
        scheduler:step()
        optimizer:zero_grad()
      end
    end
    local trainer = train {train_dataset = set, args = {warmup_steps = 2}}
    assert.same(losses, column(trainer, "loss"))
    assert.same(rates, column(trainer, "learning_rate"))
    for name, value in pairs(model:state_dict()) do
      assert.is_true(value:eq(trainer.model:state_dict()[name]):all():item(), name)
    end
  end)

  it("has the same losses however often it is evaluated", function()
    local set = set_of(30)
    local plain = train {train_dataset = set}
    local often = train {train_dataset = set, eval_dataset = set_of(9),
      args = {eval_strategy = "steps", eval_steps = 1}}
    assert.same(column(plain, "loss"), column(often, "loss"))
    assert.equal(8, #column(often, "eval_loss"))
  end)

  it("calls callbacks in transformers' order", function()
    local seen = {}
    local watch = {}
    for _, event in ipairs(require("accelhost.trainer.callbacks").events) do
      watch[event] = function(_, _, state) seen[#seen + 1] = event:sub(4) .. " " .. state.global_step end
    end
    local output
    folder.with(function(path)
      local _
      _, output = train {
        train_dataset = set_of(16), eval_dataset = set_of(3), callbacks = {watch},
        args = {output_dir = path, gradient_accumulation_steps = 2, num_train_epochs = 1, eval_strategy = "epoch",
          save_strategy = "epoch"},
      }
    end)
    assert.equal(1, output.global_step)
    assert.same({
      "init_end 0", "train_begin 0", "epoch_begin 0", "step_begin 0", "substep_end 0", "pre_optimizer_step 0",
      "optimizer_step 0", "step_end 1", "log 1", "epoch_end 1", "prediction_step 1", "log 1", "evaluate 1", "save 1",
      "log 1", "train_end 1",
    }, seen)
  end)

  it("uses a loss that the model returns, and makes batches by name of samples by name", function()
    local rows = data.Dataset:extend "Rows"
    function rows:len() return 6 end -- luacheck: ignore self
    function rows:get(i) return {x = {i, i + 1}, label = i % 2, text = "row " .. i} end -- luacheck: ignore self
    local names
    local Own = nn.Module:extend "Own"
    function Own:init() self.linear = nn.Linear(2, 2) end
    function Own:forward(batch)
      names = {batch.x.dtype, batch.labels.dtype, batch.text}
      local logits = self.linear(batch.x:to "float32")
      return {loss = F.cross_entropy(logits, batch.labels), logits = logits}
    end
    local trainer, output = train {model_init = Own, train_dataset = rows(), compute_loss = false,
      args = {per_device_train_batch_size = 3, max_steps = 3}}
    assert.same({"int64", "int64"}, names)
    assert.equal(3, output.global_step)
    local prediction = trainer:predict(rows())
    assert.same({0, 1, 0, 1, 0, 1}, prediction.label_ids:tolist())
    assert.same({6, 2}, prediction.predictions:shape())
  end)

  it("smooths labels as cross_entropy does", function()
    local model = nn.Linear(4, 3)
    local set = set_of(5)
    local trainer = trainer_of {model = model, compute_loss = false, train_dataset = set, eval_dataset = set,
      args = {label_smoothing_factor = 0.1}}
    local x, y = data.DataLoader(set, {batch_size = 5}):batches()()
    local expected = F.cross_entropy(model(x), y, {label_smoothing = 0.1}):item()
    assert.near(expected, trainer:evaluate().eval_loss, 1e-6)
  end)

  it("weighs micro-batches by their labels, so that accumulation changes no mean", function()
    local set = set_of(30)
    local model = nn.Linear(4, 2)
    local copy = nn.Linear(4, 2)
    copy:load_state_dict(model:state_dict())
    local one = train {model = model, train_dataset = set,
      args = {per_device_train_batch_size = 30, num_train_epochs = 1, train_sampling_strategy = "sequential"}}
    local two = train {model = copy, train_dataset = set, args = {per_device_train_batch_size = 7, num_train_epochs = 1,
      gradient_accumulation_steps = 5, train_sampling_strategy = "sequential"}}
    assert.near(column(one, "loss")[1], column(two, "loss")[1], 1e-6)
    assert.near(column(one, "grad_norm")[1], column(two, "grad_norm")[1], 1e-6)
  end)

  it("evaluates several sets by name", function()
    local trainer = trainer_of {eval_dataset = {first = set_of(5), second = set_of(9)}}
    local metrics = trainer:evaluate()
    assert.is_number(metrics.eval_first_loss)
    assert.is_number(metrics.eval_second_loss)
    assert.is_nil(metrics.eval_loss)
  end)

  it("prints metrics with the digits of their dtype, and total_flos where the model counts them", function()
    local set = set_of(30)
    local trainer = train {eval_dataset = set, args = {eval_strategy = "epoch", num_train_epochs = 1},
      compute_metrics = function()
        return {tensor = accelhost.tensor(0.936), item = accelhost.tensor(0.936):item(), half = 0.5, third = 1 / 3,
          none = 0 / 0, double = accelhost.tensor(0.936, {dtype = "float64"})}
      end}
    local metrics = silently(trainer.evaluate, trainer)
    assert.same({0.936, 0.936, 0.5, 1 / 3, 0.936}, {metrics.eval_tensor, metrics.eval_item, metrics.eval_half,
      metrics.eval_third, metrics.eval_double})
    assert.is_true(metrics.eval_none ~= metrics.eval_none)
    assert.same({}, column(trainer, "total_flos"))
    local Counted = nn.Linear:extend "Counted"
    function Counted:floating_point_ops(inputs) return 10 * inputs.inputs:size(0) end -- luacheck: ignore self
    trainer = train {model_init = function() return Counted(4, 2) end, args = {num_train_epochs = 1}}
    assert.same({300}, column(trainer, "total_flos"))
  end)

  it("writes TensorBoard's tags as transformers does, and other trackers' names unchanged", function()
    folder.with(function(path)
      local trainer = train {eval_dataset = set_of(30), args = {eval_strategy = "epoch", num_train_epochs = 1,
        report_to = {"tensorboard", "jsonl"}, output_dir = path, logging_dir = path .. "/logs"}}
      local found = {}
      for _, run in ipairs(curves.read(path .. "/logs")) do
        for name in pairs(run.curves) do found[name] = true end
      end
      for _, tag in ipairs {"train/loss", "train/epoch", "train/train_loss", "eval/loss", "eval/runtime"} do
        assert.is_true(found[tag], tag)
      end
      local names = {}
      for line in (io.popen(("cat $(find '%s' -name metrics.jsonl)"):format(path))):lines() do
        for name in pairs(accelhost.json.decode(line)) do names[name] = true end
      end
      assert.same({true, true}, {names.loss, names.eval_loss})
      assert.is_nil(names["train/loss"])
      assert.equal(#column(trainer, "loss"), 4)
    end)
  end)

  it("groups samples of similar length, the longest first", function()
    local lengths = {}
    local rows = data.Dataset:extend "Lengths"
    function rows:len() return 64 end -- luacheck: ignore self
    function rows:get(i) return {x = i, length = (i * 37) % 64} end -- luacheck: ignore self
    local Sampler = require "accelhost.trainer.length_grouped"
    accelhost.manual_seed(1)
    local sampler = Sampler(rows(), 4, "length")
    local seen = {}
    for index in sampler:iter() do
      seen[index] = true
      lengths[#lengths + 1] = (index * 37) % 64
    end
    assert.equal(64, #lengths)
    for i = 0, 63 do assert.is_true(seen[i]) end
    assert.equal(63, lengths[1])
    local spread = 0
    for at = 5, 61, 4 do
      spread = spread + math.max(unpack(lengths, at, at + 3)) - math.min(unpack(lengths, at, at + 3))
    end
    assert.is_true(spread / 15 < 24) -- of 38 or so in a random order
  end)

  it("makes the batch smaller when memory runs out before the first update", function()
    local sizes = {}
    local trainer = train {
      train_dataset = set_of(16), args = {auto_find_batch_size = true, num_train_epochs = 1},
      compute_loss = function(model, inputs)
        sizes[#sizes + 1] = #inputs.labels
        if #inputs.labels > 4 then error "out of memory" end
        return loss_of(model, inputs)
      end,
    }
    assert.same({8, 4, 4, 4, 4}, sizes)
    assert.equal(4, trainer.state.train_batch_size)
  end)

  it("ends within an epoch at num_train_epochs", function()
    local _, output = train {train_dataset = set_of(32), args = {num_train_epochs = 0.5}}
    assert.equal(2, output.global_step)
  end)

  it("counts time, samples and losses right after a resume", function()
    folder.with(function(path)
      local set, args = set_of(32), {output_dir = path, save_strategy = "steps", save_steps = 6, eval_strategy = "no"}
      local whole, all = train {train_dataset = set, args = args}
      local rest = trainer_of {train_dataset = set, args = args}
      local output = silently(rest.train, rest, path .. "/checkpoint-6")
      assert.equal(all.training_loss, output.training_loss) -- the mean over all updates, not over those of this part
      assert.equal(16, rest.samples)
      local before = accelhost.json.decode(files.read(path .. "/checkpoint-6/trainer_state.json")).runtime
      assert.is_true(before > 0 and output.metrics.train_runtime > before)
      assert.same(column(whole, "loss"), column(rest, "loss"))
    end)
  end)

  it("makes no folder where it saves nothing, and leaves one that was there", function()
    folder.with(function(path)
      local boom = {on_step_end = function() error "boom" end}
      for _, name in ipairs {"new", "made", "one/in/another"} do
        local output = path .. "/" .. name
        if name == "made" then accelhost.utils.makedirs(output) end
        local trainer = trainer_of {callbacks = {boom}, args = {output_dir = output, save_strategy = "epoch"}}
        fails("boom", trainer.train, trainer)
      end
      assert.same({"made"}, folder.names(path))
    end)
  end)

  it("reports an output_dir below a file, which stays as it is", function()
    folder.with(function(path)
      local file = assert(io.open(path .. "/file", "w"))
      file:write("text")
      file:close()
      local reasons = {["/file"] = "file: a file has this name", ["/file/in/it"] = "file/in: Not a directory"}
      for output, reason in pairs(reasons) do
        local trainer = trainer_of {args = {output_dir = path .. output, save_strategy = "epoch"}}
        fails(("Trainer: output_dir: cannot make the folder %s/%s"):format(path, reason), trainer.train, trainer)
      end
      assert.equal("text", assert(io.open(path .. "/file")):read "*a")
    end)
  end)

  it("makes optimizer, schedule and precision of the arguments", function()
    local set = set_of(16)
    for _, args in ipairs {
      {optim = "sgd"}, {optim = "lion"}, {optim = "rmsprop"}, {optim = "adagrad"}, {weight_decay = 0.1}, {bf16 = true},
      {fp16 = true}, {max_grad_norm = 0}, {lr_scheduler_type = "cosine", warmup_steps = 0.25},
      {lr_scheduler_type = "cosine_with_min_lr", lr_scheduler_kwargs = {min_lr = 1e-3}},
      {lr_scheduler_type = "reduce_lr_on_plateau", eval_strategy = "epoch"}, {dataloader_drop_last = true},
    } do
      local trainer, output = train {train_dataset = set, eval_dataset = set, args = args}
      assert.equal(4, output.global_step)
      assert.equal(4, #column(trainer, "loss"))
    end
  end)

  it("leaves biases and norms out of weight decay", function()
    local model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    local trainer = train {model = model, train_dataset = set_of(8), args = {weight_decay = 0.1}}
    local groups = trainer.optimizer.param_groups
    assert.same({2, 0.1, 4, 0}, {#groups[1].params, groups[1].weight_decay, #groups[2].params, groups[2].weight_decay})
  end)

  it("ends an epoch that a callback stops, and continues with the next", function()
    local trainer, output = train {train_dataset = set_of(32), callbacks = {{
      on_step_end = function(_, _, state, control)
        if state.global_step == 2 then control.should_epoch_stop = true end
      end,
    }}}
    assert.equal(6, output.global_step)
    assert.equal(2, trainer.state.epoch)
  end)

  it("has a model compute its layers again with gradient_checkpointing, to the same losses", function()
    local ids = accelhost.arange(24):view(6, 4)
    local Rows = data.Dataset:extend "Rows"
    function Rows:len() return 6 end -- luacheck: ignore self
    function Rows:get(i) return {input_ids = ids[i], labels = ids[i]} end -- luacheck: ignore self
    local function losses(args)
      local given = {seed = 3}
      for name, value in pairs(args) do given[name] = value end
      local models = accelhost.models
      local trainer = train {args = given, train_dataset = Rows(), compute_loss = false, model_init = function()
        return models.GPT2LMHeadModel {vocab_size = 24, n_positions = 4, n_embd = 8, n_layer = 2, n_head = 2}
      end}
      return column(trainer, "loss"), trainer.model.is_gradient_checkpointing
    end
    local plain = losses {}
    assert.is_true(#plain > 1)
    local forgetting, on = losses {
      gradient_checkpointing = true, gradient_checkpointing_kwargs = {use_reentrant = false},
    }
    assert.is_true(on)
    assert.same(plain, forgetting)
    fails("gradient_checkpointing_enable: use_reentrant: only false is supported", losses,
      {gradient_checkpointing = true, gradient_checkpointing_kwargs = {use_reentrant = true}})
    fails("gradient_checkpointing: Sequential has no method gradient_checkpointing_enable", train,
      {args = {gradient_checkpointing = true}})
  end)

  it("accepts a token file's batches", function()
    folder.with(function(path)
      data.write_tokens(path .. "/t.bin", accelhost.arange(40):remainder(7))
      local set = data.TokenFile(path .. "/t.bin", 4)
      set.get = function() error "a sample was asked for" end
      local models = accelhost.models
      local trainer = train {train_dataset = set, compute_loss = false, args = {num_train_epochs = 20},
        model = models.GPT2LMHeadModel {vocab_size = 7, n_positions = 4, n_embd = 8, n_layer = 1, n_head = 2}}
      local losses = column(trainer, "loss")
      assert.equal(40, #losses)
      assert.is_true(losses[40] < losses[1] - 0.5, losses[40] .. " after " .. losses[1])
    end)
  end)

  it("reports missing or wrong arguments", function()
    fails("needs an eval_dataset", trainer_of, {args = {eval_strategy = "epoch"}})
    fails("evaluate: eval_dataset: expected a data set", function() trainer_of{}:evaluate() end)
    fails("pass a model or model_init", accelhost.Trainer, {args = {}})
    fails("train needs a train_dataset", function()
      local trainer = accelhost.Trainer {model = net(), args = {disable_tqdm = true}}
      trainer:train()
    end)
    fails("the model returns no loss", train, {compute_loss = false})
    fails("expected it to return a tensor of one element, the mean over the batch, got number 3", train,
      {compute_loss = function() return 3 end})
    fails("the evaluation has no 'f1'", train, {eval_dataset = set_of(4), args = {eval_strategy = "epoch",
      metric_for_best_model = "f1"}})
    fails("did you mean 'on_step_end'", trainer_of, {callbacks = {{on_step_ends = function() end}}})
    fails("EarlyStoppingCallback needs", train, {callbacks = {accelhost.EarlyStoppingCallback()}})
    fails("there is no checkpoint in", function()
      local trainer = trainer_of {args = {output_dir = "/tmp/there-is-nothing-here"}}
      trainer:train(true)
    end)
    fails("group_by_length", train, {args = {train_sampling_strategy = "group_by_length"}})
  end)
end)
