--- Batches as a Trainer sees them: one table by name, its weight, and the loss that a model computes of it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local data = require "accelhost.data"
local kinds = require "accelhost.util.kinds"
local shifting = require "accelhost.util.labels"
local warn = require "accelhost.util.warn"

local fail, describe = arguments.fail, arguments.describe
local batches = {}

local IGNORED = shifting.IGNORED

local is_plain = kinds.is_plain

-- A column of numbers, lists of numbers or tensors; nil for values that no model accepts.
local function column_of(name, values)
  local first = values[1]
  if type(first) == "string" or first == nil then return nil end
  if not is_plain(first) then return data.default_collate(values) end
  if type(first[1]) ~= "number" then return nil end
  for i, row in ipairs(values) do
    if #row ~= #first then
      fail("default_data_collator: '%s': sample 1 has %d numbers, sample %d has %d; a collator that pads is needed",
        name, #first, i, #row)
    end
  end
  for _, row in ipairs(values) do
    for _, number in ipairs(row) do
      if number % 1 ~= 0 then return C.tensor(values, {dtype = "float32"}) end
    end
  end
  return C.tensor(values, {dtype = "int64"})
end

--- transformers' default_data_collator: samples that are tables by name to a batch of tensors by name. `label` and
--- `label_ids` become `labels`; texts, and other values that cannot be tensors, are left out.
--
--   local batch = accelhost.default_data_collator{{ids = {1, 2}, label = 0}, {ids = {3, 4}, label = 1}}
--   print(batch.labels)  --> tensor([0, 1])
---@param features table[]
---@return table<string, Tensor>
function batches.default_data_collator(features)
  arguments.check("default_data_collator", "features", "list", features)
  if #features == 0 then fail "default_data_collator: features: expected at least one sample" end
  for i, sample in ipairs(features) do
    if not is_plain(sample) then
      fail("default_data_collator: features: expected samples that are tables by name; number %d is %s", i,
        describe(sample))
    end
  end
  local batch = {}
  for _, name in ipairs(arguments.sorted_keys(features[1])) do
    local values = {}
    for i, sample in ipairs(features) do
      values[i] = sample[name]
      if values[i] == nil then
        fail("default_data_collator: sample %d has no field '%s', which sample 1 has", i, tostring(name))
      end
    end
    local target = (name == "label" or name == "label_ids") and "labels" or name
    batch[target] = column_of(name, values)
  end
  return batch
end

--- The collate function of a data set whose samples are tables by name; nil where the loader's own does, or the set
--- makes whole batches (rows). Reading a sample leaves the random generator as it was.
---@param dataset Dataset
---@return function?
function batches.collator_of(dataset)
  if type(dataset.get) ~= "function" or dataset.rows or dataset:len() == 0 then return nil end
  local before = C.random.get_rng_state()
  local sample = dataset:get(0)
  C.random.set_rng_state(before)
  return is_plain(sample) and sample[1] == nil and batches.default_data_collator or nil
end

--- Return the values of a loader's batch as one table: {inputs =, labels =} of a pair.
function batches.inputs(first, second, third)
  if type(first) == "table" and second == nil then return first end
  if third ~= nil then
    fail "Trainer: the loader returns more than two values: set a data_collator that makes a table of them by name"
  end
  return {inputs = first, labels = second}
end

-- Rows of a batch.
local function rows_of(inputs)
  for _, name in ipairs(arguments.sorted_keys(inputs)) do
    local value = inputs[name]
    if C.is_tensor(value) and value:dim() > 0 then return value:size(0) end
  end
  return 1
end
batches.rows = rows_of

--- The tensor that a model calls its input: the field that its main_input_name names (default: input_ids), or the
--- first of a pair.
function batches.main_input(model, inputs)
  local value = inputs[model.main_input_name or "input_ids"]
  if value == nil then return inputs.inputs end
  return value
end

local integral = {int64 = true, int32 = true}

-- Of a model whose loss is that of the next tokens the first label of each row is no target.
local function targets_of(model, labels)
  if not model.loss_shifts_labels or labels:dim() == 0 or labels:size(-1) == 0 then return labels end
  return labels:narrow(-1, 1, labels:size(-1) - 1)
end

--- Return the weight of a batch in a mean: the number of labels that are not ignored (-100) where these are integers,
--- else of its rows.
---@param label_names string[]
---@return number
function batches.weight(model, inputs, label_names)
  local labels = inputs[label_names[1]]
  if not C.is_tensor(labels) or not integral[labels.dtype] then return rows_of(inputs) end
  return targets_of(model, labels):ne(IGNORED):sum():item()
end

--- Call a model with a batch: of a pair it gets the first value, and a model of accelhost.models, which computes its
--- loss, the labels too; else the table.
function batches.call(model, inputs)
  local first, labels = inputs.inputs, inputs.labels
  if first == nil then return model(inputs) end
  if labels ~= nil and model.base_model_prefix then return model(first, {labels = labels}) end
  return model(first)
end

--- The batch for a step of training: with use_liger_kernel a language model returns its loss without logits.
---@param model table
---@return table
function batches.for_training(model, inputs, args)
  if not args.use_liger_kernel then return inputs end
  if not model.loss_shifts_labels then
    warn("Trainer: use_liger_kernel: the model has no language head whose loss it knows, so nothing changes")
    return inputs
  end
  local copy = {skip_logits = true}
  for name, value in pairs(inputs) do copy[name] = value end
  return copy
end

--- The labels of a batch for a loss function; a word when there are none.
---@return Tensor?
function batches.labels(inputs, args)
  local name = args.label_names[1]
  if inputs[name] == nil then
    warn(("Trainer: the batch has no '%s' (it has: %s): compute_loss_func gets nil; label_names sets another name")
      :format(name, table.concat(arguments.sorted_keys(inputs), ", ")))
  end
  return inputs[name]
end

-- (1 - e) nll + e mean over the classes of -log p, over the labels that are not ignored.
local function smoothed(model, logits, labels, factor)
  local F = require "accelhost.nn.functional"
  local classes = logits:size(-1)
  if model.loss_shifts_labels then labels = shifting.next_tokens(labels) end
  return F.cross_entropy(logits:reshape(-1, classes), labels:reshape(-1), {label_smoothing = factor})
end

--- The loss of a model's outputs: its own, or with label smoothing that of its logits.
---@return Tensor
function batches.loss_of(model, outputs, inputs, args)
  local labels = inputs[args.label_names[1]]
  local logits = C.is_tensor(outputs) and outputs or is_plain(outputs) and outputs.logits
  if args.label_smoothing_factor > 0 and labels ~= nil and logits then
    return smoothed(model, logits, labels, args.label_smoothing_factor)
  end
  local loss = type(outputs) == "table" and outputs.loss
  if loss then return loss end
  fail("Trainer: the model returns no loss but %s: have its forward return {loss = ..., logits = ...}, or pass the "
    .. "Trainer compute_loss = function(model, inputs) ... return loss, outputs end", describe(outputs))
end

--- Return the part of a model's outputs that an evaluation keeps: the tensor, its logits, or all but the loss.
function batches.logits_of(outputs)
  if type(outputs) ~= "table" then return outputs end
  if outputs.logits ~= nil then return outputs.logits end
  local rest = {}
  for name, value in pairs(outputs) do
    if name ~= "loss" and C.is_tensor(value) then rest[name] = value end
  end
  return next(rest) and rest or nil
end

return batches
