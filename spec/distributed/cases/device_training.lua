-- BasicNet in float64, each rank with its share of a batch: device_training.lua [cards] [steps]. With cards on CUDA
-- devices, as many in all, else on the CPU. Prints on rank 0 the loss of each step, over all ranks, to the last bit.
local accelhost = require "accelhost"
local nn, F, optim, dist = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.distributed
local cards, steps, share = tonumber(arg[1]) or 0, tonumber(arg[2]) or 3, 2

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
local device = cards > 0 and "cuda:" .. rank % cards or "cpu"

local Net = nn.Module:extend "BasicNet"
function Net:init()
  self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
  self.fc1, self.fc2 = nn.Linear(1024, 128), nn.Linear(128, 10)
end
function Net:forward(x)
  x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
  return F.log_softmax(self.fc2(F.relu(self.fc1(x:flatten(1)))), 1)
end

accelhost.manual_seed(1)
local inputs = accelhost.randn(steps, size * share, 1, 12, 12, {dtype = "float64"})
local labels = accelhost.randint(0, 10, {steps, size * share})
local net = nn.parallel.DistributedDataParallel(Net():to("float64"):to(device), {bucket_cap_mb = 0.25})
local optimizer = optim.AdamW(net:parameters(), {lr = 1e-2})
for step = 0, steps - 1 do
  local x = inputs[step]:narrow(0, rank * share, share):to(device)
  local y = labels[step]:narrow(0, rank * share, share):to(device)
  local loss = F.nll_loss(net(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  loss = loss:detach()
  dist.all_reduce(loss, "mean")
  if rank == 0 then print(("%.17g"):format(loss:item())) end
end
dist.destroy_process_group()
