-- Gathers of sharded parameters are ahead of their use, and no host waits for another's: device_sharding_ahead.lua
-- SIMULATOR KIND. Rank 1 begins its step when rank 0 has ended its step and its next forward. Prints the gathers that
-- rank 0 has queued since the step began as each block is about to run, and the losses.
local ffi = require "ffi"
ffi.cdef "const char *simulated_calls(void);"
local accelhost = require "accelhost"
local nn, optim, dist = accelhost.nn, accelhost.optim, accelhost.distributed
local simulator, kind = ffi.load((...)), select(2, ...)
dist.init_process_group()
local rank = dist.get_rank()

local function gathers() return tonumber(ffi.string(simulator.simulated_calls()):match "ncclAllGather (%d+)" or 0) end

local Block = nn.Module:extend "Block"
function Block:init() self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64) end
function Block:forward(x) return x + self.two(self.one(x):tanh()) end
local Net = nn.Module:extend "Net"
local counts, before
function Net:init() self.blocks = nn.ModuleList {Block(), Block(), Block(), Block()} end
function Net:forward(x)
  for i = 1, #self.blocks do
    if counts then counts[i] = gathers() - before end
    x = self.blocks[i](x)
  end
  return x
end

accelhost.manual_seed(5)
local accelerator = accelhost.Accelerator {sharding = kind}
local net = Net()
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters()))
local losses = {}
for step = 1, 5 do
  local meets = step == 4
  counts = meets and {} or nil
  accelhost.manual_seed(7 * step + rank)
  local loss = (model(accelhost.randn({2, 64}, {device = "cpu"}):to(accelerator.device)) - 1):square():mean()
  if meets and rank == 0 then
    print(table.concat(counts, " "))
    dist.send(accelhost.ones(1, {device = "cpu"}), 1)
  end
  accelerator:backward(loss)
  if step == 3 and rank == 1 then dist.recv(accelhost.zeros(1, {device = "cpu"}), 0) end
  before = gathers()
  optimizer:step()
  optimizer:zero_grad()
  losses[step] = loss:detach()
end
for step, loss in ipairs(losses) do losses[step] = ("%.9g"):format(accelerator:reduce(loss, "mean"):item()) end
accelerator:print(table.concat(losses, " "))
