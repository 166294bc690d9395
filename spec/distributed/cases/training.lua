-- A job trains as one process does on the global batch; loaders yield the right batches; metrics are exact.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local state = accelhost.PartialState()
local rank, size = state.process_index, state.num_processes

-- y = 2x + 3 and noise, as Accelerate's own test has it.
local function regression(count)
  accelhost.manual_seed(42)
  local x = accelhost.randn(count, 1):double()
  return data.TensorDataset(x, x * 2 + 3 + accelhost.randn(count, 1):double() * 0.1)
end

local function epochs(model, optimizer, loader, backward)
  for _ = 1, 3 do
    for x, y in loader do
      backward(F.mse_loss(model(x), y))
      optimizer:step()
      optimizer:zero_grad()
    end
  end
end

-- The weights after three epochs in this process, and of the job.
local function both(options, seed)
  local set, global = regression(24 * size), 8 * size
  local function new()
    accelhost.manual_seed(7)
    local model = nn.Linear(1, 1):double()
    return model, optim.SGD(model:parameters(), {lr = 0.2})
  end
  local function order(batch, own_seed) -- the same shuffled order in both
    accelhost.manual_seed(11)
    return data.DataLoader(set, {batch_size = batch, shuffle = true, seed = own_seed})
  end
  local alone, its_optimizer = new()
  epochs(alone, its_optimizer, order(global, seed), function(loss)
    local grads = accelhost.autograd.grad(loss, alone:parameters())
    for i, parameter in ipairs(alone:parameters()) do parameter.grad = grads[i] end
  end)
  local accelerator = accelhost.Accelerator(options)
  local model, optimizer = accelerator:prepare(new())
  local loader = accelerator:prepare(order(accelerator.split_batches and global or 8))
  epochs(model, optimizer, loader, function(loss) accelerator:backward(loss) end)
  return alone, model
end

checks.it("trains as one process does on the global batch", function()
  for _, options in ipairs {{}, {split_batches = true}, {dataloader_config = {dispatch_batches = true}},
    {dataloader_config = {dispatch_batches = true, split_batches = true}}} do
    local alone, model = both(options)
    checks.near(alone.weight, model.weight, "weight", 1e-10)
    checks.near(alone.bias, model.bias, "bias", 1e-10)
    assert((alone.weight - 2):abs():max():item() < 0.5)
  end
  local alone, model = both({dataloader_config = {use_seedable_sampler = true, data_seed = 5}}, 5)
  checks.near(alone.weight, model.weight, "seedable", 1e-10)
end)

checks.it("yields every sample once, in order or shuffled, with every kind of loader", function()
  local count = 32 * size
  for _, dispatch in ipairs {false, true} do
    for _, split in ipairs {false, true} do
      for _, shuffle in ipairs {false, true} do
        accelhost.manual_seed(3)
        local accelerator = accelhost.Accelerator {dataloader_config = {split_batches = split,
          dispatch_batches = dispatch}}
        local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(count)),
          {batch_size = split and 8 * size or 8, shuffle = shuffle}))
        local seen = {}
        for batch in loader do
          for _, sample in ipairs(accelerator:gather(batch):tolist()) do seen[#seen + 1] = sample end
        end
        local sorted = {unpack(seen)}
        table.sort(sorted)
        local all = {}
        for i = 1, count do all[i] = i - 1 end
        checks.same(all, sorted)
        checks.same(not shuffle, table.concat(seen, ",") == table.concat(all, ","))
      end
    end
  end
end)

-- Every sample of some epochs, as this process sees them.
local function orders(config, restart)
  local accelerator = accelhost.Accelerator {dataloader_config = config}
  local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(8 * size)),
    {batch_size = 2, shuffle = true}))
  local seen = {}
  for _ = 1, restart and 2 or 1 do
    if restart then loader:set_epoch(0) end
    local text = ""
    for _ = 1, 3 do
      for batch in loader do text = text .. table.concat(accelerator:gather(batch):tolist(), ",") .. ";" end
    end
    seen[#seen + 1] = text
  end
  return seen
end

checks.it("orders by seed and epoch alone with a seedable sampler", function()
  accelhost.manual_seed(1)
  local first = orders({use_seedable_sampler = true}, true)
  checks.same(first[1], first[2])
  accelhost.randn(5)
  checks.same(first[1], orders({use_seedable_sampler = true})[1])
  accelhost.manual_seed(9)
  local with_seed = orders {use_seedable_sampler = true, data_seed = 42}
  accelhost.manual_seed(8)
  checks.same(with_seed, orders {use_seedable_sampler = true, data_seed = 42})
  assert(with_seed[1] ~= orders({use_seedable_sampler = true, data_seed = 43})[1])
  -- Ranks of different seeds agree on rank 0's.
  accelhost.manual_seed(rank)
  checks.same(8 * size * 3, select(2, orders({use_seedable_sampler = true})[1]:gsub("%d+", "")))
end)

checks.it("counts every sample once in metrics, in every mode", function()
  for _, samples in ipairs {1, 2, 99, 24 * size} do
    for _, dispatch in ipairs {false, true} do
      for _, split in ipairs {false, true} do
        for _, even in ipairs {true, false} do
          local accelerator = accelhost.Accelerator {dataloader_config = {split_batches = split,
            dispatch_batches = dispatch, even_batches = even}}
          local labels = accelhost.arange(samples)
          local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(labels * 2, labels),
            {batch_size = split and 4 * size or 4, shuffle = true}))
          local targets, losses, rounds = {}, 0, 0
          for x, y in loader do
            if even then
              local all_x, all_y = accelerator:gather_for_metrics(x, y)
              assert((all_x - all_y * 2):abs():max():item() == 0)
              targets[#targets + 1] = all_y
              losses = losses + accelerator:gather_for_metrics(y:sum()):numel()
            else
              targets[#targets + 1] = y
            end
            rounds = rounds + 1
          end
          local all = #targets > 0 and accelhost.cat(targets, 0) or labels:narrow(0, 0, 0)
          if not even then all = accelerator:gather(all) end
          all = all:sort()
          checks.same(labels:tolist(), all:tolist(), "samples")
          if even then assert(losses <= rounds * size and losses > (rounds - 1) * size, "a scalar of each") end
        end
      end
    end
  end
end)

checks.it("counts by the batch that is named, after skipping, and for samplers of any length", function()
  local accelerator = accelhost.Accelerator()
  local set = data.TensorDataset(accelhost.arange(10 * size + 1))
  local function count(loader)
    local seen = {}
    for batch in loader do seen[#seen + 1] = accelerator:gather_for_metrics(batch) end
    return accelhost.cat(seen, 0):tolist()
  end
  local loader = accelerator:prepare(data.DataLoader(set, {batch_size = 4}))
  local all = count(loader)
  checks.same(10 * size + 1, #all)
  local rest = count(accelerator:skip_first_batches(loader, 1))
  checks.same({unpack(all, 4 * size + 1)}, rest)
  local full = accelerator:prepare(data.DataLoader(set, {batch_size = 4, drop_last = true}))
  local skipping = accelerator:skip_first_batches(full, 1)
  checks.same({4, true, full.total_batch_size}, {skipping.batch_size, skipping.drop_last, skipping.total_batch_size})
  checks.same(#full - 1, #skipping)
  checks.same(math.floor((10 * size + 1) / (4 * size)) * 4 * size - 4 * size, #count(skipping))
  checks.same(7, #count(accelerator:prepare(data.DataLoader(set, {batch_size = 2, sampler = {1, 2, 3, 4, 5, 6, 7}}))))
  -- Inside another loop the outer batch counts where it is named.
  local outer = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(size + 1))))
  local total = 0
  for x in outer do
    for _ in loader do -- luacheck: ignore 512
      total = total + #accelerator:gather_for_metrics(x, {batch = x})
      break
    end
  end
  checks.same(size + 1, total)
  checks.refused("batch: expected a value that a loader has yielded, got a tensor", function()
    accelerator:gather_for_metrics(accelhost.ones(2), {batch = accelhost.ones(2)})
  end)
end)

checks.it("counts iterable data exactly, of known length or not", function()
  local Lines = data.IterableDataset:extend "Lines"
  function Lines:iter()
    local i = 0
    return function()
      i = i + 1
      return i <= 30 and i or nil
    end
  end
  local Known = Lines:extend "Known"
  function Known:len() return 30 end
  for _, class in ipairs {Lines, Known} do
    for _, dispatch in ipairs {false, true} do
      local accelerator = accelhost.Accelerator {dataloader_config = {dispatch_batches = dispatch}}
      local loader = accelerator:prepare(data.DataLoader(class(), {batch_size = 4}))
      local seen = {}
      for batch in loader do
        for _, line in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = line end
      end
      local all = {}
      for i = 1, 30 do all[i] = i end
      checks.same(all, seen)
    end
  end
end)

checks.it("combines values that are not tensors, without the rows that do not count", function()
  local accelerator = accelhost.Accelerator()
  local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(2 * size + 1)),
    {batch_size = 2}))
  local names, tensors = {}, {}
  for batch in loader do
    local list = {}
    for i, sample in ipairs(batch:tolist()) do list[i] = "n" .. sample end
    for _, name in ipairs(accelerator:gather_for_metrics(list)) do names[#names + 1] = name end
    for _, row in ipairs((accelerator:gather_for_metrics(batch, {use_gather_object = true}))) do
      tensors[#tensors + 1] = row:item()
    end
    local fields = accelerator:gather_for_metrics {x = batch, y = {batch}}
    assert((fields.x - fields.y[1]):abs():sum():item() == 0)
  end
  local expected, numbers = {}, {}
  for i = 0, 2 * size do expected[i + 1], numbers[i + 1] = "n" .. i, i end
  checks.same(expected, names)
  checks.same(numbers, tensors)
end)

checks.it("cuts nothing off where the incomplete batches are dropped", function()
  for _, split in ipairs {false, true} do
    local accelerator = accelhost.Accelerator {split_batches = split}
    local batch = split and 4 * size or 4
    local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(99)),
      {batch_size = batch, drop_last = true}))
    local count = 0
    for x in loader do count = count + #accelerator:gather_for_metrics(x) end
    checks.same(math.floor(99 / (4 * size)) * 4 * size, count)
  end
end)

checks.it("yields each process the batch sizes of Accelerate, even or not", function()
  local function sizes(samples, batch, even)
    local accelerator = accelhost.Accelerator {even_batches = even}
    local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.ones(samples)),
      {batch_size = batch}))
    local list = {}
    for x in loader do list[#list + 1] = #x end
    checks.same(#list, #loader)
    return list
  end
  if size ~= 2 then return end
  checks.same({1, 1}, sizes(3, 1, true))
  checks.same({2, 2}, sizes(7, 2, true))
  checks.same(rank == 0 and {1, 1} or {1}, sizes(3, 1, false))
  checks.same(rank == 0 and {2, 2} or {2, 1}, sizes(7, 2, false))
end)

checks.it("reports missing rows where a value does not fit the batch", function()
  local accelerator = accelhost.Accelerator()
  local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(3 * size - 1)),
    {batch_size = 3}))
  for batch in loader do
    local whole = loader.valid_length == loader.batch_length
    assert(whole == (size == 1 or rank < size - 1))
    if not whole then
      checks.refused("of this batch 2 of 3 rows count: expected a value for each row, got 2", function()
        accelerator:gather_for_metrics(batch:narrow(0, 0, 2))
      end)
    end
  end
end)

checks.it("resumes in the middle of a pass with the rest, iterable or not", function()
  for _, iterable in ipairs {false, true} do
    local set = data.TensorDataset(accelhost.arange(8 * size))
    if iterable then
      local Count = data.IterableDataset:extend "Count"
      function Count:iter()
        local i = -1
        return function()
          i = i + 1
          return i < 8 * size and i or nil
        end
      end
      set = Count()
    end
    local accelerator = accelhost.Accelerator()
    local function new()
      return accelerator:prepare(data.DataLoader(set, {batch_size = 2, shuffle = not iterable or nil}))
    end
    accelhost.manual_seed(4)
    local loader, before, saved = new(), {}, nil
    for batch in loader do
      before[#before + 1] = accelerator:gather(batch)
      if #before == 3 then saved = loader:state_dict() end
    end
    local rest = new()
    rest:load_state_dict(saved)
    local after = {}
    for batch in rest do after[#after + 1] = accelerator:gather(batch) end
    checks.same({before[4]:tolist()}, {after[1]:tolist()})
    checks.same(1, #after)
  end
end)

checks.finish()
