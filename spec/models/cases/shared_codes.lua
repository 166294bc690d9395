-- The codes of quantised weights after prepare: rank 0's on all ranks, in memory that they have in common.
local accelhost = require "accelhost"
local nn = accelhost.nn

local accelerator = accelhost.Accelerator {sharding = os.getenv "SHARDING" or "none"}
local rank = accelerator.process_index
accelhost.manual_seed(rank)
local width = os.getenv "UNEQUAL" and 64 + 64 * rank or 64
local quantised = {nn.Linear4bit(width, 32, {bias = false}), nn.Linear8bitLt(width, 32, {bias = false})}
local model = accelerator:prepare(nn.Sequential(nn.Linear(2, 2), unpack(quantised)))
local input = accelhost.ones {1, width}

local function outputs()
  local rows = {}
  for i, layer in ipairs(quantised) do rows[i] = layer(input):detach() end
  return accelerator:gather(accelhost.cat(rows, 1))
end

local found = outputs()
accelerator:print("equal", found:eq(found:narrow(0, 0, 1)):all():item(), found:abs():sum():item() > 0)
accelerator:wait_for_everyone()
if rank == 0 then accelhost.no_grad(function() quantised[2].weight:zero_() end) end
accelerator:wait_for_everyone()
accelerator:print("in common", outputs():narrow(1, 32, 32):eq(0):all():item(), model[1].weight.dtype)
