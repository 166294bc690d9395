-- All of it in one script: accumulation, mixed precision, clipping, a schedule, trackers, evaluation over all
-- processes, early stopping, and checkpoints from which a killed run resumes.
--
--   accelhost examples/complete_mnist.lua --epochs 3
--   accelhost launch --num_processes 2 examples/complete_mnist.lua --resume
--   accelhost plot runs/complete_mnist
--
-- Each part by itself is in examples/by_feature/. Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains BasicNet on MNIST with everything that a real run has.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"project_dir", "runs/complete_mnist", "folder of checkpoints and logs", type = "string", metavar = "DIR"},
  {"resume", false, "resume from the newest checkpoint, if there is one"},
  {"mixed_precision", "no", "precision of the forward pass", choices = {"no", "bf16", "fp16"}},
  {"gradient_accumulation_steps", 2, "batches of each process in an optimizer step", integer = true, minimum = 1},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 32, "images per process and batch", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate at the start"},
  {"save_every", 500, "batches between two checkpoints", integer = true, minimum = 1},
  {"patience", 2, "passes without a better accuracy before it stops", integer = true, minimum = 1},
  {"log_with", "jsonl", "tracker", choices = {"tensorboard", "jsonl", "csv", "all"}},
  {"seed", 1, "seed of weights, shuffling and dropout", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
}
if args.smoke then args.epochs, args.save_every = 1, 10 end

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
  return self.fc2(self.dropout2(F.relu(self.fc1(x))))
end

local accelerator = accelhost.Accelerator {
  mixed_precision = args.mixed_precision, gradient_accumulation_steps = args.gradient_accumulation_steps,
  log_with = args.log_with,
  project_config = {project_dir = args.project_dir, automatic_checkpoint_naming = true, total_limit = 2},
}
accelhost.set_seed(args.seed)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
if args.smoke then train_set, test_set = data.Subset(train_set, 0, 640), data.Subset(test_set, 0, 500) end

local model = BasicNet()
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
local windows = math.ceil(#train_loader / args.gradient_accumulation_steps)
local scheduler = accelerator:prepare(optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * windows))

-- The state of the run in addition to its models; saved and loaded with them.
local run = {batch = 0, best = 0, without_better = 0}
function run:state_dict() return {batch = self.batch, best = self.best, without_better = self.without_better} end
function run:load_state_dict(state)
  self.batch, self.best, self.without_better = state.batch, state.best, state.without_better
end
accelerator:register_for_checkpointing(run)

if args.resume then
  local folder = accelerator:load_state() -- false when there is none yet
  accelerator:print(folder and ("resumes after batch %d from %s"):format(run.batch, folder) or "starts from scratch")
end
accelerator:init_trackers("logs", {lr = args.lr, batch_size = args.batch_size, seed = args.seed},
  args.log_with == "jsonl" and {jsonl = {purge_step = run.batch + 1}} or nil)
accelerator:save_on_signal()

local function train(epoch)
  model:train()
  local bar = accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch + 1, args.epochs)})
  for images, labels in bar do
    local loss, norm
    accelerator:accumulate(model, function()
      loss = F.cross_entropy(model(images), labels)
      accelerator:backward(loss, {weight = #images})
      norm = accelerator:clip_grad_norm_(model:parameters(), 1) -- nil within a window
      optimizer:step()
      scheduler:step()
      optimizer:zero_grad()
    end)
    run.batch = run.batch + 1
    if norm and run.batch % 10 == 0 then
      local mean = accelerator:reduce(loss:detach(), "mean")
      accelerator:log({loss = mean, norm = norm, lr = scheduler:get_last_lr()[1]}, {step = run.batch})
    end
    if accelerator:check_signal() then return false end -- it has saved
    if run.batch % args.save_every == 0 then accelerator:save_state {async = true} end
  end
  return true
end

local function evaluate()
  model:eval()
  local correct, count = 0, 0
  accelhost.no_grad(function()
    for images, labels in test_loader do
      local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
      correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
    end
  end)
  return 100 * correct / count
end

-- loader.epoch is the pass to resume, and the first `for` iterates over the rest of it.
for epoch = train_loader.epoch, args.epochs - 1 do
  if not train(epoch) then os.exit(0) end
  local accuracy = evaluate()
  accelerator:log({accuracy = accuracy}, {step = run.batch})
  run.without_better = accuracy > run.best and 0 or run.without_better + 1
  run.best = math.max(run.best, accuracy)
  accelerator:save_state()
  if run.without_better >= args.patience then break end
end
accelerator:end_training()
accelerator:print(("Accuracy: %.2f at best, %d batches of each process; checkpoints and logs in %s"):format(run.best,
  run.batch, args.project_dir))
