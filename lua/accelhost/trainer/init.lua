--- accelhost.Trainer: the training loop, evaluation, logs and checkpoints of a model, by transformers' names, over the
--- public Accelerator.
--
--   local trainer = accelhost.Trainer {
--     model = nn.Linear(2, 2), args = accelhost.TrainingArguments{num_train_epochs = 1}, train_dataset = set,
--     compute_loss = function(model, inputs) return F.mse_loss(model(inputs.inputs), inputs.labels) end,
--   }
local C = require "accelhost._C"
local Accelerator = require "accelhost.accelerator"
local TrainerState = require "accelhost.trainer.state"
local TrainingArguments = require "accelhost.trainer.arguments"
local arguments = require "accelhost.util.arguments"
local batches = require "accelhost.trainer.batches"
local callbacks = require "accelhost.trainer.callbacks"
local class = require "accelhost.util.class"
local data = require "accelhost.data"
local dataset = require "accelhost.data.sets.dataset"
local evaluation = require "accelhost.trainer.evaluation"
local optimizers = require "accelhost.trainer.optimizer"
local trial = require "accelhost.util.later" "accelhost.track.trial"
local session = require "accelhost.trainer.session"
local utils = require "accelhost.accelerator.utils"

local fail, describe = arguments.fail, arguments.describe

---@field model Module
---@field args TrainingArguments
---@field accelerator Accelerator of the training
---@field evaluator Accelerator of evaluations: its prepared objects are no part of a checkpoint
---@field state TrainerState
---@field control TrainerControl
---@field optimizer Optimizer?
---@field lr_scheduler LRScheduler?
---@field is_tracking boolean do trackers run?
---@field log_kwargs table? options of accelerator:log for its trackers
---@field train_dataloader DataLoader? of the running training
local Trainer = class.new "Trainer"

local signature = {
  {"model"}, {"args"}, {"data_collator: callable"}, {"train_dataset"}, {"eval_dataset"}, {"processing_class"},
  {"model_init: callable"}, {"compute_loss_func: callable"}, {"compute_metrics: callable"}, {"callbacks: list"},
  {"optimizers: list"}, {"preprocess_logits_for_metrics: callable"}, {"compute_loss: callable"},
}
local read = arguments.signature("Trainer", signature)

local function accelerator_of(args, more)
  local given = {
    cpu = args.use_cpu or nil, mixed_precision = args.bf16 and "bf16" or args.fp16 and "fp16" or nil,
    gradient_accumulation_steps = args.gradient_accumulation_steps > 1 and args.gradient_accumulation_steps or nil,
  }
  for name, value in pairs(more) do given[name] = value end
  return Accelerator(given)
end

local function make_accelerators(self)
  local args = self.args
  local trackers = args.report_to
  if trackers == "none" then trackers = nil end
  self.accelerator = accelerator_of(args, {
    fsdp_plugin = require("accelhost.trainer.fsdp").plugin(args), log_with = trackers,
    dataloader_config = {data_seed = args.data_seed, use_seedable_sampler = args.data_seed ~= nil},
    project_config = {project_dir = args.output_dir, logging_dir = args.logging_dir or args.output_dir .. "/logs"},
  })
  -- The launcher's settings hold where the arguments set nothing.
  args.gradient_accumulation_steps = self.accelerator.gradient_accumulation_steps
  self.evaluator = accelerator_of(args, {even_batches = false, gradient_accumulation_steps = 1})
end

-- Several sets by name?
local function named_sets(set)
  return type(set) == "table" and getmetatable(set) == nil and set.get == nil and set.iter == nil and set[1] == nil
end

local function check_set(what, name, set)
  return dataset.of(arguments.check(what, name, "dataset|stream", set))
end

-- The set, or the sets by name, each checked.
local function check_sets(what, set)
  if not named_sets(set) then return check_set(what, "eval_dataset", set) end
  local sets = {}
  for _, name in ipairs(arguments.sorted_keys(set)) do
    sets[name] = check_set(what, "eval_dataset." .. tostring(name), set[name])
  end
  return sets
end

-- Options that read the logits, which use_liger_kernel leaves out.
local function check_loss(self)
  local args = self.args
  local other = args.label_smoothing_factor > 0 and "label_smoothing_factor"
    or self.compute_loss_func and "compute_loss_func"
  if args.use_liger_kernel and other then
    fail("Trainer: use_liger_kernel excludes %s, which reads the logits of a step: leave one out", other)
  end
end

local function check_datasets(self)
  if self.train_dataset ~= nil then self.train_dataset = check_set("Trainer", "train_dataset", self.train_dataset) end
  if self.eval_dataset ~= nil then self.eval_dataset = check_sets("Trainer", self.eval_dataset) end
  if self.args.eval_strategy ~= "no" and self.eval_dataset == nil then
    fail("Trainer: eval_strategy = '%s' needs an eval_dataset", self.args.eval_strategy)
  end
end

--- A trainer of a model. All in one table, or in transformers' order.
---@param model Module|table
---@param args? TrainingArguments|table
---@param data_collator? fun(samples: table): table a batch by name; default: default_data_collator of samples that are
--- tables by name, the loader's own of others, whose pairs become {inputs =, labels =}
---@param train_dataset? Dataset
---@param eval_dataset? Dataset|table<string, Dataset> one, or several by name
---@param processing_class? any saved with the model when it has save_pretrained
---@param model_init? fun(): Module makes the model, after the seed is set, in each train()
---@param compute_loss_func? fun(outputs, labels): Tensor a loss of the model's outputs
---@param compute_metrics? fun(prediction: EvalPrediction): table<string, number>
---@param callbacks? TrainerCallback[]
---@param optimizers? table {optimizer, schedule}, in place of those that the arguments name
---@param preprocess_logits_for_metrics? fun(logits, labels): any the part of the logits that is kept, such as the
--- argmax
---@param compute_loss? fun(model, inputs): Tensor, any the loss and the outputs, in place of the method
function Trainer:init(...)
  local model, args, collator, train_set, eval_set, processing, model_init, loss_func, metrics, list, pair, preprocess,
    compute_loss = read(...)
  if args == nil then args = TrainingArguments() end
  if arguments.is_options(args) then args = TrainingArguments(args) end
  if not class.is(args, TrainingArguments) then
    fail("Trainer: args: expected TrainingArguments, got %s", describe(args))
  end
  if (model == nil) == (model_init == nil) then fail "Trainer: pass a model or model_init, one of them" end
  self.args, self.data_collator, self.train_dataset, self.eval_dataset = args, collator, train_set, eval_set
  self.processing_class, self.model_init, self.compute_loss_func = processing, model_init, loss_func
  self.compute_metrics, self.preprocess_logits_for_metrics = metrics, preprocess
  if compute_loss then self._given_loss = compute_loss end
  self._optimizers, self.is_tracking = optimizers.given(pair, model_init), false
  check_loss(self)
  check_datasets(self)
  make_accelerators(self)
  utils.set_seed(args.seed)
  self.model = model or model_init()
  arguments.check("Trainer", "model", "module", self.model)
  self.state, self.control = TrainerState(), callbacks.TrainerControl()
  self.state.is_world_process_zero = self.accelerator.is_main_process
  self.state.is_local_process_zero = self.accelerator.is_local_main_process
  self.callback_handler = callbacks.CallbackHandler(self)
  self.callback_handler:add(callbacks.DefaultFlowCallback)
  for _, callback in ipairs(list or {}) do self.callback_handler:add(callback) end
  self.callback_handler:add(args.disable_tqdm and callbacks.PrinterCallback or callbacks.ProgressCallback)
  self.callback_handler:call "on_init_end"
end

-- Methods that may be overridden.

--- The loss of a batch, and the model's outputs. Override it, or pass compute_loss.
---@return Tensor, any
function Trainer:compute_loss(model, inputs)
  if self._given_loss then return self._given_loss(model, inputs) end
  local outputs = batches.call(model, inputs)
  if self.compute_loss_func then
    return self.compute_loss_func(outputs, batches.labels(inputs, self.args)), outputs
  end
  return batches.loss_of(model, outputs, inputs, self.args), outputs
end

--- Return the weight of a batch in the mean of an update: the number of labels that are not -100 where these are
--- integers (of a model with loss_shifts_labels those after the first of each row), else of its rows. Override it where
--- a loss is a mean over something else.
---@return number
function Trainer:num_items_in_batch(inputs) return batches.weight(self.model, inputs, self.args.label_names) end

--- Forward and backward of a batch; returns its loss.
---@param weight? number of the batch in the mean of an update: its samples, or labels that are not ignored
---@return Tensor
function Trainer:training_step(model, inputs, weight)
  local loss = self:compute_loss(model, batches.for_training(model, inputs, self.args))
  if not C.is_tensor(loss) or loss:numel() ~= 1 then
    fail("Trainer: compute_loss: expected it to return a tensor of one element, the mean over the batch, got %s",
      describe(loss))
  end
  self.accelerator:backward(loss, {weight = weight})
  return loss
end

--- Return loss, logits and labels of a batch of an evaluation; nil for those that it lacks.
---@param prediction_loss_only? boolean
---@return Tensor?, any, any
function Trainer:prediction_step(model, inputs, prediction_loss_only)
  local labels = {}
  for i, name in ipairs(self.args.label_names) do labels[i] = inputs[name] end
  if #labels == #self.args.label_names then
    local loss, outputs = self:compute_loss(model, inputs)
    if prediction_loss_only then return loss end
    if outputs == nil then outputs = batches.call(model, inputs) end
    return loss, batches.logits_of(outputs), #labels == 1 and labels[1] or labels
  end
  local outputs = batches.call(model, inputs)
  return type(outputs) == "table" and outputs.loss or nil, batches.logits_of(outputs)
end

-- A loader of a set, with the options that all have in common.
local function loader_of(self, set, options)
  local args = self.args
  options.collate_fn = self.data_collator or batches.collator_of(set)
  if args.dataloader_num_workers > 0 then
    options.num_workers, options.prefetch_factor = args.dataloader_num_workers, args.dataloader_prefetch_factor
    options.persistent_workers = args.dataloader_persistent_workers
  end
  options.pin_memory = args.dataloader_pin_memory and self.accelerator.device:find "^cuda" ~= nil
  return data.DataLoader(set, options)
end

--- The loader of the training set, not yet prepared.
---@return DataLoader
function Trainer:get_train_dataloader()
  local args, set = self.args, self.train_dataset
  if set == nil then fail "Trainer: train needs a train_dataset" end
  local options = {batch_size = args.per_device_train_batch_size, drop_last = args.dataloader_drop_last}
  local is_stream = type(set.get) ~= "function"
  if args.train_sampling_strategy == "random" and not is_stream then
    options.shuffle = true
  elseif args.train_sampling_strategy == "group_by_length" then
    if is_stream then fail "Trainer: train_sampling_strategy = 'group_by_length' needs a set with get(i)" end
    options.sampler = require "accelhost.trainer.length_grouped"(set,
      args.per_device_train_batch_size * args.gradient_accumulation_steps * self.accelerator.num_processes,
      args.length_column_name)
  end
  return loader_of(self, set, options)
end

--- The loader of an evaluation set, not yet prepared. It draws nothing from the global generator, so a training is
--- the same however often it is evaluated.
---@param eval_dataset? Dataset
---@return DataLoader
function Trainer:get_eval_dataloader(eval_dataset)
  local set = eval_dataset or self.eval_dataset
  return loader_of(self, set, {
    batch_size = self.args.per_device_eval_batch_size, generator = C.random.Generator(self.args.seed),
  })
end

--- The loader of a set to predict.
---@return DataLoader
function Trainer:get_test_dataloader(test_dataset) return self:get_eval_dataloader(test_dataset) end

--- Make the optimizer.
---@return Optimizer
function Trainer:create_optimizer()
  local given = self._optimizers[1]
  if given then return optimizers.check(given, self.model) end
  return optimizers.optimizer(self.model, self.args)
end

--- Make the schedule of an optimizer.
---@param num_training_steps integer
---@return LRScheduler
function Trainer:create_scheduler(num_training_steps, optimizer)
  return self._optimizers[2] or optimizers.scheduler(optimizer, self.args, num_training_steps)
end

--- Log values: into log_history, the trackers and the callbacks; in a trial of a sweep they are its report. A
--- collective there.
---@param logs table<string, any>
---@param training? boolean of updates, not of an evaluation or the end
function Trainer:log(logs, training)
  if self.counts then self.counts:report(logs, training) end
  logs.epoch = self.state.epoch
  local entry = arguments.copy(logs)
  entry.step = self.state.global_step
  self.state.log_history[#self.state.log_history + 1] = entry
  self.callback_handler:call("on_log", {logs = logs})
  if self.is_tracking then
    self.accelerator:log(logs, {step = self.state.global_step, log_kwargs = self.log_kwargs})
  elseif os.getenv "ACCELHOST_TRIAL" then
    trial.log(logs, self.state.global_step)
  end
end

-- Training.

--- Train; returns {global_step, training_loss, metrics}. A collective.
--
-- With `resume_from_checkpoint` it resumes, to the bit, from a checkpoint's folder, or with true from the newest one
-- of output_dir that is whole.
---@param resume_from_checkpoint? string|boolean
---@return {global_step: integer, training_loss: number, metrics: table}
function Trainer:train(resume_from_checkpoint)
  if type(resume_from_checkpoint) == "table" then
    arguments.check_names("train", resume_from_checkpoint, {"resume_from_checkpoint"})
    resume_from_checkpoint = resume_from_checkpoint.resume_from_checkpoint
  end
  if resume_from_checkpoint ~= nil then
    arguments.check("train", "resume_from_checkpoint", "string|flag", resume_from_checkpoint)
  end
  return session.train(self, resume_from_checkpoint or nil)
end

--- Return the seconds of this training, including those before it resumed from a checkpoint.
---@return number
function Trainer:seconds() return session.seconds(self) end

-- Evaluation.

local function evaluate_one(self, set, prefix)
  local loader = self.evaluator:prepare(self:get_eval_dataloader(set))
  local loss_only = self.compute_metrics == nil or self.args.prediction_loss_only
  local metrics = evaluation.loop(self, loader, {loss_only = loss_only, prefix = prefix}).metrics
  self:log(arguments.copy(metrics))
  self.callback_handler:call("on_evaluate", {metrics = metrics})
  return metrics
end

--- Evaluate on eval_dataset, or another set; returns the metrics, eval_loss and those of compute_metrics. Of several
--- sets by name, in their names' order, they are eval_NAME_loss and so on, and each set is logged by itself. Each
--- sample counts once, for any number of processes. A collective.
---@param eval_dataset? Dataset|table<string, Dataset>
---@param metric_key_prefix? string default "eval"
---@return table<string, number>
function Trainer:evaluate(eval_dataset, metric_key_prefix)
  local set, prefix = check_sets("evaluate", eval_dataset or self.eval_dataset), metric_key_prefix or "eval"
  session.ready_to_evaluate(self)
  if not named_sets(set) then return evaluate_one(self, set, prefix) end
  local metrics = {}
  for _, name in ipairs(arguments.sorted_keys(set)) do
    for key, value in pairs(evaluate_one(self, set[name], prefix .. "_" .. name)) do metrics[key] = value end
  end
  return metrics
end

--- Predict a set; returns {predictions, label_ids, metrics}, in the order of the set, on every process. A collective.
---@param metric_key_prefix? string default "test"
---@return {predictions: any, label_ids: any, metrics: table}
function Trainer:predict(test_dataset, metric_key_prefix)
  test_dataset = check_set("predict", "test_dataset", test_dataset)
  session.ready_to_evaluate(self)
  local loader = self.evaluator:prepare(self:get_test_dataloader(test_dataset))
  local output = evaluation.loop(self, loader, {
    loss_only = self.args.prediction_loss_only, prefix = metric_key_prefix or "test", predicting = true,
  })
  self.callback_handler:call("on_predict", {metrics = output.metrics})
  return output
end

-- Saving.

--- Write the model's weights into a folder, default output_dir: by its save_pretrained where it has one.
---@param output_dir? string
function Trainer:save_model(output_dir)
  local folder = output_dir or self.args.output_dir
  if self.model.save_pretrained and self.accelerator.is_main_process then
    self.model:save_pretrained(folder)
  elseif not self.model.save_pretrained then
    self.accelerator:save_model(self.model, folder)
  end
  local processing = self.processing_class
  if processing and processing.save_pretrained and self.accelerator.is_main_process then
    processing:save_pretrained(folder)
  end
end

--- Write trainer_state.json into output_dir.
function Trainer:save_state()
  if not self.accelerator.is_main_process then return end
  local made, reason = C.io.make_folder(self.args.output_dir)
  if not made then fail("Trainer: save_state: %s", reason) end
  self.state:write(self.args.output_dir .. "/trainer_state.json")
end

--- Add a callback: an object, a class, or a table of on_... functions.
function Trainer:add_callback(callback) self.callback_handler:add(callback) end

--- Remove a callback, an object or all of a class, and return it.
---@return table?
function Trainer:pop_callback(callback) return self.callback_handler:remove(callback) end

--- Remove a callback.
function Trainer:remove_callback(callback) self.callback_handler:remove(callback) end

return class.guard(Trainer)
