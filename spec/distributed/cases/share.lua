-- A job whose processes have unequal shares of a global batch, against one process that has all of it.
-- usage: share.lua, under launch --share
local checks = require "spec.support.checks"
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local job = accelhost.Accelerator()
local size, rank, share = job.num_processes, job.process_index, job.share
local SIZE = 5
local GLOBAL = SIZE * size
local samples = 3 * GLOBAL + GLOBAL - 4
accelhost.manual_seed(2)
local inputs, labels = accelhost.randn(samples, 4):double(), accelhost.randint(0, 3, {samples})

local function prepare(options, loading)
  accelhost.manual_seed(3)
  local accelerator = accelhost.Accelerator(options)
  local model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)):double()
  local alone = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)):double()
  alone:load_state_dict(model:state_dict())
  local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
  loading = loading or {}
  loading.batch_size = loading.batch_size or SIZE
  local loader = data.DataLoader(data.TensorDataset(inputs, labels), loading)
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
  return accelerator, model, optimizer, loader, alone, optim.AdamW(alone:parameters(), {lr = 1e-2})
end

local function step_alone(alone, optimizer, first, count)
  local x, y = inputs:narrow(0, first, count), labels:narrow(0, first, count)
  for i, gradient in ipairs(accelhost.autograd.grad(F.cross_entropy(alone(x), y), alone:parameters())) do
    alone:parameters()[i].grad = gradient
  end
  optimizer:step()
end

local function near(alone, model, what)
  for i, parameter in ipairs(model:parameters()) do
    checks.near(alone:parameters()[i], parameter, ("%s, parameter %d"):format(what, i))
  end
end

local function sum(list)
  local total = 0
  for _, value in ipairs(list) do total = total + value end
  return total
end

checks.it("yields each process its part of a global batch, in order", function()
  local accelerator, _, _, loader = prepare({}, {drop_last = true})
  local rows = {}
  for x, y in loader do
    local sizes = accelerator:gather(accelhost.tensor {#y}):tolist()
    checks.same(GLOBAL, sum(sizes))
    for r = 1, size do assert(math.abs(sizes[r] - GLOBAL * share[r] / sum(share)) < 1, "the part of " .. r) end
    rows[#rows + 1] = accelerator:gather(x)
  end
  checks.same(3, #rows)
  checks.same(3, #loader)
  checks.near(inputs:narrow(0, 0, 3 * GLOBAL), accelhost.cat(rows), "rows")
end)

checks.it("trains as one process on the global batches", function()
  for _, options in ipairs {{}, {split_batches = true}} do
    options.even_batches = false
    local accelerator, model, optimizer, loader, alone, own = prepare(options,
      {batch_size = options.split_batches and GLOBAL or SIZE})
    accelerator:join_uneven_inputs({model}, function()
      for x, y in loader do
        accelerator:backward(F.cross_entropy(model(x), y))
        optimizer:step()
        optimizer:zero_grad()
      end
    end)
    for first = 0, samples - 1, GLOBAL do step_alone(alone, own, first, math.min(GLOBAL, samples - first)) end
    -- A rank without samples of the last batch has received the others' weights.
    near(alone, model, options.split_batches and "split" or "whole")
  end
end)

checks.it("weighs the micro-steps of a window", function()
  local accelerator, model, optimizer, loader, alone, own = prepare({gradient_accumulation_steps = 3},
    {drop_last = true})
  for x, y in loader do
    accelerator:accumulate(model)
    accelerator:backward(F.cross_entropy(model(x), y))
    optimizer:step()
    optimizer:zero_grad()
  end
  step_alone(alone, own, 0, 3 * GLOBAL)
  near(alone, model, "window")
end)

checks.it("counts every sample once in metrics", function()
  local accelerator, _, _, loader = prepare()
  local rows = {}
  for x in loader do rows[#rows + 1] = accelerator:gather_for_metrics(x) end
  checks.near(inputs, accelhost.cat(rows), "rows")
end)

checks.it("refuses losses that would not be weighed, and an empty part", function()
  local _, model, _, loader = prepare()
  checks.refused("accelerator:backward weighs", function() model(inputs):sum():backward() end)
  checks.refused("excludes a share for each process", function() accelhost.Accelerator {virtual_shards = 9} end)
  checks.refused("excludes a share for each process", function()
    accelhost.Accelerator {dataloader_config = {dispatch_batches = true}}
  end)
  local large = {}
  for r = 1, size do large[r] = r == 1 and 1000 or 1 end
  checks.refused(("leaves nothing for rank 1"):format(), function()
    data.DataLoader(data.TensorDataset(inputs), {batch_size = 2}):shard {rank = rank, size = size, share = large}
  end)
  checks.refused("expected a number for each of", function()
    data.DataLoader(data.TensorDataset(inputs), {batch_size = 2}):shard {rank = rank, size = size, share = {1}}
  end)
  assert(#loader > 0)
end)

checks.it("stores in a checkpoint how batches were shared", function()
  local accelerator = prepare()
  local folder = arg[1]
  accelerator:save_state(folder)
  accelerator:load_state(folder)
end)

checks.finish()
