--- The resident memory of training steps of a net of nets.lua: the peak, and the size before the net exists; AdamW.
--
-- usage: accelhost peak.lua NET STEPS
local accelhost = require "accelhost"
package.path = (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/?.lua;" .. package.path
local nets = require "nets"

local workload, steps = assert(nets[arg[1]], "no such net"), tonumber(arg[2])
print("base_mb", accelhost.memory_stats().rss / 2 ^ 20)
accelhost.manual_seed(1)
local model = workload.make()
local optimizer = accelhost.optim.AdamW(model:parameters(), {lr = 1e-3})
local input, labels = workload.batch()
for _ = 1, steps do
  local loss = workload.loss(model, input, labels)
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
end
print("peak_mb", accelhost.memory_stats().max_rss / 2 ^ 20)
