-- An evaluation that a spec starts in one process or more: rows of unequal length have logits and labels of their
-- batch's length; prints the shapes that predict and compute_metrics have.
local accelhost = require "accelhost"
local F, data, nn = accelhost.nn.functional, accelhost.data, accelhost.nn

local args = accelhost.TrainingArguments.parse_args {
  defaults = {disable_tqdm = true, per_device_eval_batch_size = 2, include_for_metrics = {"inputs", "loss"}},
}

local Rows = data.Dataset:extend "Rows"
function Rows:len() return 11 end -- luacheck: ignore self
function Rows:get(i) -- luacheck: ignore self
  local ids = {}
  for k = 1, 1 + i * 5 % 7 do ids[k] = i + k / 10 end
  return {x = ids}
end

local function pad(samples)
  local most, x, labels = 0, {}, {}
  for _, sample in ipairs(samples) do most = math.max(most, #sample.x) end
  for i, sample in ipairs(samples) do
    x[i], labels[i] = {}, {}
    for k = 1, most do
      x[i][k] = sample.x[k] or 0
      labels[i][k] = sample.x[k] and k % 2 or -100
    end
  end
  return {x = accelhost.tensor(x), labels = accelhost.tensor(labels, {dtype = "int64"})}
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.weight = nn.Parameter(accelhost.tensor {1, -1})
  self.main_input_name = "x"
end
function Net:forward(batch)
  local logits = batch.x:unsqueeze(-1) * self.weight
  return {loss = F.cross_entropy(logits:reshape(-1, 2), batch.labels:reshape(-1)), logits = logits}
end

local seen, count = "", 0
local function metrics(prediction, last)
  count = count + prediction.label_ids:size(0)
  seen = ("%s %s"):format(table.concat(prediction.inputs:shape(), "x"), table.concat(prediction.losses:shape(), "x"))
  if args.batch_eval_metrics and not last then return nil end
  local result = {count = count, sum = prediction.losses:sum():item()}
  count = 0
  return result
end

local trainer = accelhost.Trainer {
  model = Net(), args = args, eval_dataset = Rows(), data_collator = pad, compute_metrics = metrics,
}
local output = trainer:predict(Rows())
local found = trainer:evaluate()
if trainer.state.is_world_process_zero then
  print(("%s | %s | %s"):format(table.concat(output.predictions:shape(), "x"),
    table.concat(output.label_ids:shape(), "x"), seen))
  print(accelhost.json.encode(output.predictions:select(2, 0):tolist()))
  print(accelhost.json.encode(output.label_ids:tolist()))
  print(("count %d, loss %.6f"):format(found.eval_count, found.eval_loss))
end
