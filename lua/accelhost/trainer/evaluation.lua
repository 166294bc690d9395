--- Evaluation and prediction: each process evaluates its batches alone, and the results are joined in the order of
--- the data set at the end (trainer/predictions.lua), so the figures are those of the whole set for any number of
--- processes, each sample once.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local batches = require "accelhost.trainer.batches"
local class = require "accelhost.util.class"
local predictions = require "accelhost.trainer.predictions"

local evaluation = {}

--- The argument of compute_metrics.
---@field predictions any a tensor, or a table of them; a list by batches with eval_do_concat_batches = false
---@field label_ids any
---@field inputs any with include_for_metrics = {"inputs"}: the model's main input
---@field losses Tensor? with include_for_metrics = {"loss"}: of each sample its batch's loss
local EvalPrediction = class.new "EvalPrediction"
evaluation.EvalPrediction = EvalPrediction

function EvalPrediction:init(found)
  self.predictions, self.label_ids = found.logits, found.labels
  self.inputs, self.losses = found.inputs, found.losses
end

-- One evaluation: its sums, and the collected outputs of this process's batches.
local EvaluationPass = class.new "EvaluationPass"

function EvaluationPass:init(trainer, loader, options)
  local args, wanted = trainer.args, {}
  for _, name in ipairs(args.include_for_metrics) do wanted[name] = true end
  self.trainer, self.loader, self.options, self.wanted = trainer, loader, options, wanted
  self.parts, self.sum, self.weight, self.rows = {}, 0, 0, 0
  self.place, self.since = trainer.evaluator.process_index, 0
  self.by_batch = args.batch_eval_metrics and trainer.compute_metrics ~= nil and not options.loss_only
  self.collects = not options.loss_only and (not self.by_batch or options.predicting)
end

--- Return the parts of a batch's results that are collected.
function EvaluationPass:part(inputs, loss, logits, labels)
  local trainer, wanted = self.trainer, self.wanted
  if logits ~= nil and trainer.preprocess_logits_for_metrics then
    logits = trainer.preprocess_logits_for_metrics(logits, labels)
  end
  local part = {place = self.place, logits = predictions.brought(logits), labels = predictions.brought(labels)}
  if wanted.inputs then part.inputs = predictions.brought(batches.main_input(trainer.model, inputs)) end
  if wanted.loss and loss then
    part.losses = loss:detach():to("float64"):reshape(1):expand(batches.rows(inputs)):contiguous()
  end
  return part
end

--- Collect a part, on the CPU after every eval_accumulation_steps batches.
function EvaluationPass:collect(part)
  self.parts[#self.parts + 1] = part
  self.since = self.since + 1
  if self.since ~= self.trainer.args.eval_accumulation_steps then return end
  for i = #self.parts - self.since + 1, #self.parts do self.parts[i] = predictions.on_cpu(self.parts[i]) end
  self.since = 0
end

--- With batch_eval_metrics: hand a round of batches, one of each process that has one left, to compute_metrics.
function EvaluationPass:hand_over(part, last)
  local trainer, all_last = self.trainer, last
  local round = {part}
  if trainer.evaluator.num_processes > 1 then round, all_last = predictions.round(part, last) end
  local found = predictions.joined(round, true)
  local metrics = trainer.compute_metrics(EvalPrediction(found), all_last)
  if all_last then self.metrics = metrics end
  return all_last
end

--- Add a batch: its loss is summed, the other outputs are returned.
function EvaluationPass:batch(inputs)
  local trainer, options = self.trainer, self.options
  local loss, logits, labels = trainer:prediction_step(trainer.model, inputs, options.loss_only)
  self.rows = self.rows + batches.rows(inputs)
  if loss then
    local own = trainer:num_items_in_batch(inputs)
    if own > 0 then self.sum, self.weight = self.sum + loss:detach():to("float64") * own, self.weight + own end
  end
  if options.loss_only then return end
  local part = self:part(inputs, loss, logits, labels)
  if self.collects then self:collect(part) end
  return part
end

--- Evaluate all batches.
function EvaluationPass:run()
  local handler, loader = self.trainer.callback_handler, self.loader
  local complete = false
  for first, second, third in loader do
    local part = self:batch(batches.inputs(first, second, third))
    self.place = self.place + self.trainer.evaluator.num_processes
    handler:call("on_prediction_step", {eval_dataloader = loader})
    if self.by_batch then complete = self:hand_over(part, loader.end_of_dataloader) end
  end
  while self.by_batch and not complete and self.trainer.evaluator.num_processes > 1 do
    complete = self:hand_over(nil, true)
  end
  return true
end

local loggable = {number = true, string = true, boolean = true}

local function check_metrics(metrics)
  if type(metrics) ~= "table" then
    arguments.fail("Trainer: compute_metrics: expected it to return a table of numbers by name, got %s",
      arguments.describe(metrics))
  end
  for _, name in ipairs(arguments.sorted_keys(metrics)) do
    local value = metrics[name]
    if type(name) ~= "string" then
      arguments.fail("Trainer: compute_metrics: expected it to return a table of numbers by name, one key is %s",
        arguments.describe(name))
    end
    if C.is_tensor(value) and value:numel() ~= 1 or not C.is_tensor(value) and not loggable[type(value)] then
      arguments.fail("Trainer: compute_metrics: '%s': expected a number, got %s", name, arguments.describe(value))
    end
  end
  return metrics
end

-- A number that was computed in float32 with the digits that float32 has: 0.936, not 0.93599998950958.
local function float32_digits(value)
  local function rounded(x) return C.tensor(x, {dtype = "float32", device = "cpu"}):item() end
  if value - value ~= 0 or rounded(value) ~= value then return value end
  for digits = 6, 9 do
    local short = tonumber(("%%.%dg"):format(digits):format(value))
    if rounded(short) == value then return short end
  end
  return value
end

local function prefixed(metrics, prefix)
  local result = {}
  for name, value in pairs(metrics) do
    if C.is_tensor(value) then value = value:item() end
    if type(value) == "number" then value = float32_digits(value) end
    result[name:sub(1, #prefix + 1) == prefix .. "_" and name or prefix .. "_" .. name] = value
  end
  return result
end

-- Return the metrics of the collected outputs; those of batch_eval_metrics were computed during the pass.
local function metrics_of(pass, found)
  local compute = pass.trainer.compute_metrics
  if pass.by_batch then return pass.metrics and check_metrics(pass.metrics) or {} end
  if not compute or found.logits == nil or found.labels == nil then return {} end
  return check_metrics(compute(EvalPrediction(found)))
end

local function run_pass(trainer, loader, options)
  local pass, model = EvaluationPass(trainer, loader, options), trainer.model
  local was_training = model.training
  model:eval()
  local fine, reason = pcall(C.autograd.no_grad, function() return pass:run() end)
  if was_training then model:train() end
  if not fine then error(reason, 0) end
  return pass
end

--- Evaluate a prepared loader. A collective.
---@param options {loss_only: boolean, prefix: string, predicting: boolean?}
---@return {predictions: any, label_ids: any, metrics: table, num_samples: integer}
function evaluation.loop(trainer, loader, options)
  local began, prefix = C.system.now(), options.prefix
  local pass = run_pass(trainer, loader, options)
  local sums = {C.is_tensor(pass.sum) and pass.sum:item() or pass.sum, pass.weight, pass.rows}
  local total = trainer.evaluator:reduce(C.tensor(sums, {dtype = "float64", device = "cpu"}), "sum"):tolist()
  if total[3] == 0 then arguments.fail("Trainer: the data set of the evaluation '%s' has no samples", prefix) end
  local found = predictions.joined(predictions.together(trainer.evaluator, pass.parts),
    trainer.args.eval_do_concat_batches)
  local metrics = prefixed(metrics_of(pass, found), prefix)
  if total[2] > 0 then metrics[prefix .. "_loss"] = total[1] / total[2] end
  local seconds = math.max(C.system.now() - began, 1e-9)
  metrics[prefix .. "_runtime"] = seconds
  metrics[prefix .. "_samples_per_second"] = total[3] / seconds
  metrics[prefix .. "_steps_per_second"] = math.ceil(total[3] / (loader.total_batch_size or 1)) / seconds
  return {predictions = found.logits, label_ids = found.labels, metrics = metrics, num_samples = total[3]}
end

return evaluation
