-- Communication hooks: smaller tensors are sent in place of the gradients, to save bytes between processes.
--
--   accelhost launch --num_processes 2 examples/by_feature/ddp_comm_hook.lua --hook bf16
--   accelhost launch --num_processes 2 examples/by_feature/ddp_comm_hook.lua --hook power_sgd
--
-- A hook receives a bucket of gradients during backward and returns their new values: `sign` is a custom one. Without
-- MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local dist = accelhost.distributed
local comm_hooks = dist.algorithms.ddp_comm_hooks

local args = accelhost.parse_args {
  description = "Trains a classifier of digits with compressed gradients.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"hook", "power_sgd", "communication hook", choices = {"none", "fp16", "bf16", "power_sgd", "sign"}},
  {"rank", 2, "columns of PowerSGD's matrices", integer = true, minimum = 1},
  {"batch_size", 32, "images per process and step", integer = true, minimum = 1},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"lr", 2e-3, "learning rate"},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1000 end

dist.init_process_group "gloo"
accelhost.manual_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = dist.get_rank() == 0})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)
local sampler = data.DistributedSampler(train_set)
local loader = data.DataLoader(train_set, {batch_size = args.batch_size, sampler = sampler})

local model = dist.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(),
  nn.Linear(64, 10)))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})

-- One number and the signs of the rest: the mean over the processes of each one's sign times its mean size.
local function sign(_, bucket)
  local buffer = bucket:buffer()
  buffer:copy_(buffer:sign() * buffer:abs():mean()):div_(dist.get_world_size())
  return dist.all_reduce(buffer, {async_op = true})
end

local state
if args.hook == "power_sgd" then
  state = comm_hooks.powerSGD_hook.PowerSGDState {matrix_approximation_rank = args.rank, start_powerSGD_iter = 10}
  model:register_comm_hook(state, comm_hooks.powerSGD_hook.powerSGD_hook)
elseif args.hook == "sign" then
  model:register_comm_hook(nil, sign)
elseif args.hook ~= "none" then
  model:register_comm_hook(nil, comm_hooks.default_hooks[args.hook .. "_compress_hook"])
end

for epoch = 0, args.epochs - 1 do
  sampler:set_epoch(epoch)
  for images, labels in loader do
    F.cross_entropy(model(images), labels):backward()
    optimizer:step()
    optimizer:zero_grad()
  end
end

-- Every process has the same weights, so one of them can try them.
if dist.get_rank() == 0 then
  model:eval()
  local correct = 0
  accelhost.no_grad(function()
    for images, labels in data.DataLoader(test_set, {batch_size = 100}) do
      correct = correct + model(images):argmax(1):eq(labels):sum():item()
    end
  end)
  local rate = state and state:compression_stats() or 0
  print(("Accuracy: %.2f%s"):format(100 * correct / #test_set,
    rate > 0 and (", gradients compressed %.1f times"):format(rate) or ""))
end
dist.destroy_process_group()
