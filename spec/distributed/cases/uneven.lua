-- Batches of unequal sizes over the processes. usage: uneven.lua weighted|unweighted
local accelhost = require "accelhost"
local nn, data = accelhost.nn, accelhost.data

local accelerator = accelhost.Accelerator {even_batches = false}
local samples = 4 * accelerator.num_processes + 4 * (accelerator.num_processes - 1) + 2
local model, loader = accelerator:prepare(nn.Linear(2, 1),
  data.DataLoader(data.TensorDataset(accelhost.ones(samples, 2)), {batch_size = 4}))
for batch in loader do
  accelerator:backward(model(batch):sum(), arg[1] == "weighted" and {weight = #batch} or nil)
end
