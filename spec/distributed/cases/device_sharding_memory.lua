-- Bytes of a device for a model of equal blocks with a kind of sharding, "+cpu" with optimizer state on the host:
-- device_sharding_memory.lua full+cpu. Prints the bytes of a parameter after a step, and at most during one.
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local WIDTH, BLOCKS = 128, 8
local Block = nn.Module:extend "Block"
function Block:init() self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH) end
function Block:forward(x) return x + self.two(self.one(x):tanh()) end
local Net = nn.Module:extend "Net"
function Net:init()
  self.blocks = nn.ModuleList {}
  for i = 1, BLOCKS do self.blocks[i] = Block() end
end
function Net:forward(x)
  for i = 1, #self.blocks do x = self.blocks[i](x) end
  return x
end

local sharding, offloaded = arg[1]:match "^(%l+)(.*)$"
local accelerator = accelhost.Accelerator {sharding = sharding,
  offload_optimizer_device = offloaded ~= "" and "cpu" or "none",
  kwargs_handlers = {accelhost.DistributedDataParallelKwargs {bucket_cap_mb = 0.1}}}
local before = accelhost.cuda.memory_allocated(accelerator.device)
local net = Net()
local count = 0
for _, parameter in ipairs(net:parameters()) do count = count + parameter:numel() end
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters()))
local x = accelhost.ones(1, WIDTH):to(accelerator.device)
for step = 1, 3 do
  if step == 2 then accelhost.cuda.reset_peak_memory_stats(accelerator.device) end
  accelerator:backward(model(x):sum())
  optimizer:step()
  optimizer:zero_grad()
end
collectgarbage()
local function of_parameter(bytes) return (bytes - before) / count end
accelerator:print(("%.2f %.2f"):format(of_parameter(accelhost.cuda.memory_allocated(accelerator.device)),
  of_parameter(accelhost.cuda.max_memory_allocated(accelerator.device))))
