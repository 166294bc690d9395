-- A job with sharded states that fails: sharding_fail.lua SHARDING WHEN. The last rank is killed before a step, or all
-- but rank 0 leave out a step.
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local accelerator = accelhost.Accelerator {sharding = arg[1]}
local net = nn.Sequential(nn.Linear(4, 50), nn.Linear(50, 1))
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters()))
for step = 1, 3 do
  accelerator:backward(model(accelhost.ones(2, 4)):sum())
  if step == 2 and arg[2] == "kill" and accelerator.is_last_process then os.execute "kill -9 $PPID" end
  if step ~= 2 or arg[2] ~= "leave" or accelerator.is_main_process then optimizer:step() end
  optimizer:zero_grad()
end
print "trained"
