--- A float32 all-reduce of a buffer that its owner has just written. usage: allreduce.lua COUNT TURNS arena|private
-- One rank of a job; rank 0 prints the median time of a call. arena: the buffer is in shared memory, as gradients are.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local now = C.system.now

local count, turns = tonumber(arg[1]), tonumber(arg[2])
local accelerator = accelhost.Accelerator()
local rank, world = accelerator.process_index, accelerator.num_processes
local buffer = arg[3] == "arena" and C.comm.arena_empty({count}) or accelhost.empty(count)
local times = {}
for turn = 0, turns + 9 do
  buffer:fill_(rank + turn)
  accelerator:wait_for_everyone()
  local begin = now()
  C.comm.all_reduce(buffer)
  if turn >= 10 then times[#times + 1] = now() - begin end
end
assert(buffer[count - 1]:item() == world * (turns + 9) + world * (world - 1) / 2)
table.sort(times)
if accelerator.is_main_process then print("call_us", times[math.floor(turns / 2) + 1] * 1e6) end
