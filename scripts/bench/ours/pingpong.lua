--- A message of float32 there and back between two ranks. usage: pingpong.lua COUNT TURNS
-- Rank 0 prints half the median time of a round.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now
local dist = accelhost.distributed

local count, turns = tonumber(arg[1]), tonumber(arg[2])
dist.init_process_group "gloo"
local rank = dist.get_rank()
local buffer, times = accelhost.zeros(count), {}
for turn = -20, turns do
  local begin = now()
  if rank == 0 then
    dist.send(buffer, 1)
    dist.recv(buffer, 1)
  else
    dist.recv(buffer, 0)
    dist.send(buffer, 0)
  end
  if turn > 0 then times[turn] = now() - begin end
end
table.sort(times)
if rank == 0 then print("message_us", times[math.floor(turns / 2) + 1] * 1e6 / 2) end
