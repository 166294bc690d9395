-- The error of a script that forgot to prepare its model. usage: unprepared.lua plain|accelerator|step
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local accelerator = accelhost.Accelerator()
local model = nn.Linear(2, 1)
local optimizer = optim.SGD(model:parameters())
if arg[1] == "step" then optimizer = accelerator:prepare(optimizer) end
local loss = model(accelhost.ones(1, 2)):sum()
if arg[1] == "accelerator" then
  accelerator:backward(loss)
elseif arg[1] == "plain" then
  loss:backward()
else
  for _, parameter in ipairs(model:parameters()) do parameter.grad = accelhost.ones(parameter:shape()) end
end
optimizer:step()
accelerator:wait_for_everyone()
