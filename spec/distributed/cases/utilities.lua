-- Gathering objects, choosing the process that works, and the order of steps.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, optim, data, utils = accelhost.nn, accelhost.optim, accelhost.data, accelhost.utils

local state = accelhost.PartialState()
local rank, size = state.process_index, state.num_processes
local accelerator = accelhost.Accelerator()
local place = tonumber(os.getenv "LOCAL_RANK") -- on this host
local first_here = rank - place

local function numbers(first, last)
  local list = {}
  for i = first, last do list[#list + 1] = i end
  return list
end

checks.it("gathers, broadcasts, pads and reduces as Accelerate does", function()
  local mine = accelhost.tensor(numbers(rank * size + 1, rank * size + size))
  checks.same(numbers(1, size * size), utils.gather(mine):tolist())
  local turned = accelhost.arange(6):reshape(2, 3):t()
  checks.same({3 * size, 2}, utils.gather(turned):shape())
  checks.same(turned:tolist(), utils.gather({turned})[1]:narrow(0, 3 * (size - 1), 3):tolist())
  for from = 0, size - 1 do
    checks.same(numbers(from * size + 1, from * size + size), utils.broadcast({x = mine}, from).x:tolist())
  end
  checks.same(numbers(rank * size + 1, rank * size + size), mine:tolist(), "the argument")
  local padded = utils.pad_across_processes(accelhost.ones(rank + 1), {pad_index = 0})
  checks.same({size, rank + 1}, {#padded, padded:sum():item()})
  checks.same(0, utils.pad_across_processes(accelhost.ones(rank + 1), {pad_first = true})[0]:item() - (rank + 1 == size
    and 1 or 0))
  local pair = accelhost.tensor {rank + 1, rank + 2}
  local sum = size * (size + 1) / 2
  checks.same({sum, sum + size}, utils.reduce(pair, "sum"):tolist())
  checks.near(accelhost.tensor {sum / size, sum / size + 1}, utils.reduce(pair), "mean", 1e-6)
  checks.same({size, size + 1}, utils.reduce(pair, "max"):tolist())
  checks.same({2 * sum, 2 * (sum + size)}, utils.reduce(pair, "sum", 2):tolist())
end)

checks.it("gathers objects", function()
  local all = utils.gather_object {{name = "r" .. rank, x = accelhost.tensor {rank}}, "last"}
  checks.same(2 * size, #all)
  for r = 0, size - 1 do checks.same({"r" .. r, r, "last"}, {all[2 * r + 1].name, all[2 * r + 1].x:item(),
    all[2 * r + 2]}) end
  local list = {"mine", rank, {deep = rank}}
  assert(utils.broadcast_object_list(list, size - 1) == list)
  checks.same({"mine", size - 1, {deep = size - 1}}, list)
  list = rank == 0 and {1, 2} or {}
  checks.same({1, 2}, utils.broadcast_object_list(list))
  local given = rank == size - 1 and accelhost.tensor {3, 4} or nil
  checks.same({3, 4}, utils.copy_tensor_to_devices(given):tolist())
  checks.refused("value[1]: a function cannot be serialized", function() utils.gather_object {print} end)
end)

checks.it("shares work between the processes as Accelerate does", function()
  local items = numbers(1, 17)
  local base, extra = math.floor(17 / size), 17 % size
  local first = rank * base + math.min(rank, extra)
  local part = accelerator:split_between_processes(items)
  checks.same(numbers(first + 1, first + base + (rank < extra and 1 or 0)), part)
  local fields = {names = items, values = accelhost.arange(17)}
  local both = accelerator:split_between_processes(fields, true)
  checks.same(17, #fields.names, "the caller's own")
  local all = accelerator:gather(both.values)
  checks.same(numbers(0, 16), all:unique():tolist())
  checks.same(math.ceil(17 / size), #both.names)
  checks.same(part, state:split_between_processes(items, {fn = function(list) return list end}))
end)

checks.it("runs on the processes that are named", function()
  local function ran(make)
    local here = 0
    make(function(by) here = by end)(1)
    return here
  end
  local one = size == 1
  checks.same(rank == 0 and 1 or 0, ran(function(fn) return accelerator:on_main_process(fn) end))
  checks.same(place == 0 and 1 or 0, ran(function(fn) return accelerator:on_local_main_process(fn) end))
  checks.same(rank == size - 1 and 1 or 0, ran(function(fn) return accelerator:on_last_process(fn) end))
  checks.same((one or rank == 1) and 1 or 0, ran(function(fn)
    return accelerator:on_process(fn, {process_index = 1})
  end))
  checks.same((one or place == 1) and 1 or 0, ran(function(fn) return state:on_local_process(fn, 1) end))
  checks.refused("on_process: 'process_index' is missing", function() accelerator:on_process(print) end)
  checks.refused("on_main_process: fn: expected a function", function() accelerator:on_main_process(3) end)
end)

checks.it("runs the main process first", function()
  local name = utils.broadcast_object_list({os.tmpname()})[1]
  for first, leader in pairs {main_process_first = 0, local_main_process_first = first_here} do
    local path = name .. "." .. leader
    local result = accelerator[first](accelerator, function()
      local file = io.open(path, "a")
      file:write(rank, ";")
      file:close()
      return rank
    end)
    checks.same(rank, result)
    accelerator:wait_for_everyone()
    local file = io.open(path)
    checks.same(leader, file:read "*n")
    file:close()
    accelerator:wait_for_everyone()
    if rank == leader then os.remove(path) end
    accelerator:wait_for_everyone()
  end
  if rank == 0 then os.remove(name) end
end)

checks.it("hears a trigger of any process", function()
  checks.same(false, accelerator:check_trigger())
  if rank == size - 1 then accelerator:set_trigger() end
  checks.same(true, accelerator:check_trigger())
  checks.same(false, accelerator:check_trigger())
end)

checks.it("draws alike after the generators were synchronised", function()
  local function agreed()
    local all = accelerator:gather(accelhost.rand({1}, {device = "cpu"}):double())
    return all:max():item() == all:min():item()
  end
  accelhost.set_seed(3, {device_specific = true})
  assert(size == 1 or not agreed())
  utils.synchronize_rng_states {"torch"}
  assert(agreed())
  local generator = accelhost.Generator(rank)
  utils.synchronize_rng_state("generator", generator)
  checks.same(0, generator:initial_seed() * 0)
  local drawn = accelerator:gather(accelhost.rand({1}, {generator = generator, device = "cpu"}))
  checks.same(drawn:max():item(), drawn:min():item())
  accelhost.set_seed(3)
  assert(agreed())
end)

-- Rates of a schedule after each of some steps.
local function rates(options, make, steps)
  local own = accelhost.Accelerator(options)
  local model = nn.Linear(1, 1)
  local optimizer = optim.SGD(model:parameters(), {lr = 1})
  local scheduler
  model, optimizer, scheduler = own:prepare(model, optimizer, make(optimizer))
  local seen = {}
  for i = 1, steps do
    own:accumulate(model)
    own:backward(model(accelhost.ones(1, 1)):sum())
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    seen[i] = math.floor(optimizer.param_groups[1].lr * 1e6 + 0.5) / 1e6
  end
  return seen, scheduler
end

checks.it("steps a scheduler once with its optimizer, or once per process", function()
  local function tenths(optimizer)
    return optim.lr_scheduler.LambdaLR(optimizer, function(n) return 1 - n / 10 end)
  end
  checks.same({0.9, 0.8}, (rates({}, tenths, 2)))
  checks.same({1 - size / 10, 1 - 2 * size / 10}, (rates({scheduler_steps = "per_process"}, tenths, 2)))
  checks.same({0.9, 0.8}, (rates({scheduler_steps = "per_process", split_batches = true}, tenths, 2)))
  checks.same({1, 0.9, 0.9, 0.8}, (rates({gradient_accumulation_steps = 2}, tenths, 4)))
  checks.same({0.9, 0.8, 0.7}, (rates({gradient_accumulation_steps = 2, step_scheduler_with_optimizer = false}, tenths,
    3)))
end)

checks.it("keeps the rate where a step was skipped, on all processes although one alone overflowed", function()
  local own = accelhost.Accelerator {mixed_precision = "fp16"}
  local model = nn.Linear(1, 1)
  local optimizer = optim.SGD(model:parameters(), {lr = 1})
  local scheduler = optim.lr_scheduler.LambdaLR(optimizer, function(n) return 1 - n / 10 end)
  model, optimizer, scheduler = own:prepare(model, optimizer, scheduler)
  local seen = {}
  for i, factor in ipairs {1, rank == size - 1 and math.huge or 1, 1} do
    own:backward(model(accelhost.ones(1, 1)):sum() * 1e-3 * factor)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    seen[i] = math.floor(optimizer.param_groups[1].lr * 10 + 0.5) / 10
    checks.same(i == 2, own.optimizer_step_was_skipped)
  end
  checks.same({0.9, 0.9, 0.8}, seen)
end)

checks.it("does not step past the end of a schedule", function()
  local function cycle(optimizer)
    return optim.lr_scheduler.OneCycleLR(optimizer, {max_lr = 0.01, steps_per_epoch = 2, epochs = 1})
  end
  for _, mode in ipairs {"optimizer", "per_process"} do
    local seen = rates({scheduler_steps = mode}, cycle, 5)
    checks.same(seen[4], seen[5])
  end
end)

checks.it("decays a linear schedule of 20 steps to 0 whatever the accumulation", function()
  for _, steps in ipairs {1, 2, 4} do
    for _, mode in ipairs {"optimizer", "per_process"} do
      local per = mode == "per_process" and size or 1
      local seen = rates({gradient_accumulation_plugin = {num_steps = steps}, scheduler_steps = mode},
        function(optimizer) return optim.get_linear_schedule_with_warmup(optimizer, 0, 20 * per) end, 20 * steps)
      assert(seen[20 * steps - 1] > 0 or steps == 1 and seen[19] > 0, "before the end")
      checks.same(0, seen[20 * steps])
    end
  end
end)

checks.it("ties a scheduler to its own optimizer among several", function()
  local model, other = nn.Linear(1, 1), nn.Linear(1, 1)
  local first, second = optim.SGD(model:parameters(), {lr = 1}), optim.SGD(other:parameters(), {lr = 1})
  local scheduler = optim.lr_scheduler.ExponentialLR(second, 0.5)
  model, other, first, second, scheduler = accelerator:prepare(model, other, first, second, scheduler)
  accelerator:backward((model(accelhost.ones(1, 1)) + other(accelhost.ones(1, 1))):sum())
  first:step()
  second:step()
  scheduler:step()
  checks.same({1, 0.5}, {first.param_groups[1].lr, second.param_groups[1].lr})
  checks.same(false, accelerator.optimizer_step_was_skipped)
  first:train()
  first:eval()
end)

checks.it("averages weights now and then in LocalSGD", function()
  local own = accelhost.Accelerator()
  local model = nn.Linear(2, 1, {bias = false}):double()
  local optimizer = optim.SGD(model:parameters(), {lr = 1})
  model, optimizer = own:prepare(model, optimizer)
  local start, agreements = model.weight:detach():clone(), {}
  local local_sgd = accelhost.LocalSGD(own, model, 3)
  local function agreed()
    local all = own:gather(model.weight:detach())
    return (all - all:narrow(0, 0, 1)):abs():max():item() == 0
  end
  local_sgd:run(function()
    for i = 1, 4 do
      own:backward(model(accelhost.full({1, 2}, rank + 1):double()):sum())
      optimizer:step()
      optimizer:zero_grad()
      local_sgd:step()
      agreements[i] = agreed()
    end
  end)
  checks.same({size == 1, size == 1, true, size == 1}, agreements)
  assert(agreed(), "at the end")
  checks.near(start - 4 * (size + 1) / 2, model.weight, "mean of the steps")
  own:backward(model(accelhost.full({1, 2}, rank + 1):double()):sum())
  checks.near(accelhost.full({1, 2}, (size + 1) / 2):double(), model.weight.grad, "averaged again")
end)

checks.it("continues with one batch size on all processes", function()
  local tried = {}
  local train = accelhost.find_executable_batch_size(function(batch_size)
    tried[#tried + 1] = batch_size
    if rank == size - 1 and batch_size > 100 then error "out of memory" end
    return batch_size
  end)
  checks.same(92, train())
  checks.same({128, 115, 103, 92}, tried)
end)

checks.it("prepares single objects, evaluation models and samplers that shard themselves", function()
  local own = accelhost.Accelerator()
  local model = nn.Linear(1, 1)
  accelhost.no_grad(function() model.weight:fill_(rank) end)
  own:prepare_model(model, {evaluation_mode = true})
  checks.same(rank, model.weight:item(), "each its own")
  local trained = own:prepare_model(nn.Linear(1, 1))
  local optimizer = own:prepare_optimizer(optim.SGD(trained:parameters()))
  local scheduler = own:prepare_scheduler(optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
  assert(own:prepare_optimizer(optimizer) == optimizer and scheduler)
  local set = data.TensorDataset(accelhost.arange(4 * size))
  local sampler = data.DistributedSampler(set, {shuffle = false})
  local loader = own:prepare_data_loader(data.DataLoader(set, {batch_size = 2, sampler = sampler}))
  local seen = {}
  for batch in loader do
    for _, i in ipairs(own:gather(batch):tolist()) do seen[#seen + 1] = i end
  end
  table.sort(seen)
  checks.same(numbers(0, 4 * size - 1), seen)
  -- Repetitions of such a sampler do not count either.
  set = data.TensorDataset(accelhost.arange(4 * size + 1))
  loader = own:prepare(data.DataLoader(set, {batch_size = 2, sampler = data.DistributedSampler(set)}))
  seen = {}
  for batch in loader do
    for _, i in ipairs(own:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = i end
  end
  table.sort(seen)
  checks.same(numbers(0, 4 * size), seen)
  checks.refused("prepare_model: expected a model, got a SGD", function()
    own:prepare_model(optim.SGD(trained:parameters()))
  end)
  local plain, moved = own:prepare(nn.Linear(1, 1), nn.Linear(1, 1), {device_placement = {false, true}})
  assert(plain and moved)
  checks.refused("device_placement: expected one for each of the 2 objects, got 1", function()
    own:prepare(nn.Linear(1, 1), nn.Linear(1, 1), {device_placement = {true}})
  end)
end)

checks.it("works with two accelerators, and again after free_memory", function()
  local first, second = accelhost.Accelerator {gradient_accumulation_steps = 2}, accelhost.Accelerator()
  local a, b = first:prepare(nn.Linear(1, 1)), second:prepare(nn.Linear(1, 1))
  local loader = first:prepare(data.DataLoader(data.TensorDataset(accelhost.arange(2 * size))))
  checks.same(loader, second:prepare(loader))
  for x in loader do checks.same(size, #second:gather_for_metrics(x)) end
  first:accumulate(a)
  checks.same({false, true}, {first.sync_gradients, second.sync_gradients})
  second:backward(b(accelhost.full({1, 1}, rank + 1)):sum())
  checks.same((size + 1) / 2, b.weight.grad:item())
  checks.same(nil, (first:free_memory(a)))
  checks.same({0, true}, {first.step, first.sync_gradients})
  checks.same(first:prepare(a), a)
  local state_dict = first:get_state_dict(a)
  local names = {}
  for name in pairs(state_dict) do names[#names + 1] = name end
  table.sort(names)
  checks.same({"bias", "weight"}, names)
end)

checks.finish()
