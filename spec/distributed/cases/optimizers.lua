-- Every optimizer steps a prepared model as it steps one process's model on the global batch.
local accelhost = require "accelhost"
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

local rates = {SGD = 0.1, Adadelta = 1, LBFGS = 0.5}
local names = {
  "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "ASGD", "Rprop", "Lion",
  "Adafactor", "Muon", "LBFGS",
}

local function options_of(name)
  return {lr = rates[name] or 0.01, line_search_fn = name == "LBFGS" and "strong_wolfe" or nil}
end

local expected = {}
for _, name in ipairs(names) do
  local alone, inputs, labels = problem()
  local parameters = alone:parameters()
  train(alone, optim[name](parameters, options_of(name)), inputs, labels, function(loss)
    for i, grad in ipairs(accelhost.autograd.grad(loss, parameters)) do parameters[i].grad = grad end
  end)
  expected[name] = parameters
end

for _, name in ipairs(names) do
  local model, inputs, labels = problem()
  local optimizer
  model, optimizer = accelerator:prepare(model, optim[name](model:parameters(), options_of(name)))
  train(model, optimizer, inputs:narrow(0, 6 * rank, 6), labels:narrow(0, 6 * rank, 6), function(loss)
    accelerator:backward(loss)
  end)
  for i, parameter in ipairs(model:parameters()) do
    local difference = (parameter - expected[name][i]):abs():max():item()
    -- Muon multiplies in bfloat16; a line search magnifies what sums in another order round otherwise.
    local limit = name == "Muon" and 1e-3 or name == "LBFGS" and 5e-8 or 1e-8
    assert(difference < limit, ("%s: parameter %d differs by %g"):format(name, i, difference))
  end
  accelerator:free_memory()
end
print "ok"
