-- Trains on the CUDA device of the rank, each rank on its share of the same batches, and prints the mean losses; ranks
-- share a card where there are fewer.
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local accelerator = accelhost.Accelerator()
local rank, size = accelerator.process_index, accelerator.num_processes
local device = accelerator.device
assert(device:find "^cuda:", "expected a CUDA device, got " .. device)
accelhost.manual_seed(1)
local net = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 3)):to "float64"
local optimizer = optim.AdamW(net:parameters(), {lr = 1e-2})
net, optimizer = accelerator:prepare(net, optimizer)
for step = 1, 8 do
  accelhost.manual_seed(step)
  local x = accelhost.randn({8, 9}, {dtype = "float64", device = "cpu"})
  local y = accelhost.randint(0, 3, {8}, {device = "cpu"})
  local rows = 8 / size
  local loss = F.cross_entropy(net(x:narrow(0, rank * rows, rows):to(device)),
    y:narrow(0, rank * rows, rows):to(device))
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  accelerator:print(("%d %.17g"):format(step, accelerator:reduce(loss:detach(), "mean"):item()))
end
-- The parameters of all ranks are the same to the bit.
for _, parameter in ipairs(net:parameters()) do
  local here = parameter:detach()
  local all = accelerator:gather(here:reshape(1, -1)):cpu()
  for r = 1, size - 1 do assert(all[r]:eq(all[0]):all():item(), "rank " .. r .. " has other weights") end
end
