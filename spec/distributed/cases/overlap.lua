-- A deep network with many buckets. Prints how many were under way before backward ended, and whether the first was
-- averaged by then, judged by the times that the reducer keeps. The one depends on this rank only; the other also on
-- when its peer runs, so a busy machine gets several steps (overlap.lua [STEPS]) to show it. Nothing here lets the
-- ranks meet in backward.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm

local layers = {}
for i = 1, 12 do
  layers[i] = accelhost.full({512, 512}, 1 / 512)
  layers[i].requires_grad = true
end
local reducer = comm.new_reducer(layers, {}, {bucket_cap_mb = 1})
local least, averaged = #layers, 0
for _ = 1, tonumber((...)) or 30 do
  comm.barrier()
  reducer:begin(1)
  local x = accelhost.ones(128, 512)
  for i = 1, #layers do x = x:matmul(layers[i]) end
  x:sum():backward()
  reducer:finish()
  local stats, early = reducer:stats(), 0
  for _, bucket in ipairs(stats.buckets) do
    if bucket.issued_ns < stats.backward_end_ns then early = early + 1 end
  end
  least = math.min(least, early)
  local first = stats.buckets[1]
  if first.reduced_ns > 0 and first.reduced_ns < stats.backward_end_ns then averaged = averaged + 1 end
end
print(("%d of %d buckets were under way before backward ended"):format(least, #layers))
print(averaged > 0 and "the first was averaged before backward ended" or "never in time")
