--- A training step of an image model with random weights: forward, backward and SGD with momentum.
--- usage: vision.lua MODEL BATCH SIZE BLOCKS
--
-- peers/vision.py documents the measurement and does the same.
local accelhost = require "accelhost"
local models, optim, F = accelhost.models, accelhost.optim, accelhost.nn.functional

local name, batch, size, blocks = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
accelhost.manual_seed(1)
local model = models.create_model(name, {num_classes = 100})
local optimizer = optim.SGD(model:parameters(), {lr = 0.01, momentum = 0.9})
local images = accelhost.randn(batch, 3, size, size)
local labels = accelhost.randint(0, 100, {batch})

local times = {}
for block = 0, blocks do
  local begin = os.clock()
  local loss = F.cross_entropy(model(images), labels)
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
  if block > 0 then times[block] = os.clock() - begin end
end
table.sort(times)
print("step_ms", 1e3 * times[math.floor(#times / 2) + 1])
print("peak_mb", accelhost.memory_stats().max_rss / 2 ^ 20)
