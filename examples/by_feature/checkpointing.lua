-- A run that can be killed at any moment and resumes to the bit: the state is saved every few steps and loaded first.
--
--   accelhost examples/by_feature/checkpointing.lua
--   accelhost examples/by_feature/checkpointing.lua --resume      -- after Ctrl-C, kill -9, ...
--   accelhost launch --num_processes 2 --max_restarts 3 examples/by_feature/checkpointing.lua --resume
--
-- SIGTERM and SIGUSR1 stop it with a checkpoint. The last line is the SHA-256 of the weights, the state dict's tensors
-- in the order of their names: it is the same however often the run was interrupted. Trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains the tutorial's network and saves its whole state every few steps.",
  {"project_dir", "runs/checkpointing", "folder of the checkpoints", type = "string", metavar = "DIR"},
  {"resume", false, "resume from the newest checkpoint, if there is one"},
  {"epochs", 2, "passes over the training set", integer = true, minimum = 1},
  {"save_every", 5, "steps between two checkpoints", integer = true, minimum = 1},
  {"total_limit", 2, "checkpoints that are kept", integer = true, minimum = 1},
  {"async", false, "continue while a checkpoint is written"},
  {"train_size", 1280, "train on the first N images", integer = true, minimum = 1},
  {"batch_size", 32, "images per process and batch", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 320 end

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
  gradient_accumulation_steps = 2,
  project_config = {
    project_dir = args.project_dir, automatic_checkpoint_naming = true, total_limit = args.total_limit,
  },
}
accelhost.set_seed(1)
local model = BasicNet()
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local scheduler = optim.lr_scheduler.StepLR(optimizer, 30, 0.7)
local set = data.SyntheticDigits {size = args.train_size}
local loader = data.DataLoader(set, {batch_size = args.batch_size, shuffle = true})
model, optimizer, scheduler, loader = accelerator:prepare(model, optimizer, scheduler, loader)

-- Register the other state.
local progress = {step = 0, correct = 0, seen = 0}
function progress:state_dict() return {step = self.step, correct = self.correct, seen = self.seen} end
function progress:load_state_dict(state) self.step, self.correct, self.seen = state.step, state.correct, state.seen end
accelerator:register_for_checkpointing(progress)

if args.resume then
  local folder = accelerator:load_state() -- false when there is none yet
  accelerator:print(folder and ("resumes after step %d from %s"):format(progress.step, folder) or "starts from scratch")
end
accelerator:save_on_signal()

-- loader.epoch is the pass to resume, and the first `for` iterates over the rest of it.
for _ = loader.epoch, args.epochs - 1 do
  for images, labels in loader do
    accelerator:accumulate(model)
    local scores = model(images)
    accelerator:backward(F.cross_entropy(scores, labels), {weight = #images})
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    local right = accelerator:gather_for_metrics(scores:argmax(1):eq(labels))
    progress.step = progress.step + 1
    progress.correct, progress.seen = progress.correct + right:sum():item(), progress.seen + #right
    if accelerator:check_signal() then os.exit(0) end -- it has saved
    if progress.step % args.save_every == 0 then accelerator:save_state {async = args.async} end
  end
end
accelerator:wait_for_checkpoint()
accelerator:print(("Accuracy: %.2f while training, %d steps; checkpoints in %s"):format(
  100 * progress.correct / progress.seen, progress.step, args.project_dir))
accelerator:print("weights: " .. accelhost.sha256(model:state_dict()))
