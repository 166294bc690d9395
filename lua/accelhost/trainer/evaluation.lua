--- Evaluation and prediction: each process takes its batches alone, and what they give is put together in the order of
--- the data set at the end, so the figures are those of the whole set for any number of processes, each sample once.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local batches = require "accelhost.trainer.batches"
local class = require "accelhost.util.class"
local utils = require "accelhost.accelerator.utils"

local evaluation = {}

--- What compute_metrics gets.
---@class EvalPrediction
---@field predictions any a tensor, or a table of them
---@field label_ids any
local EvalPrediction = class.new "EvalPrediction"
evaluation.EvalPrediction = EvalPrediction

function EvalPrediction:init(predictions, label_ids)
  self.predictions, self.label_ids = predictions, label_ids
end

local PADDING = -100

-- Tensors with equal sizes but for dim 0, padded where they are shorter.
local function padded(list)
  local dims = list[1]:dim()
  for dim = 1, dims - 1 do
    local most = 0
    for _, tensor in ipairs(list) do most = math.max(most, tensor:size(dim)) end
    for i, tensor in ipairs(list) do
      local lack = most - tensor:size(dim)
      if lack > 0 then
        local shape = tensor:shape()
        shape[dim + 1] = lack
        list[i] = C.cat({tensor, C.full(shape, PADDING, {dtype = tensor.dtype, device = tensor.device})}, dim)
      end
    end
  end
  return list
end

-- Values of all batches as one: tensors, or tables of them.
local function joined(list)
  local first = list[1]
  if first == nil then return nil end
  if C.is_tensor(first) then
    for i, tensor in ipairs(list) do
      if tensor:dim() == 0 then list[i] = tensor:reshape(1) end
    end
    return C.cat(padded(list), 0)
  end
  local result = {}
  for key in pairs(first) do
    local column = {}
    for i, value in ipairs(list) do column[i] = value[key] end
    result[key] = joined(column)
  end
  return result
end

local function brought(value, device)
  if C.is_tensor(value) then return value:detach():to {device = device} end
  if type(value) ~= "table" then return nil end
  local copy = {}
  for key, item in pairs(value) do copy[key] = brought(item, device) end
  return copy
end

-- This process's batches: {place =, logits =, labels =}, and the sums of losses and weights.
local function walk(trainer, loader, loss_only)
  local accelerator, args = trainer.evaluator, trainer.args
  local parts, sum, weight, rows, place = {}, 0, 0, 0, accelerator.process_index
  local since = 0
  for first, second, third in loader do
    local inputs = batches.inputs(first, second, third)
    local loss, logits, labels = trainer:prediction_step(trainer.model, inputs, loss_only)
    rows = rows + batches.rows(inputs)
    if loss then
      local own = trainer:num_items_in_batch(inputs)
      if own > 0 then sum, weight = sum + loss:detach():to("float64") * own, weight + own end
    end
    if not loss_only then
      if logits ~= nil and trainer.preprocess_logits_for_metrics then
        logits = trainer.preprocess_logits_for_metrics(logits, labels)
      end
      parts[#parts + 1] = {place = place, logits = brought(logits), labels = brought(labels)}
      since = since + 1
      if since == args.eval_accumulation_steps then
        for i = #parts - since + 1, #parts do
          local part = parts[i]
          part.logits, part.labels = brought(part.logits, "cpu"), brought(part.labels, "cpu")
        end
        since = 0
      end
    end
    place = place + accelerator.num_processes
    trainer.callback_handler:call("on_prediction_step", {eval_dataloader = loader})
  end
  return parts, {C.is_tensor(sum) and sum:item() or sum, weight, rows}
end

local function together(trainer, parts, sums)
  local total = trainer.evaluator:reduce(C.tensor(sums, {dtype = "float64"}), "sum")
  if trainer.evaluator.num_processes > 1 then
    for _, part in ipairs(parts) do
      part.logits, part.labels = brought(part.logits, "cpu"), brought(part.labels, "cpu")
    end
    parts = utils.gather_object(parts)
    table.sort(parts, function(a, b) return a.place < b.place end)
  end
  local logits, labels = {}, {}
  for i, part in ipairs(parts) do logits[i], labels[i] = part.logits, part.labels end
  return joined(logits), joined(labels), total
end

local function prefixed(metrics, prefix)
  local result = {}
  for name, value in pairs(metrics) do
    if C.is_tensor(value) then value = value:item() end
    result[name:sub(1, #prefix + 1) == prefix .. "_" and name or prefix .. "_" .. name] = value
  end
  return result
end

local function check_metrics(metrics)
  if type(metrics) ~= "table" then
    arguments.fail("Trainer: compute_metrics: expected it to give a table of numbers by name, got %s",
      arguments.describe(metrics))
  end
  return metrics
end

--- Walk a prepared loader. A collective.
---@param trainer Trainer
---@param loader DataLoader
---@param loss_only boolean?
---@param prefix string
---@return {predictions: any, label_ids: any, metrics: table, num_samples: integer}
function evaluation.loop(trainer, loader, loss_only, prefix)
  local began, model = C.system.now(), trainer.model
  local was_training = model.training
  model:eval()
  local fine, parts, sums = pcall(C.autograd.no_grad, function() return walk(trainer, loader, loss_only) end)
  if was_training then model:train() end
  if not fine then error(parts, 0) end
  local predictions, label_ids, total = together(trainer, parts, sums)
  local metrics, count = {}, total[2]:item()
  if trainer.compute_metrics and predictions ~= nil and label_ids ~= nil then
    metrics = check_metrics(trainer.compute_metrics(EvalPrediction(predictions, label_ids)))
  end
  metrics = prefixed(metrics, prefix)
  if total[1]:item() > 0 then metrics[prefix .. "_loss"] = total[0]:item() / total[1]:item() end
  local seconds = C.system.now() - began
  metrics[prefix .. "_runtime"] = seconds
  metrics[prefix .. "_samples_per_second"] = count / math.max(seconds, 1e-9)
  local size = loader.total_batch_size or 1
  metrics[prefix .. "_steps_per_second"] = math.ceil(count / size) / math.max(seconds, 1e-9)
  return {predictions = predictions, label_ids = label_ids, metrics = metrics, num_samples = count}
end

return evaluation
