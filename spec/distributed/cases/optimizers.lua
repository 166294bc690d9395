-- Every optimizer steps a prepared model as it steps one process's model on the global batch.
local accelhost = require "accelhost"
local optimizers = require "spec.cases.optimizers"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local accelerator = accelhost.Accelerator()
local rank, size = accelerator.process_index, accelerator.num_processes

local function problem()
  accelhost.manual_seed(5)
  local model = nn.Sequential(nn.Linear(3, 4, {bias = false}), nn.Tanh(), nn.Linear(4, 2, {bias = false})):double()
  return model, accelhost.randn(6 * size, 3):double(), accelhost.arange(6 * size) % 2
end

local function train(model, optimizer, inputs, labels, backward)
  for _ = 1, 4 do
    optimizer:step(function()
      optimizer:zero_grad()
      local loss = F.cross_entropy(model(inputs), labels)
      backward(loss)
      return loss
    end)
  end
end

local expected = {}
for _, row in ipairs(optimizers) do
  local name = row.name
  local alone, inputs, labels = problem()
  local parameters = alone:parameters()
  train(alone, optim[name](parameters, optimizers.train(name)), inputs, labels, function(loss)
    for i, grad in ipairs(accelhost.autograd.grad(loss, parameters)) do parameters[i].grad = grad end
  end)
  expected[name] = parameters
end

for _, row in ipairs(optimizers) do
  local name = row.name
  local model, inputs, labels = problem()
  local optimizer
  model, optimizer = accelerator:prepare(model, optim[name](model:parameters(), optimizers.train(name)))
  train(model, optimizer, inputs:narrow(0, 6 * rank, 6), labels:narrow(0, 6 * rank, 6), function(loss)
    accelerator:backward(loss)
  end)
  for i, parameter in ipairs(model:parameters()) do
    local difference = (parameter - expected[name][i]):abs():max():item()
    assert(difference < (row.near or 1e-8), ("%s: parameter %d differs by %g"):format(name, i, difference))
  end
  accelerator:free_memory()
end
print "ok"
