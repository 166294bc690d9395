-- A deep network with many buckets: the first is to be under way before backward ends. Prints how many were.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm

local layers = {}
for i = 1, 12 do
  layers[i] = accelhost.full({256, 256}, 1 / 256)
  layers[i].requires_grad = true
end
local reducer = comm.new_reducer(layers, {}, {bucket_cap_mb = 0.25})
for _ = 1, 2 do
  reducer:begin(1)
  local x = accelhost.ones(64, 256)
  for i = 1, #layers do x = x:matmul(layers[i]) end
  x:sum():backward()
  reducer:finish()
end
local stats, early = reducer:stats(), 0
for _, bucket in ipairs(stats.buckets) do
  if bucket.posted_ns < stats.backward_end_ns then early = early + 1 end
end
print(("%d of %d buckets were under way before backward ended"):format(early, #stats.buckets))
