-- The first script of Hugging Face's tutorial "From PyTorch DDP to Accelerate to Trainer": MNIST with
-- DistributedDataParallel, spelt out.
--
--   accelhost launch --num_processes 2 examples/mnist_ddp.lua
--
-- Two things that the original leaves out are here: every process trains on its part of the images
-- (DistributedSampler), so that N processes need a part of the time and not N times the work, and the accuracy is that
-- of all test images, added up over the processes and printed once. mnist.lua is the same with an accelerator.
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local dist = accelhost.distributed

local args = accelhost.parse_args {
  description = "Trains BasicNet on MNIST with DistributedDataParallel.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 1, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights, shuffling and dropout", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
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
  x = F.relu(self.conv1(x))
  x = F.relu(self.conv2(x))
  x = F.max_pool2d(x, 2)
  x = self.dropout1(x)
  x = x:flatten(1)
  x = F.relu(self.fc1(x))
  x = self.dropout2(x)
  return F.log_softmax(self.fc2(x), 1)
end

-- A loader of this process's share. The shares of a test set must not overlap: then no image counts twice.
local function test_share(set, rank, world_size)
  local mine = {}
  for i = rank, #set - 1, world_size do mine[#mine + 1] = i end
  return data.DataLoader(set, {batch_size = args.batch_size, sampler = mine})
end

local function train(model, loader, optimizer)
  model:train()
  for images, labels in accelhost.progress(loader, {disable = dist.get_rank() > 0}) do
    local loss = F.nll_loss(model(images), labels)
    optimizer:zero_grad()
    loss:backward() -- averages the gradients over the processes meanwhile
    optimizer:step()
  end
end

-- The fraction of all processes' test images that the model classifies correctly.
local function accuracy(model, loader)
  model:eval()
  local counts = accelhost.zeros(2, {dtype = "int64"}) -- right ones, all
  accelhost.no_grad(function()
    for images, labels in loader do
      counts[0] = counts[0] + model(images):argmax(1):eq(labels):sum()
      counts[1] = counts[1] + #labels
    end
  end)
  dist.all_reduce(counts)
  return counts[0]:item() / counts[1]:item()
end

dist.init_process_group "gloo"
local rank, world_size = dist.get_rank(), dist.get_world_size()
accelhost.manual_seed(args.seed)

local train_set, test_set = data.mnist(args.data)
if args.smoke then
  train_set, test_set = data.Subset(train_set, 0, 640), data.Subset(test_set, 0, 1000)
end
local sampler = data.DistributedSampler(train_set, {seed = args.seed})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, sampler = sampler})
local test_loader = test_share(test_set, rank, world_size)

local model = dist.DistributedDataParallel(BasicNet())
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
for epoch = 0, args.epochs - 1 do
  sampler:set_epoch(epoch) -- another order in each
  train(model, train_loader, optimizer)
end

local result = accuracy(model, test_loader)
if rank == 0 then print(("Accuracy: %.2f"):format(100 * result)) end
dist.destroy_process_group()
