-- Two steps of a small network whose gradients are averaged; prints values that must be equal on every rank.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local rank, size = comm.rank(), comm.size()

local first, second, idle = accelhost.full({3, 4}, 1 + rank), accelhost.full({4, 2}, 1), accelhost.full({5}, 1)
local statistics = accelhost.full({2}, rank)
for _, parameter in ipairs {first, second, idle} do parameter.requires_grad = true end
local reducer = comm.new_reducer({first, second, idle}, {statistics}, {})
assert(first:sum():item() == 12, "all ranks start with rank 0's parameters")
assert(statistics:sum():item() == 0, "and with its buffers")

local mean = (size + 1) / 2
for step = 1, 3 do
  statistics:fill_(10 * step + rank)
  reducer:begin(1)
  accelhost.full({2, 3}, rank + 1):matmul(first):matmul(second):sum():backward()
  reducer:finish()
  assert(first.grad:sum():item() == 48 * mean, "a gradient is the mean over ranks")
  assert(second.grad:sum():item() == 48 * mean, "every gradient is")
  assert(idle.grad == nil, "an unused parameter has no gradient")
  assert(statistics[0]:item() == 10 * step, "buffers follow rank 0")
  first.grad, second.grad = nil, nil
end

-- Only rank 0 uses the parameter.
reducer:begin(1)
local loss = accelhost.full({2, 3}, 1):matmul(first):matmul(second):sum()
if rank == 0 then loss = loss + idle:sum() end
loss:backward()
reducer:finish()
assert(math.abs(idle.grad[0]:item() - 1 / size) < 1e-6, "the others count as zero")

-- Without begin gradients stay here; the next synchronised backward sends the sum.
for _, parameter in ipairs {first, second, idle} do parameter.grad = nil end
local function backward() (accelhost.full({1, 3}, rank + 1):matmul(first):matmul(second):sum()):backward() end
backward()
assert(first.grad[0][0]:item() == 2 * (rank + 1), "an unsynchronised gradient is this rank's")
reducer:begin(2)
backward()
reducer:finish()
assert(math.abs(first.grad[0][0]:item() - 2 * mean) < 1e-6, "two micro-steps of weight 1 are averaged")

local stats = reducer:stats()
if size > 1 then
  assert(stats.buckets[1].issued_ns >= stats.buckets[1].ready_ns, "posted when ready")
  assert(stats.buckets[1].reduced_ns >= stats.buckets[1].issued_ns, "reduced after it was posted")
end
reducer:close()
assert(first.grad[0][0]:item() ~= 0, "gradients survive the reducer")
print("ok")
