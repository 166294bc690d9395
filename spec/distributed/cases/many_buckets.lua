-- A hundred buckets on ranks of unequal speed: more than a rank may be ahead of the others. Prints "ok".
local accelhost = require "accelhost"
local C = require "accelhost._C"
local comm = C.comm

local rank, size, count = comm.rank(), comm.size(), 100
local function pause(seconds)
  local till = C.system.now() + seconds
  while C.system.now() < till do end -- luacheck: ignore
end

local weights = {}
for i = 1, count do
  weights[i] = accelhost.full({16, 16}, 1 / 16)
  weights[i].requires_grad = true
end
local reducer = comm.new_reducer(weights, {}, {bucket_cap_mb = 0.0005})
assert(#reducer:stats().buckets == count)
for step = 1, 10 do
  reducer:begin(1)
  local x = accelhost.full({4, 16}, rank + 1)
  for i = 1, count do x = x:matmul(weights[i]) end
  if rank == step % size then pause(0.002) end
  x:sum():backward()
  if rank == (step + 1) % size then pause(0.002) end
  reducer:finish()
  for i = 1, count do
    local got, expected = weights[i].grad[3][5]:item(), 4 * (size + 1) / 2
    assert(math.abs(got - expected) < 1e-4, ("step %d, weight %d: %g, expected %g"):format(step, i, got, expected))
    weights[i].grad = nil
  end
end
print("ok")
