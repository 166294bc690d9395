-- A training that a spec starts in one process or two: a small BERT sorts rows of numbers of unequal length, padded by
-- a collator and grouped by length; prints the evaluation.
local accelhost = require "accelhost"
local data = accelhost.data

local args = accelhost.TrainingArguments.parse_args {
  defaults = {disable_tqdm = true, num_train_epochs = 8, learning_rate = 3e-3, train_sampling_strategy =
    "group_by_length", eval_strategy = "epoch", save_strategy = "no", weight_decay = 0.01, warmup_steps = 0.1},
}

local Rows = data.Dataset:extend "Rows"
function Rows:init(count) self.count = count end
function Rows:len() return self.count end
function Rows:get(i) -- luacheck: ignore self
  local ids = {}
  for k = 1, 2 + i % 5 do ids[k] = 2 + (i * 7 + k * 3) % 10 end
  ids[1] = i % 2 == 0 and 12 or 13
  return {input_ids = ids, label = i % 2}
end

local function pad(samples)
  local most, ids, mask, labels = 0, {}, {}, {}
  for _, sample in ipairs(samples) do most = math.max(most, #sample.input_ids) end
  for i, sample in ipairs(samples) do
    ids[i], mask[i], labels[i] = {}, {}, sample.label
    for k = 1, most do ids[i][k], mask[i][k] = sample.input_ids[k] or 0, sample.input_ids[k] and 1 or 0 end
  end
  local integers = {dtype = "int64"}
  return {
    input_ids = accelhost.tensor(ids, integers), attention_mask = accelhost.tensor(mask, integers),
    labels = accelhost.tensor(labels, integers),
  }
end

local models = accelhost.models
local trainer = accelhost.Trainer {
  model_init = function()
    return models.BertForSequenceClassification(models.BertConfig {
      vocab_size = 20, hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32,
      max_position_embeddings = 16, num_labels = 2,
    })
  end,
  args = args, train_dataset = Rows(96), eval_dataset = Rows(21), data_collator = pad,
  compute_metrics = function(p)
    return {accuracy = p.predictions:argmax(1):eq(p.label_ids):to("float64"):mean():item()}
  end,
}
local output = trainer:train(args.resume_from_checkpoint)
local metrics = trainer:evaluate()
if trainer.state.is_world_process_zero then
  print(("accuracy %.4f, losses %.17g %.17g"):format(metrics.eval_accuracy, output.training_loss, metrics.eval_loss))
end
