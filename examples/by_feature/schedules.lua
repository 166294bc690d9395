-- Learning rates that follow the optimizer's steps, whatever the number of processes and the accumulation.
--
-- A prepared scheduler steps once when the optimizer does, so a schedule is planned in optimizer steps. A script that
-- planned for Accelerate, whose schedulers step once per process, sets scheduler_steps = "per_process".
--
--   accelhost launch --num_processes 2 examples/by_feature/schedules.lua --schedule linear --per_process
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits under a schedule of learning rates.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"schedule", "cosine", "shape of the schedule", choices = {"constant_with_warmup", "linear", "cosine", "one_cycle"}},
  {"per_process", false, "plan and step as Accelerate does"},
  {"gradient_accumulation_steps", 2, "batches of each process in an optimizer step", integer = true, minimum = 1},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"lr", 5e-3, "highest rate"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1000 end

local accelerator = accelhost.Accelerator {
  gradient_accumulation_steps = args.gradient_accumulation_steps,
  scheduler_steps = args.per_process and "per_process" or "optimizer",
}
accelhost.set_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = 16, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

-- The prepared loader's length is this process's; the last window of a pass may be short.
local steps = args.epochs * math.ceil(#train_loader / args.gradient_accumulation_steps)
local planned = args.per_process and steps * accelerator.num_processes or steps
local scheduler
if args.schedule == "one_cycle" then
  scheduler = optim.lr_scheduler.OneCycleLR(optimizer, {max_lr = args.lr, total_steps = planned})
else
  scheduler = optim.get_scheduler(args.schedule, optimizer,
    {num_warmup_steps = math.floor(planned / 10), num_training_steps = planned})
end
scheduler = accelerator:prepare(scheduler)

local rates = {}
for _ = 1, args.epochs do
  for images, labels in train_loader do
    accelerator:accumulate(model, function()
      rates[#rates + 1] = scheduler:get_last_lr()[1]
      accelerator:backward(F.cross_entropy(model(images), labels))
      optimizer:step()
      scheduler:step()
      optimizer:zero_grad()
    end)
  end
end
for i = 1, 5 do
  local at = math.floor((#rates - 1) * (i - 1) / 4) + 1
  accelerator:print(("batch %4d: rate %.5f"):format(at, rates[at]))
end
accelerator:print(("%d optimizer steps; the rate at the end is %.5f"):format(steps, scheduler:get_last_lr()[1]))

local correct, count = 0, 0
model:eval()
accelhost.no_grad(function()
  for images, labels in test_loader do
    local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
    correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / count))
