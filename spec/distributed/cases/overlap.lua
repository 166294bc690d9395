-- A deep network with many buckets: the first must be averaged before backward ends. Prints whether it was, and how
-- many buckets were under way by then. A hook late in backward lets the ranks meet, so that a rank which the machine
-- held up does not decide the answer.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm

local layers = {}
for i = 1, 12 do
  layers[i] = accelhost.full({512, 512}, 1 / 512)
  layers[i].requires_grad = true
end
local reducer = comm.new_reducer(layers, {}, {bucket_cap_mb = 1})
for _ = 1, 2 do
  reducer:begin(1)
  local x = accelhost.ones(128, 512)
  for i = 1, #layers do
    x = x:matmul(layers[i])
    if i == 6 then x:register_hook(function() comm.barrier() end) end
  end
  x:sum():backward()
  reducer:finish()
end
local stats, early = reducer:stats(), 0
for _, bucket in ipairs(stats.buckets) do
  if bucket.posted_ns < stats.backward_end_ns then early = early + 1 end
end
local first = stats.buckets[1]
print(first.reduced_ns > 0 and first.reduced_ns < stats.backward_end_ns and "first averaged in time" or "too late")
print(("%d of %d buckets were under way before backward ended"):format(early, #stats.buckets))
