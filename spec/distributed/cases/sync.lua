-- When gradients are averaged, and their values then.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local rank, size = accelhost.PartialState().process_index, accelhost.PartialState().num_processes

local function linear() return nn.Linear(3, 2):double() end

-- A model, a reference that sees every batch, and the data of all ranks.
local function training(accelerator, seed)
  accelhost.manual_seed(seed or 1)
  local model, reference = linear(), linear()
  reference:load_state_dict(model:state_dict())
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  model, optimizer = accelerator:prepare(model, optimizer)
  return model, reference, optimizer
end

local function inputs(seed)
  accelhost.manual_seed(seed)
  return accelhost.randn(2 * size, 3):double()
end

local function mine(all) return all:narrow(0, 2 * rank, 2) end

-- Is it the same on all ranks?
local function is_agreed(accelerator, tensor)
  local all = accelerator:gather(tensor:detach():reshape(1, -1))
  return (all - all:narrow(0, 0, 1)):abs():max():item() == 0
end

checks.it("keeps gradients apart under no_sync and averages all of them after it", function()
  local accelerator = accelhost.Accelerator()
  local model, reference = training(accelerator)
  for step = 1, 3 do
    local x = inputs(step)
    local function backward() accelerator:backward(model(mine(x)):pow(2):mean()) end
    reference(x):pow(2):mean():backward()
    if step < 3 then
      accelerator:no_sync(model, backward)
      assert(accelerator.sync_gradients, "no_sync is not a window")
      assert(size == 1 or not is_agreed(accelerator, model.weight.grad))
    else
      backward()
      checks.near(reference.weight.grad, model.weight.grad, "after the third")
    end
  end
end)

checks.it("averages at once where trigger_sync_in_backward is called within no_sync", function()
  local accelerator = accelhost.Accelerator()
  local model, reference = training(accelerator)
  accelerator:no_sync(model, function()
    local losses = {}
    for step = 1, 3 do
      local x = inputs(step)
      losses[step] = model(mine(x)):pow(2):mean()
      reference(x):pow(2):mean():backward()
    end
    for step = 1, 3 do
      if step == 3 then accelerator:trigger_sync_in_backward(model) end
      accelerator:backward(losses[step])
      assert(size == 1 or is_agreed(accelerator, model.weight.grad) == (step == 3), "step " .. step)
    end
    checks.near(reference.weight.grad, model.weight.grad, "triggered")
    -- The trigger is for one backward.
    model:zero_grad()
    accelerator:backward(model(mine(inputs(7))):pow(2):mean())
    assert(size == 1 or not is_agreed(accelerator, model.weight.grad))
  end)
end)

checks.it("suppresses only the model that no_sync names, and lets optimizers step", function()
  local accelerator = accelhost.Accelerator()
  local model, _, optimizer = training(accelerator)
  local other = accelerator:prepare(linear())
  local before = model.weight:detach():clone()
  accelerator:no_sync(model, function()
    local x = mine(inputs(1)) * (rank + 1)
    accelerator:backward(model(x):sum() + other(x):sum())
    optimizer:step()
  end)
  assert(is_agreed(accelerator, other.weight.grad))
  assert(size == 1 or not is_agreed(accelerator, model.weight.grad))
  assert((model.weight - before):abs():max():item() > 0)
end)

-- A loop over 5 batches of each rank, in windows of two; returns at which steps it was synchronised.
local function windows(options, weighted)
  options.gradient_accumulation_plugin = options.gradient_accumulation_plugin or {num_steps = 2}
  local accelerator = accelhost.Accelerator(options)
  local model, reference, optimizer = training(accelerator)
  local reference_optimizer = optim.SGD(reference:parameters(), {lr = 0.1})
  local function schedule(of) return optim.lr_scheduler.ExponentialLR(of, 0.9) end
  local scheduler, reference_scheduler = accelerator:prepare(schedule(optimizer)), schedule(reference_optimizer)
  local batch = options.split_batches and 2 * size or 2
  local set = data.TensorDataset(accelhost.randn(10 * size, 3):double())
  local loader = accelerator:prepare(data.DataLoader(set, {batch_size = batch}))
  local seen, window = {}, {}
  for _ = 1, 2 do
    for x in loader do
      accelerator:accumulate(model, function()
        accelerator:backward(model(x):pow(2):mean(), {weight = weighted and #x or nil})
        window[#window + 1] = accelerator:gather(x)
        seen[#seen + 1] = accelerator.sync_gradients
        if accelerator.sync_gradients then
          for _, part in ipairs(window) do accelhost.autograd.backward(reference(part):pow(2):mean() / #window) end
          checks.near(reference.weight.grad, model.weight.grad, "at step " .. #seen)
          window = {}
          reference_optimizer:step()
          reference_scheduler:step()
          reference_optimizer:zero_grad()
        elseif options.gradient_accumulation_plugin.sync_each_batch then
          assert(is_agreed(accelerator, model.weight.grad), "each batch")
        else
          assert(size == 1 or not is_agreed(accelerator, model.weight.grad), "within")
        end
        optimizer:step()
        scheduler:step()
        optimizer:zero_grad()
        checks.same(reference_scheduler:get_last_lr(), scheduler:get_last_lr())
      end)
    end
  end
  checks.near(reference.weight, model.weight, "weights")
  return seen
end

local pattern = {false, true, false, true, true, false, true, false, true, true}

local both = {false, true}

-- Accelerate's gradient_accumulation tests: split, dispatch and sync_each_batch in each combination.
checks.it("divides by the true length of a window, also of the short last one, with every kind of loader", function()
  for _, split in ipairs(both) do
    for _, dispatch in ipairs(both) do
      for _, each in ipairs(both) do
        checks.same(pattern, windows {
          split_batches = split, dataloader_config = {split_batches = split, dispatch_batches = dispatch},
          gradient_accumulation_plugin = {num_steps = 2, sync_each_batch = each},
        })
      end
    end
  end
  checks.same(pattern, windows({}, true))
end)

checks.it("averages after every micro-step with sync_each_batch, with the same result", function()
  for _, weighted in ipairs(both) do
    local plugin = {num_steps = 2, sync_each_batch = true}
    checks.same(pattern, windows({gradient_accumulation_plugin = plugin}, weighted))
    plugin = {num_steps = 5, sync_each_batch = true}
    windows({gradient_accumulation_plugin = plugin}, weighted)
  end
end)

checks.it("lets a window continue into the next pass without sync_with_dataloader", function()
  local plugin = {num_steps = 2, sync_with_dataloader = false}
  local accelerator = accelhost.Accelerator {gradient_accumulation_plugin = plugin}
  local model, _, optimizer = training(accelerator)
  local set = data.TensorDataset(accelhost.ones(3 * size, 3):double())
  local loader, seen = accelerator:prepare(data.DataLoader(set)), ""
  for _ = 1, 2 do
    for x in loader do
      accelerator:accumulate(model)
      accelerator:backward(model(x):sum())
      optimizer:step()
      optimizer:zero_grad()
      seen = seen .. (accelerator.sync_gradients and "1" or "0")
    end
  end
  checks.same("010101", seen)
end)

checks.it("weighs tokens over ranks and micro-steps", function()
  local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 3}
  local model, reference = training(accelerator)
  local losses, tokens = accelhost.zeros(1):double(), 0
  for step = 1, 3 do
    accelhost.manual_seed(10 * step + rank)
    local count = 1 + (step * 3 + rank * 2) % 5
    local x = accelhost.randn(count, 3):double()
    accelerator:accumulate(model)
    accelerator:backward(model(x):pow(2):sum(1):mean(), {weight = count})
    local all = accelerator:gather(x)
    losses, tokens = losses + reference(all):pow(2):sum(), tokens + #all
  end
  accelhost.autograd.backward((losses / tokens):sum())
  checks.near(reference.weight.grad, model.weight.grad, "tokens")
end)

checks.it("knows the active loader at every point of nested loops and after break", function()
  local accelerator = accelhost.Accelerator()
  local state = accelerator.gradient_state
  local function loader(count)
    return accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(count * size)), {batch_size = 2}))
  end
  local train, test = loader(8), loader(6)
  assert(not state.in_dataloader and not state.end_of_dataloader)
  for i, _ in accelhost.enumerate(train) do
    assert(state.active_dataloader == train and state.end_of_dataloader == (i == 3))
    for j, _ in accelhost.enumerate(test) do
      assert(state.active_dataloader == test and state.end_of_dataloader == (j == 2))
      if i == 1 and j == 1 then break end
    end
    assert(state.active_dataloader == train and state.end_of_dataloader == (i == 3))
    if i == 2 then break end
  end
  assert(state.active_dataloader == nil and not state.in_dataloader and state.remainder == -1)
  for _ = 1, 2 do
    for i, _ in accelhost.enumerate(train) do assert(state.end_of_dataloader == (i == 3)) end
    assert(not state.end_of_dataloader)
  end
end)

checks.it("ends a window at the last batch of the loop that runs, not of one that was left", function()
  local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 10}
  local model = training(accelerator)
  local function loader(count)
    return accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.ones(count * size, 3):double())))
  end
  local train, test = loader(3), loader(2)
  local seen = ""
  for x in train do
    for i, _ in accelhost.enumerate(test) do
      if i == 1 then break end
    end
    accelerator:accumulate(model)
    accelerator:backward(model(x):sum())
    seen = seen .. (accelerator.sync_gradients and "1" or "0")
  end
  checks.same("001", seen)
end)

checks.it("joins processes that finish earlier", function()
  local accelerator = accelhost.Accelerator()
  local model, _, optimizer = training(accelerator)
  local other = accelerator:prepare(nn.BatchNorm1d(3):double())
  local set = data.TensorDataset(accelhost.ones(2 * size - 1, 3):double())
  local even = accelerator:prepare(data.DataLoader(set, {batch_size = 1}))
  local steps, left = 0, 0
  local result = accelerator:join_uneven_inputs({model, other}, function()
    for x in even do
      steps = steps + 1
      accelerator:backward(model(x * (rank + 1)):sum() + (steps % 2 == 1 and other(accelhost.randn(4, 3)
        :double()):sum() or 0))
      if steps == 2 then left = model.weight.grad:mean():item() end
      optimizer:step()
      optimizer:zero_grad()
      other:zero_grad()
    end
    return "through", nil
  end, {even_batches = false})
  assert(result == "through")
  checks.same((size == 1 or rank < size - 1) and (size == 1 and 1 or 2) or 1, steps)
  -- The mean over those that still trained.
  if steps == 2 then assert(math.abs(left - size / 2) < 1e-12, left) end
  assert(is_agreed(accelerator, model.weight) and is_agreed(accelerator, other.running_mean))
  assert(accelerator.even_batches and even.batch_sampler.even_batches ~= false)
  checks.same(2, #even + (size == 1 and 1 or 0))
  -- Afterwards everything is as before.
  local x = mine(inputs(3))
  accelerator:backward(model(x):sum())
  assert(is_agreed(accelerator, model.weight.grad))
end)

checks.it("has buffers follow a process that still trains", function()
  local accelerator = accelhost.Accelerator()
  local norm = accelerator:prepare(nn.BatchNorm1d(3, {momentum = 1}):double())
  local steps = 1 + rank -- rank 0 completes first
  accelerator:join_uneven_inputs({norm}, function()
    for step = 1, steps do
      accelerator:backward(norm(accelhost.full({4, 3}, 10 * rank + step):double()):sum())
      norm:zero_grad()
    end
  end)
  -- The last step was the last rank's alone.
  checks.near(accelhost.full({3}, 10 * (size - 1) + size):double(), norm.running_mean, "running mean")
  norm(accelhost.full({4, 3}, rank + 1):double()):sum():backward()
  accelerator:backward(norm(accelhost.full({4, 3}, rank + 1):double()):sum())
  checks.near(accelhost.ones(3):double(), norm.running_mean, "rank 0's again")
end)

checks.it("broadcasts buffers that a forward replaces by others of the same shape", function()
  local Mean = nn.Module:extend "Mean"
  function Mean:init(value)
    self.linear = nn.Linear(1, 1)
    self:register_buffer("mean", value)
    self.alias = self.mean -- has two names, of which one is given something else
  end
  function Mean:forward(x)
    self.mean = self.mean * 0.5 + x:mean():reshape(-1)
    return self.linear(x)
  end
  for _, broadcast in ipairs {true, false} do
    local kwargs = accelhost.DistributedDataParallelKwargs {broadcast_buffers = broadcast}
    local accelerator = accelhost.Accelerator {kwargs_handlers = {kwargs}}
    local model = accelerator:prepare(Mean(accelhost.full({1}, 8)))
    local own = 8
    for _ = 1, 3 do
      own = own * 0.5 + (broadcast and 1 or rank + 1)
      accelerator:backward(model(accelhost.full({2, 1}, rank + 1)):sum())
      checks.same(own, model.mean:item())
    end
    accelerator:free_memory()
  end
  local accelerator = accelhost.Accelerator()
  local model = accelerator:prepare(Mean(accelhost.zeros(1)))
  for step = 1, 2 do
    local loss = model(accelhost.ones(2, 1)):sum()
    model.mean = accelhost.full({step}, rank)
    accelerator:backward(loss)
    checks.same(step == 1 and 0 or rank, model.mean:sum():item() / step, "of another shape: each process's own")
    model.mean = accelhost.zeros(1)
  end
  accelerator:free_memory()
end)

checks.it("leaves buffers to each process with the option", function()
  local kwargs = accelhost.DistributedDataParallelKwargs {broadcast_buffers = false}
  for _, handlers in ipairs {{}, {kwargs}} do
    local accelerator = accelhost.Accelerator {kwargs_handlers = handlers}
    local norm = nn.BatchNorm1d(3, {momentum = 1}):double()
    norm.running_var:fill_(rank + 1)
    accelerator:prepare(norm)
    checks.same(1, norm.running_var[0]:item(), "rank 0's at first")
    for _ = 1, 2 do accelerator:backward(norm(accelhost.full({4, 3}, rank + 1):double()):sum()) end
    checks.same(#handlers == 0 and 1 or rank + 1, norm.running_mean[0]:item())
  end
end)

checks.it("refuses to join with models that are not prepared", function()
  local accelerator = accelhost.Accelerator()
  local plain = linear()
  if size > 1 then
    checks.refused("join_uneven_inputs: a Linear is not prepared", function()
      accelerator:join_uneven_inputs({plain}, function() end)
    end)
  end
  checks.refused("join_uneven_inputs: joinables: expected a table of modules", function()
    accelerator:join_uneven_inputs(plain, function() end)
  end)
  checks.refused("no_sync: expected a model and a function, got a Linear and nil", function()
    accelerator:no_sync(plain)
  end)
  checks.refused("trigger_sync_in_backward: expected a model, got number 3", function()
    accelerator:trigger_sync_in_backward(3)
  end)
end)

checks.finish()
