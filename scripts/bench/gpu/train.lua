--- A training step on a CUDA device. usage: train.lua NET BATCH DTYPE MODE [smoke]
--
-- NET: one of nets.lua; DTYPE: float32 or bfloat16 (autocast); MODE: eager, or compile (accelerator:compile, a graph).
-- Prints "name value" lines: step_ms is the median over blocks of steps, each block between two waits for the device
-- and long enough that these do not count. `loss` is the last one, to see that it is a number. With KERNELS=1 in the
-- environment the times of kernels in five further steps follow.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now

local here = arg[0]:match "^(.*)/[^/]*$"
local nets = dofile(here .. "/nets.lua")
local net, batch, dtype, mode, smoke = arg[1], tonumber(arg[2]), arg[3], arg[4], arg[5] == "smoke"
local BLOCK_SECONDS, BLOCKS = smoke and 0 or 0.4, smoke and 1 or 7

accelhost.set_default_device "cuda"
accelhost.manual_seed(1)
local accelerator = accelhost.Accelerator {mixed_precision = dtype == "bfloat16" and "bf16" or "no"}
local work = nets[net](batch, smoke)
local model, optimizer = accelerator:prepare(work.model, work.optimizer)

local function step()
  local loss = accelerator:autocast(work.loss)
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  return loss
end
if mode == "compile" then step = accelerator:compile(step) end

local function timed(count)
  accelhost.synchronize "cuda"
  local begin, loss = now()
  for _ = 1, count do loss = step() end
  accelhost.synchronize "cuda"
  return (now() - begin) / count, loss
end

model:train()
local warm_up = smoke and 3 or 10
timed(warm_up)
local count = math.max(1, math.ceil(BLOCK_SECONDS / timed(smoke and 1 or 5)))
local times, loss = {}
for block = 1, BLOCKS do times[block], loss = timed(count) end
table.sort(times)
local typical = times[math.floor(BLOCKS / 2) + 1]

local value = loss:item()
assert(value == value and math.abs(value) < 1e6, "the loss is " .. value)
print("step_ms", 1e3 * typical)
print("spread", (times[BLOCKS] - times[1]) / typical)
print("items_per_s", work.items / typical)
print("peak_mb", accelhost.memory_stats("cuda").peak / 2 ^ 20)
print("loss", value)
if work.operations then print("operations_per_item", work.operations) end
if os.getenv "KERNELS" then
  local steps = 5
  local prof = accelhost.profiler.profile({activities = {"cuda"}}, function() timed(steps) end)
  print(prof:kernel_table {row_limit = 40, steps = steps})
end
