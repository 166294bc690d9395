-- Trains BasicNet on MNIST by the Trainer, in one process or in many: it has the loop, evaluation, logs and checkpoints
-- of examples/mnist.lua.
--
--   accelhost examples/mnist_trainer.lua
--   accelhost launch --num_processes 2 examples/mnist_trainer.lua --learning_rate 1e-3
--
-- Seed, schedule, weight decay and clipping are the Trainer's defaults. With those of mnist.lua its losses are the same
-- bit for bit: --seed 1 --lr_scheduler_type constant --weight_decay 0.01 --max_grad_norm 0.
--
-- Every argument of the Trainer is an option (see --help). Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, data = accelhost.nn, accelhost.nn.functional, accelhost.data

local args, own = accelhost.TrainingArguments.parse_args {
  description = "Trains BasicNet on MNIST by the Trainer.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"quiet", false, "do not print the accuracy"},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
  defaults = {
    output_dir = "runs/mnist_trainer", num_train_epochs = 1, per_device_train_batch_size = 64,
    per_device_eval_batch_size = 100, learning_rate = 1e-3, eval_strategy = "epoch", logging_steps = 100,
    save_strategy = "epoch",
  },
}

local BasicNet = nn.Module:extend "BasicNet"

function BasicNet:init()
  self.conv1 = nn.Conv2d(1, 32, 3, 1)
  self.conv2 = nn.Conv2d(32, 64, 3, 1)
  self.dropout1 = nn.Dropout(0.25)
  self.dropout2 = nn.Dropout(0.5)
  self.fc1 = nn.Linear(9216, 128)
  self.fc2 = nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv2(F.relu(self.conv1(x))))
  x = self.dropout1(F.max_pool2d(x, 2)):flatten(1)
  return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), 1)
end

local MnistTrainer = accelhost.Trainer:extend "MnistTrainer"

function MnistTrainer:compute_loss(model, inputs) -- luacheck: ignore self
  local outputs = model(inputs.inputs)
  return F.nll_loss(outputs, inputs.labels), outputs
end

local train_set, test_set = data.mnist(own.data, {announce = accelhost.PartialState().is_main_process})
if own.smoke then train_set, test_set = data.Subset(train_set, 0, 640), data.Subset(test_set, 0, 1000) end

local trainer = MnistTrainer {
  model_init = BasicNet, args = args, train_dataset = train_set, eval_dataset = test_set,
  preprocess_logits_for_metrics = function(logits) return logits:argmax(1) end,
  compute_metrics = function(p) return {accuracy = p.predictions:eq(p.label_ids):to("float64"):mean():item()} end,
}
trainer:train(args.resume_from_checkpoint)
trainer:save_model() -- for predict_digit.lua
local metrics = trainer:evaluate()
if trainer.state.is_world_process_zero and not own.quiet then
  print(("Accuracy: %.2f; weights and checkpoints in %s"):format(100 * metrics.eval_accuracy, args.output_dir))
end
