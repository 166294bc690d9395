-- loss:backward() on prepared models, as a script ported from PyTorch's DDP has it; prints "ok" at the end.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, optim = accelhost.nn, accelhost.optim

local near = checks.near

local accelerator = accelhost.Accelerator()
local rank, size = accelerator.process_index, accelerator.num_processes
local function linear() return nn.Linear(3, 2):double() end
local function inputs(seed)
  accelhost.manual_seed(seed)
  return accelhost.randn(4 * size, 3):double()
end
local function mine(all) return all:narrow(0, 4 * rank, 4) end

-- The gradient is the mean over the processes, for each way to differentiate: the method, the function, several losses.
accelhost.manual_seed(3)
local model = accelerator:prepare(linear())
local reference = linear()
reference:load_state_dict(model:state_dict())
local x = inputs(1)
local ways = {
  function(loss) loss:backward() end,
  function(loss) accelhost.autograd.backward(loss) end,
  function(loss) accelhost.autograd.backward({loss}) end,
  function(loss) accelerator:backward(loss) end,
}
for i, backward in ipairs(ways) do
  model:zero_grad()
  reference:zero_grad()
  backward(model(mine(x)):pow(2):mean())
  accelhost.autograd.grad(model(mine(x)):sum(), {model.weight}) -- touches nothing
  local loss = reference(x):pow(2):mean()
  near(accelhost.autograd.grad(loss, {reference.weight})[1], model.weight.grad, "way " .. i)
end

-- Gradients that are not zeroed add up, as they do in one process.
local once = model.weight.grad:clone()
model(mine(x)):pow(2):mean():backward()
near(once * 2, model.weight.grad, "the second without zero_grad")

-- Micro-steps add up without a word about weights; only the last one synchronises.
model:zero_grad()
accelerator.gradient_accumulation_steps = 3
for step = 1, 3 do
  accelerator:accumulate(model)
  local loss = model(mine(x)):pow(2):mean() / 3
  loss:backward()
  local spread = accelerator:gather(model.weight.grad:sum():reshape(1))
  local same = spread:max():item() == spread:min():item()
  assert(same == (step == 3 or size == 1), "micro-step " .. step)
end
near(once, model.weight.grad, "micro-steps")
accelerator.gradient_accumulation_steps = 1
accelerator:accumulate(model)

-- no_sync
model:zero_grad()
accelerator:no_sync(model, function() model(mine(x)):sum():backward() end)
near(accelhost.autograd.grad(model(mine(x)):sum(), {model.weight})[1], model.weight.grad, "no_sync")

-- Two models: one that the loss does not depend on is not changed.
local other = accelerator:prepare(linear())
model:zero_grad()
other(mine(x)):sum():backward()
assert(model.weight.grad == nil)
local all = accelerator:gather(other.weight.grad:reshape(1, 6))
near(all:narrow(0, 0, 1), all:narrow(0, size - 1, 1), "the other model")
model(mine(x)):sum():backward()
other(mine(x)):sum():backward()
near(other.weight.grad, model.weight.grad * 2, "both")

-- A process may differentiate alone a model that is not prepared.
if rank == 0 then
  local own = linear()
  own(mine(x)):sum():backward()
  near(accelhost.autograd.grad(own(mine(x)):sum(), {own.weight})[1], own.weight.grad, "its own model")
end

-- A backward that failed leaves nothing behind.
model:zero_grad()
local hook = model.bias:register_hook(function() error "stop" end)
assert(not pcall(function() model(mine(x)):sum():backward() end))
hook:remove()
model:zero_grad()
model(mine(x)):pow(2):mean():backward()
near(once, model.weight.grad, "after a failure")

-- A whole training: every process ends with the same weights.
local optimizer = optim.AdamW(model:parameters(), {lr = 0.01})
for seed = 2, 6 do
  x = inputs(seed)
  optimizer:zero_grad()
  model(mine(x)):pow(2):mean():backward()
  optimizer:step()
end
all = accelerator:gather(model.weight:detach():reshape(1, 6))
near(all:narrow(0, 0, 1), all:narrow(0, size - 1, 1), "trained weights")
print "ok"
