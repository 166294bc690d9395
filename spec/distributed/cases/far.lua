-- Collectives on tensors of a device whose memory the host cannot read: results come back to it. Prints "ok".
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

-- A reducer of one process keeps its arenas there; those of several must be reachable for all ranks.
local weight = far(4)
weight.requires_grad = true
local ok, result = pcall(comm.new_reducer, {weight}, {})
if size > 1 then
  assert(not ok and result:find("parameter 0 is on far:0; the backend shm reduces memory of the cpu", 1, true), result)
else
  result:begin(2)
  local loss = (weight * 3):sum()
  loss:backward()
  result:finish()
  check(weight.grad, 6)
  result:close()
  check(weight.grad, 6)
end
print("ok")
