--- float32 all-reduces, one after another. usage: allreduce_row.lua COUNT TURNS
-- One rank of a job; rank 0 prints the mean time of a call. The buffer is in the group's memory, as gradients are.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local now = C.system.now

local count, turns = tonumber(arg[1]), tonumber(arg[2])
local accelerator = accelhost.Accelerator()
local buffer = C.comm.arena_empty{count}
buffer:fill_(0)
local begin
for turn = -3, turns - 1 do
  if turn == 0 then
    accelerator:wait_for_everyone()
    begin = now()
  end
  C.comm.all_reduce(buffer)
end
local passed = now() - begin
if accelerator.is_main_process then print("call_us " .. ("%.1f"):format(passed / turns * 1e6)) end
