--- The checks of `accelhost test`, each a guarantee that scripts rely on: {name, guarantee, function}. A function
--- receives the tools of accelhost.test, runs on every rank, and raises where the guarantee does not hold.

local checks = {}

local function add(name, guarantee, fn) checks[#checks + 1] = {name = name, guarantee = guarantee, run = fn} end

add("collectives", "gather (uneven too), reduce, padding and triggers return the same on every rank", function(t)
  local accelhost, accelerator, rank, size = t.accelhost, t.accelerator, t.rank, t.size
  local ranks, uneven = {}, {}
  for r = 0, size - 1 do
    ranks[#ranks + 1] = r
    for _ = 0, r do uneven[#uneven + 1] = r end
  end
  t.same("gather of numbers", ranks, accelerator:gather(accelhost.tensor(rank)):tolist())
  t.same("gather of unequal lengths", uneven, accelerator:gather(accelhost.full({rank + 1}, rank)):tolist())
  local value = accelhost.tensor({rank, 1}, {dtype = "float64"})
  t.same("sum", {size * (size - 1) / 2, size}, accelerator:reduce(value):tolist())
  t.same("mean", {(size - 1) / 2, 1}, accelerator:reduce(value, "mean"):tolist())
  local padded = accelerator:pad_across_processes(accelhost.ones(rank + 1), {pad_index = -1})
  t.same("padded length", {size}, {padded:size(0)})
  -- Large enough to use every path of the transport.
  local large = accelhost.arange(300001):double():add(rank)
  local total = accelerator:reduce(large)
  t.near("sum of 2.4 MB", accelhost.arange(300001):double():mul(size):add(size * (size - 1) / 2), total, 0)
  if accelerator.is_last_process then accelerator:set_trigger() end
  t.same("trigger", {true, false}, {accelerator:check_trigger(), accelerator:check_trigger()})
end)

add("random numbers", "the same seed draws the same numbers on every rank", function(t)
  local accelhost = t.accelhost
  accelhost.manual_seed(1234)
  local drawn = accelhost.randn(4)
  local all = t.accelerator:gather(drawn:unsqueeze(0))
  for r = 0, t.size - 1 do t.near("numbers of rank " .. r, drawn, all[r], 0) end
end)

-- Return a small network and its inputs.
local function network(t)
  local nn = t.accelhost.nn
  t.accelhost.manual_seed(7)
  return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)):double()
end

add("gradients", "those of all ranks' samples together equal one process's", function(t)
  local accelhost, F = t.accelhost, t.accelhost.nn.functional
  local reference, network_here = network(t), network(t)
  local x = accelhost.randn(4 * t.size, 6):double()
  local y = accelhost.randint(0, 3, {4 * t.size})
  t.backward_alone(F.cross_entropy(reference(x), y), reference)
  local model = t.accelerator:prepare(network_here)
  local own = function(tensor) return tensor:narrow(0, 4 * t.rank, 4) end
  t.accelerator:backward(F.cross_entropy(model(own(x)), own(y)))
  local expected = reference:parameters()
  for i, parameter in ipairs(model:parameters()) do
    t.near("gradient " .. i, expected[i].grad, parameter.grad, 1e-12)
  end
end)

add("accumulation", "three micro-batches make the step of one large batch", function(t)
  local accelhost, F, optim = t.accelhost, t.accelhost.nn.functional, t.accelhost.optim
  local reference, network_here = network(t), network(t)
  local x = accelhost.randn(6 * t.size, 6):double()
  local plain = optim.SGD(reference:parameters(), {lr = 0.1})
  t.backward_alone(F.mse_loss(reference(x), accelhost.zeros(6 * t.size, 3):double()), reference)
  plain:step()
  local accelerator = t.new_accelerator {gradient_accumulation_steps = 3}
  local model, optimizer = accelerator:prepare(network_here, optim.SGD(network_here:parameters(), {lr = 0.1}))
  for micro = 0, 2 do
    local part = x:narrow(0, (micro * t.size + t.rank) * 2, 2)
    accelerator:accumulate(model, function()
      accelerator:backward(F.mse_loss(model(part), accelhost.zeros(2, 3):double()))
      optimizer:step()
      optimizer:zero_grad()
    end)
  end
  local expected = reference:parameters()
  for i, parameter in ipairs(model:parameters()) do t.near("weight " .. i, expected[i], parameter, 1e-12) end
  accelerator:free_memory()
end)

add("shares of loaders", "every sample reaches a rank once, shuffled or not, and a seed repeats the order", function(t)
  local accelhost, data = t.accelhost, t.accelhost.data
  local count = 8 * t.size + 3
  local set = data.TensorDataset(accelhost.arange(count))
  for _, shuffle in ipairs {false, true} do
    local orders = {}
    for pass = 1, 2 do
      accelhost.manual_seed(11)
      local loader = t.accelerator:prepare(data.DataLoader(set, {batch_size = 4, shuffle = shuffle}))
      local seen, order = {}, {}
      for batch in loader do
        if type(batch) == "table" then batch = batch[1] end
        for _, index in ipairs(t.accelerator:gather_for_metrics(batch):tolist()) do
          t.check(not seen[index], "sample %d is repeated", index)
          seen[index] = true
          order[#order + 1] = index
        end
      end
      t.same("number of samples", {count}, {#order})
      orders[pass] = order
    end
    t.same("order of the second pass", orders[1], orders[2])
  end
end)

add("training", "three epochs end with the weights that one process gets from the whole batches", function(t)
  local accelhost, nn, F, optim, data = t.accelhost, t.accelhost.nn, t.accelhost.nn.functional, t.accelhost.optim,
    t.accelhost.data
  accelhost.manual_seed(3)
  local x = accelhost.randn(16 * t.size, 1):double()
  local set = data.TensorDataset(x, x * 2 + 3 + accelhost.randn(16 * t.size, 1):double() * 0.1)
  local function train(accelerator, batch_size)
    accelhost.manual_seed(5)
    local model = nn.Linear(1, 1):double()
    local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
    local loader = data.DataLoader(set, {batch_size = batch_size})
    if accelerator then model, optimizer, loader = accelerator:prepare(model, optimizer, loader) end
    for _ = 1, 3 do
      for inputs, targets in loader do
        local loss = F.mse_loss(model(inputs), targets)
        if accelerator then accelerator:backward(loss) else t.backward_alone(loss, model) end
        optimizer:step()
        optimizer:zero_grad()
      end
    end
    return model
  end
  local alone, together = train(nil, 8 * t.size), train(t.accelerator, 8)
  for i, parameter in ipairs(together:parameters()) do
    t.near("weight " .. i, alone:parameters()[i], parameter, 1e-10)
  end
end)

add("saving", "every rank loads the files of rank 0, bit for bit", function(t)
  local accelhost = t.accelhost
  local model = network(t)
  local path = t.folder .. "/model.safetensors"
  if t.rank == 0 then accelhost.save({model = model:state_dict(), step = 3}, path) end
  t.accelerator:wait_for_everyone()
  local saved = accelhost.load(path)
  t.same("step", {3}, {saved.step})
  for name, tensor in pairs(model:state_dict()) do t.near(name, tensor, saved.model[name], 0) end
  t.accelerator:wait_for_everyone()
end)

return checks
