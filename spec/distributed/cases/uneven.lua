-- Batches of unequal sizes, over the processes and within a window, against one process that sees all samples.
local checks = require "spec.support.checks"
local accelhost = require "accelhost"
local nn, data = accelhost.nn, accelhost.data

local size = accelhost.Accelerator().num_processes
-- Two rounds of 4 for each, then one of 4 for all but the last process, which gets 2.
local samples = 12 * size - 2
local inputs
local function prepare(options)
  accelhost.manual_seed(1)
  inputs = accelhost.randn(samples, 2):double()
  options.even_batches = false
  local accelerator = accelhost.Accelerator(options)
  local model, loader = accelerator:prepare(nn.Linear(2, 1):double(),
    data.DataLoader(data.TensorDataset(inputs), {batch_size = 4}))
  return accelerator, model, loader
end
local function loss_of(model, x) return model(x):pow(2):mean() end

-- The gradient of one process for some rows.
local function expected(model, first, count, weights)
  local losses = model(inputs:narrow(0, first, count)):pow(2):flatten()
  local loss = weights and (losses * weights):sum() or losses:mean()
  local parameters = model:parameters()
  return accelhost.autograd.grad(loss, parameters)
end

local function near(wanted, model, what)
  for i, parameter in ipairs(model:parameters()) do checks.near(wanted[i], parameter.grad, what) end
end

checks.it("counts a batch by its samples", function()
  local accelerator, model, loader = prepare {}
  local first = 0
  for x in loader do
    local count = math.min(4 * size, samples - first)
    model:zero_grad()
    accelerator:backward(loss_of(model, x))
    near(expected(model, first, count), model, "round at " .. first)
    first = first + count
  end
  checks.same(samples, first)
end)

checks.it("counts them by their samples within a window too", function()
  local accelerator, model, loader = prepare {gradient_accumulation_steps = 3}
  for x in loader do
    accelerator:accumulate(model)
    accelerator:backward(loss_of(model, x))
  end
  near(expected(model, 0, samples), model, "window")
end)

checks.it("counts them by the script's weights, the same for each with a weight of 1", function()
  local accelerator, model, loader = prepare {}
  local first = 0
  for x in loader do
    local count = math.min(4 * size, samples - first)
    local weights = accelhost.ones(count):double() / (4 * size)
    if count < 4 * size then weights:narrow(0, count - 2, 2):mul_(2) end
    model:zero_grad()
    accelerator:backward(loss_of(model, x), {weight = 1})
    near(expected(model, first, count, weights), model, "the mean of means")
    first = first + count
  end
end)

checks.it("adds to gradients that were there, the same on all processes", function()
  local accelerator, model, loader = prepare {}
  local sum, first = nil, 0
  for x in loader do
    local count = math.min(4 * size, samples - first)
    accelerator:backward(loss_of(model, x))
    local more = expected(model, first, count)
    for i = 1, sum and #more or 0 do more[i] = more[i] + sum[i] end
    sum, first = more, first + count
    near(sum, model, "sum at " .. first)
  end
end)

checks.it("joins with a mean over the samples of those that still train", function()
  local accelerator, model = prepare {}
  -- Short of a batch for the last process, and of two rows for the one before it.
  samples = math.max(12 * size - 6, 6)
  inputs = inputs:narrow(0, 0, samples)
  local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(inputs), {batch_size = 4}))
  local first = 0
  accelerator:join_uneven_inputs({model}, function()
    for x in loader do
      local count = math.min(4 * size, samples - first)
      model:zero_grad()
      accelerator:backward(loss_of(model, x))
      near(expected(model, first, count), model, "round at " .. first)
      first = first + count
    end
  end)
  samples = 12 * size - 2
end)

checks.it("refuses values that are not models, and forgets a join that failed on all processes", function()
  local accelerator, model = prepare {}
  checks.refused("join_uneven_inputs: joinables: expected a table of modules, got a table whose item 2 is number 3",
    function() accelerator:join_uneven_inputs({model, 3}, function() end) end)
  -- An error of fn is raised, and a later join is as if nothing had been.
  checks.refused("on all", function()
    accelerator:join_uneven_inputs({model}, function() error("on all") end, {even_batches = false})
  end)
  accelerator:backward(model(inputs:narrow(0, 0, 4)):sum())
  checks.same(true, accelerator.even_batches == false)
end)

checks.finish()
