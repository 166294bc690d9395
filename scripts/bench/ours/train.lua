--- The training rows: a net of nets.lua, AdamW.
--
-- usage: accelhost [launch --num_processes N] train.lua NET STEPS BLOCKS [loader | compiled]
--
-- STEPS a block, after a warm-up of 10 steps (2 for resnet18). Batches are ready ones, or with `loader` those of a
-- shuffling DataLoader over 60,000 images of bytes. With `compiled` the step is one of accelerator:compile. Rank 0
-- prints "name value" lines; times are medians over blocks.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now
local optim, data = accelhost.optim, accelhost.data
package.path = (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/?.lua;" .. package.path
local nets = require "nets"

local net, steps, blocks = arg[1], tonumber(arg[2]), tonumber(arg[3])
local use_loader = arg[4] == "loader"

--- Peak resident memory of this process in MiB.
local function peak_memory_mb()
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^VmHWM:%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) / 1024 end
  end
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(1)
local workload = assert(nets[net], "no such net")
local model = workload.make()
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
  for i = 1, 16 do batches[i] = {workload.batch()} end
  next_batch = function()
    turn = turn % 16 + 1
    return batches[turn][1], batches[turn][2]
  end
end

local function train(input, labels)
  local loss = workload.loss(model, input, labels)
  optimizer:zero_grad()
  accelerator:backward(loss)
  optimizer:step()
end
if arg[4] == "compiled" then train = accelerator:compile(train) end
local function step() train(next_batch()) end

step()
local first = now() - (tonumber(os.getenv("BENCH_START")) or 0 / 0)
for _ = 1, net:find "resnet" and 2 or 10 do step() end
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
  print("items_per_s", workload.batch_size * accelerator.num_processes / typical)
  print("peak_mb", memory)
end
