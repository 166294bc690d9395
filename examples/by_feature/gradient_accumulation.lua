-- One optimizer step from several batches: `accumulate` makes the gradient the mean over a window of micro-steps, also
-- when the last window of a pass is short.
--
--   accelhost examples/by_feature/gradient_accumulation.lua --gradient_accumulation_steps 4
--   accelhost launch --num_processes 2 examples/by_feature/gradient_accumulation.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits with accumulated gradients.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"gradient_accumulation_steps", 4, "batches of each process in an optimizer step", integer = true, minimum = 1},
  {"batch_size", 16, "images per process and batch", integer = true, minimum = 1},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"lr", 2e-3, "learning rate"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1000 end

local accelerator = accelhost.Accelerator {gradient_accumulation_steps = args.gradient_accumulation_steps}
accelhost.set_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)

local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local batches, steps = 0, 0
for _ = 1, args.epochs do
  for images, labels in train_loader do
    accelerator:accumulate(model, function()
      -- Not divided by the steps: the accelerator computes the mean, by images since the last batch is smaller.
      accelerator:backward(F.cross_entropy(model(images), labels), {weight = #images})
      if accelerator.sync_gradients then
        accelerator:clip_grad_norm_(model:parameters(), 1)
        steps = steps + 1
      end
      optimizer:step() -- steps at the end of a window only, and so does zero_grad
      optimizer:zero_grad()
    end)
    batches = batches + 1
  end
end
accelerator:print(("%d batches, %d optimizer steps"):format(batches, steps))

local correct, count = 0, 0
model:eval()
accelhost.no_grad(function()
  for images, labels in test_loader do
    local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
    correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / count))
