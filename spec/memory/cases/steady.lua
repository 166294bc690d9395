-- usage: steady.lua basicnet|cnn|mlp WARM_UP STEPS: prints the system allocations of a steady step, the page faults of
-- the median step, and by how many bytes the resident size grew, each of the worst rank. The median, because a second
-- thread that the pool rested during the warm-up touches its scratch memory for the first time in a later step.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local kind, warm_up, steps = arg[1], tonumber(arg[2]), tonumber(arg[3])

local nets = {
  basicnet = function()
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
      nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
  end,
  cnn = function()
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4), nn.Dropout(0.25),
      nn.Flatten(), nn.Linear(144, 10))
  end,
  mlp = function()
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
  end,
}

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(1)
local model = nets[kind]()
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local set = data.TensorDataset(accelhost.randn(256, 1, 28, 28), accelhost.arange(256) % 10)
-- Long runs take small batches: growth is per step.
local batch_sizes = {basicnet = 64, cnn = 2, mlp = 16}
local loader = data.DataLoader(set, {batch_size = batch_sizes[kind], shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local before, faults_before
local faults = {}
local step = 0
while step < warm_up + steps do
  for images, labels in loader do
    accelerator:backward(F.cross_entropy(model(images), labels))
    optimizer:step()
    optimizer:zero_grad()
    step = step + 1
    if step == warm_up then
      collectgarbage()
      before = accelhost.memory_stats()
      faults_before = before.page_faults
    elseif step > warm_up then
      local faults_now = accelhost.memory_stats().page_faults
      faults[#faults + 1] = faults_now - faults_before
      faults_before = faults_now
    end
    if step == warm_up + steps then break end
  end
end
collectgarbage()
local after = accelhost.memory_stats()
local function tell(name, value)
  accelerator:print(name, accelerator:reduce(accelhost.tensor(value, {dtype = "float64"}), "max"):item())
end
tell("allocations_per_step", (after.system_calls - before.system_calls) / steps)
table.sort(faults)
tell("faults_of_the_median_step", faults[math.ceil(#faults / 2)])
tell("growth", after.rss - before.rss)
