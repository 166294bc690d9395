--- A training step of an image model with random weights: forward, backward and SGD with momentum.
--- usage: vision.lua MODEL BATCH SIZE BLOCKS [DTYPE]      DTYPE: float32 or bfloat16 (autocast)
--
-- peers/vision.py documents the measurement and does the same.
local accelhost = require "accelhost"
local models, optim, F = accelhost.models, accelhost.optim, accelhost.nn.functional
local timing = require "timing"

local name, batch, size, blocks = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
local dtype = arg[5] or "float32"
accelhost.manual_seed(1)
local model = models.create_model(name, {num_classes = 100})
local optimizer = optim.SGD(model:parameters(), {lr = 0.01, momentum = 0.9})
local images = accelhost.randn(batch, 3, size, size)
local labels = accelhost.randint(0, 100, {batch})

timing.steps(blocks, function()
  accelhost.autocast("cpu", {dtype = "bfloat16", enabled = dtype ~= "float32"}, function()
    return F.cross_entropy(model(images), labels)
  end):backward()
  optimizer:step()
  optimizer:zero_grad()
end)
