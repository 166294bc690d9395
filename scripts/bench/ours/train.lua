--- The training rows: BasicNet or the 784-128-10 MLP on batches of 64, AdamW.
--
-- usage: accelhost [launch --num_processes N] train.lua NET STEPS BLOCKS [loader]
--
-- NET: mnist_cnn or mlp; STEPS a block, after 10 steps of warm-up. Batches are ready ones, or with `loader` those of a
-- shuffling DataLoader over 60,000 images of bytes. Rank 0 prints "name value" lines; times are medians over blocks.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local net, steps, blocks = arg[1], tonumber(arg[2]), tonumber(arg[3])
local use_loader = arg[4] == "loader"

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
  x = self.dropout1(F.max_pool2d(x, 2))
  x = F.relu(self.fc1(x:flatten(1)))
  return F.log_softmax(self.fc2(self.dropout2(x)), 1)
end

local Mlp = nn.Module:extend "Mlp"
function Mlp:init()
  self.fc1 = nn.Linear(784, 128)
  self.fc2 = nn.Linear(128, 10)
end

function Mlp:forward(x)
  return F.log_softmax(self.fc2(F.relu(self.fc1(x:flatten(1)))), 1)
end

--- Peak resident memory of this process in MiB.
local function peak_memory_mb()
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^VmHWM:%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) / 1024 end
  end
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(1)
local model = net == "mnist_cnn" and BasicNet() or Mlp()
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local loader
if use_loader then
  local transforms = data.transforms
  local normalise = transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)}
  local set = data.SyntheticDigits {size = 60000, transform = normalise}
  loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
else
  model, optimizer = accelerator:prepare(model, optimizer)
end

-- next_batch() -> images, labels
local next_batch
if use_loader then
  local iterate = coroutine.wrap(function()
    while true do
      for images, labels in loader do coroutine.yield(images, labels) end
    end
  end)
  next_batch = iterate
else
  local batches, turn = {}, 0
  for i = 1, 16 do batches[i] = {accelhost.randn(64, 1, 28, 28), accelhost.randint(0, 10, {64})} end
  next_batch = function()
    turn = turn % 16 + 1
    return batches[turn][1], batches[turn][2]
  end
end

local function step()
  local images, labels = next_batch()
  local loss = F.nll_loss(model(images), labels)
  optimizer:zero_grad()
  accelerator:backward(loss)
  optimizer:step()
end

step()
local first = now() - (tonumber(os.getenv("BENCH_START")) or 0 / 0)
for _ = 1, 10 do step() end
local times = {}
for block = 1, blocks do
  local begin = now()
  for _ = 1, steps do step() end
  times[block] = (now() - begin) / steps
end
table.sort(times)
local typical = times[math.floor(#times / 2) + 1]
local memory = accelerator:gather(accelhost.tensor {peak_memory_mb()}):max():item()
if accelerator.is_main_process then
  print("first_step_s", first)
  print("step_ms", typical * 1e3)
  print("items_per_s", 64 * accelerator.num_processes / typical)
  print("peak_mb", memory)
end
