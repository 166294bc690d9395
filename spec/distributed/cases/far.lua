-- Collectives on tensors of a device whose memory the host cannot read: results are copied back to it. Prints "ok".
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local rank, size = comm.rank(), comm.size()

local function far(...) return accelhost.full({...}, rank + 1, {device = "far"}) end
local function check(tensor, sum)
  assert(tensor.device == "far:0", "expected a tensor on far:0, got " .. tensor.device)
  local got = tensor:cpu():sum():item()
  assert(got == sum, ("expected %g in all, got %g"):format(sum, got))
end

local total = size * (size + 1) / 2
check(comm.all_reduce(far(3)), 3 * total)
check(comm.all_reduce(far(2, 3):transpose(0, 1)), 6 * total)
check(comm.broadcast(far(2), 0), 2)
check(comm.all_gather(far(1, 2)), 2 * total)
check(comm.all_gather_ragged(far(rank + 1, 1)), size * (size + 1) * (2 * size + 1) / 6)
check(comm.reduce_scatter(far(size, 2)), 2 * total)
check(comm.all_to_all(far(size, 1)), total)
check(comm.all_reduce_async(far(5)):wait(), 5 * total)
check(comm.all_gather_async(far(1, 2)):wait(), 2 * total)
check(comm.reduce_scatter_async(far(size, 2)):wait(), 2 * total)

-- Into tensors that are there, and messages.
local dist = accelhost.distributed
dist.init_process_group()
local list = {}
for r = 1, size do list[r] = far(2) end
dist.all_gather(list, far(2), {async_op = true}):wait()
for r = 1, size do check(list[r], 2 * r) end
local out = far(size, 2):transpose(0, 1)
dist.all_to_all_single(out, far(2, size), {async_op = size == 1}) -- a view of it is written
if size == 2 then
  check(out, 6)
  local got = far(3)
  local works = {dist.isend(far(3), 1 - rank), dist.irecv(got, 1 - rank)}
  for _, work in ipairs(works) do work:wait() end
  check(got, 3 * (2 - rank))
end
dist.destroy_process_group()

-- A reducer keeps its arenas there; data between ranks passes through the group's memory.
local weight, mean = far(4), far(2)
weight.requires_grad = true
local reducer = comm.new_reducer({weight}, {mean})
check(weight:detach(), 4)
check(mean, 2)
reducer:begin(2)
local loss = (weight * (3 + rank)):sum()
loss:backward()
mean:fill_(5 + rank)
reducer:finish()
local grad = 4 * (3 * size + size * (size - 1) / 2) / (2 * size)
check(weight.grad, grad)
check(mean, 10)
reducer:close()
check(weight.grad, grad)
print("ok")
