-- Numbers, images and histograms of a run, kept for TensorBoard and for accelhost plot.
--
--   accelhost launch --num_processes 2 examples/by_feature/tracking.lua
--   accelhost plot runs/mnist                          # the curves, here
--   accelhost plot runs/mnist -o curves.svg --smooth 0.6
--   tensorboard --logdir runs                          # where Python's TensorBoard is installed
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits and keeps track of it.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"project_dir", "runs/tracking", "folder of the logs", metavar = "DIR"},
  {"log_with", "all", "trackers that write the logs", choices = {"all", "tensorboard", "jsonl", "csv"}},
  {"batch_size", 64, "images per process", integer = true, minimum = 1},
  {"train_size", 8000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"lr", 2e-3, "learning rate"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 2, 1000 end

local accelerator = accelhost.Accelerator {log_with = args.log_with, project_dir = args.project_dir}
-- The main process makes runs/mnist; on the others this and all that follows of trackers does nothing.
accelerator:init_trackers("mnist", {lr = args.lr, batch_size = args.batch_size, epochs = args.epochs})

accelhost.set_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
local model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(576, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local function evaluate()
  local correct, count = 0, 0
  model:eval()
  accelhost.no_grad(function()
    for images, labels in test_loader do
      local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
      correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
    end
  end)
  model:train()
  return correct / count
end

local step, accuracy = 0, 0
for epoch = 1, args.epochs do
  for images, labels in train_loader do
    local loss = F.cross_entropy(model(images), labels)
    accelerator:backward(loss)
    local norm = accelerator:clip_grad_norm_(model:parameters(), 5)
    optimizer:step()
    optimizer:zero_grad()
    -- A collective is called by every process, so it is outside of the code of one process.
    if step % 5 == 0 then
      local mean = accelerator:reduce(loss:detach(), "mean")
      accelerator:log({["train/loss"] = mean, ["train/gradient"] = norm, epoch = epoch}, {step = step})
    end
    step = step + 1
  end
  accuracy = evaluate()
  accelerator:log({["valid/accuracy"] = accuracy, epoch = epoch}, {step = step})
  -- Values that only one tracker can store are passed to it: its SummaryWriter has PyTorch's methods.
  if args.log_with == "all" or args.log_with == "tensorboard" then
    local writer = accelerator:get_tracker("tensorboard", {unwrap = true})
    for name, weight in model:named_parameters() do writer:add_histogram(name, weight, step) end
  end
end
accelerator:end_training()
accelerator:print(("Accuracy: %.2f; logs in %s"):format(100 * accuracy, args.project_dir))
