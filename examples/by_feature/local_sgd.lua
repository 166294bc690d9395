-- Processes that train by themselves and take the mean of their weights every few steps: less is sent.
--
--   accelhost launch --num_processes 2 examples/by_feature/local_sgd.lua --local_sgd_steps 8
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits with LocalSGD.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"local_sgd_steps", 8, "optimizer steps between two means", integer = true, minimum = 1},
  {"gradient_accumulation_steps", 1, "batches of each process in an optimizer step", integer = true, minimum = 1},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1000 end

local accelerator = accelhost.Accelerator {gradient_accumulation_steps = args.gradient_accumulation_steps}
accelhost.set_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
local train_loader = data.DataLoader(train_set, {batch_size = 16, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

-- Return the distance between the processes' weights.
local function spread()
  local all = accelerator:gather(model[2].weight:detach():reshape(1, -1))
  return (all - all:mean(0, true)):abs():max():item()
end

local apart = 0
local local_sgd = accelhost.LocalSGD(accelerator, model, args.local_sgd_steps)
local_sgd:run(function()
  for _ = 1, args.epochs do
    for images, labels in train_loader do
      accelerator:accumulate(model)
      accelerator:backward(F.cross_entropy(model(images), labels))
      optimizer:step()
      optimizer:zero_grad()
      if accelerator.sync_gradients then
        if local_sgd.num_steps % args.local_sgd_steps == args.local_sgd_steps - 1 then apart = spread() end
        local_sgd:step()
      end
    end
  end
end)
accelerator:print(("%d steps; weights were %.4f apart before a mean"):format(local_sgd.num_steps, apart))
assert(spread() == 0)

local correct, count = 0, 0
model:eval()
accelhost.no_grad(function()
  for images, labels in test_loader do
    local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
    correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / count))
