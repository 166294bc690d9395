-- A small network on MNIST that reports its accuracy after every epoch: for sweeps (sweep_mnist.lua), but also runs
-- alone.
--
--   accelhost examples/mnist_mlp.lua --lr 0.003
--   accelhost sweep examples/sweep_mnist.lua -j 2
--   accelhost launch --params sweep_mnist.study/best.yaml examples/mnist_mlp.lua
--
-- Without MNIST it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.args {
  lr = 1e-3, batch_size = 64, hidden = 128, dropout = 0.1, epochs = 9, seed = 1, train_size = 20000, test_size = 10000,
  optimizer = {name = "adamw", momentum = 0.9, weight_decay = 0.01},
  checkpoints = "", -- a folder: the run is saved after every epoch, and resumes from there
  smoke = false,
}
if args.smoke then args.epochs, args.train_size, args.test_size = 2, 640, 500 end

local accelerator = accelhost.Accelerator {project_config = args.checkpoints ~= "" and {
  project_dir = args.checkpoints, automatic_checkpoint_naming = true, total_limit = 1,
} or nil}
accelhost.set_seed(args.seed)

local train_set, test_set = data.mnist(nil, {announce = accelerator.is_main_process})
local train_loader = data.DataLoader(data.Subset(train_set, 0, args.train_size),
  {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(data.Subset(test_set, 0, args.test_size), {batch_size = 500})

local model = nn.Sequential(nn.Flatten(), nn.Linear(784, args.hidden), nn.ReLU(), nn.Dropout(args.dropout),
  nn.Linear(args.hidden, 10))
local optimizer = args.optimizer.name == "sgd"
  and optim.SGD(model:parameters(), {lr = args.lr, momentum = args.optimizer.momentum})
  or optim.AdamW(model:parameters(), {lr = args.lr, weight_decay = args.optimizer.weight_decay})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local progress = {epoch = 0, accuracy = 0}
function progress:state_dict() return {epoch = self.epoch, accuracy = self.accuracy} end
function progress:load_state_dict(state) self.epoch, self.accuracy = state.epoch, state.accuracy end
accelerator:register_for_checkpointing(progress)

local function accuracy()
  local correct, count = 0, 0
  model:eval()
  accelhost.no_grad(function()
    for images, labels in test_loader do
      local predictions, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
      correct, count = correct + predictions:eq(truth):sum():item(), count + #truth
    end
  end)
  return 100 * correct / count
end

-- A trial that was interrupted between a checkpoint and its report reports again: the sweep ignores a known report.
if args.checkpoints ~= "" and accelerator:load_state() then
  accelhost.report(progress.epoch, {accuracy = progress.accuracy})
end

for epoch = progress.epoch + 1, args.epochs do
  model:train()
  local last
  for images, labels in train_loader do
    last = F.cross_entropy(model(images), labels)
    accelerator:backward(last)
    optimizer:step()
    optimizer:zero_grad()
  end
  progress.epoch, progress.accuracy = epoch, accuracy()
  accelerator:print(("epoch %d: accuracy %.2f"):format(epoch, progress.accuracy))
  if args.checkpoints ~= "" then accelerator:save_state() end
  accelhost.report(epoch, {accuracy = progress.accuracy, loss = last})
end
accelerator:print(("Accuracy: %.2f"):format(progress.accuracy))
