-- virtual_shards in a script, in 1 to 3 processes: its results, and its refusals.
local checks = require "spec.support.checks"
local accelhost = require "accelhost"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local SHARDS, SIZE = 4, 3
local inputs = (function()
  accelhost.manual_seed(7)
  return accelhost.randn(29, 2):double()
end)()

local function prepare(options, loading)
  accelhost.manual_seed(1)
  options = options or {}
  options.virtual_shards = SHARDS
  local accelerator = accelhost.Accelerator(options)
  local model = nn.Linear(2, 1):double()
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  loading = loading or {}
  loading.batch_size = loading.batch_size or SIZE
  return accelerator, accelerator:prepare(model, optimizer, data.DataLoader(data.TensorDataset(inputs), loading))
end
local function loss_of(model, x) return model(x):pow(2):mean() end

local accelerator = accelhost.Accelerator()
local ranks, turns = accelerator.num_processes, math.ceil(SHARDS / accelerator.num_processes)

checks.it("trains as one process on the global batch does", function()
  for _, options in ipairs {{}, {even_batches = false}} do
    local job, model, optimizer, loader = prepare(options)
    local reference = nn.Linear(2, 1):double()
    reference:load_state_dict(model:state_dict())
    local plain = optim.SGD(reference:parameters(), {lr = 0.1})
    for x in loader do
      job:backward(loss_of(model, x))
      optimizer:step()
      optimizer:zero_grad()
    end
    for first = 0, 24, 12 do
      local batch = inputs:narrow(0, first, math.min(12, 29 - first))
      if options.even_batches == nil and first == 24 then
        batch = accelhost.cat {batch, inputs:narrow(0, 0, 7)} -- filled up
      end
      plain:zero_grad()
      loss_of(reference, batch):backward()
      plain:step()
    end
    checks.near(reference.weight, model.weight, "weight")
  end
end)

checks.it("has as many steps for any number of processes, and shards in turn", function()
  local job, model, optimizer, loader = prepare()
  checks.same(3, #loader)
  checks.same(turns, loader.turns)
  checks.same(3 * turns, accelhost.progress(loader, {disable = true}).total)
  local seen, steps, rows = 0, 0, {}
  for x in loader do
    seen = seen + 1
    checks.same(seen % turns == 0, job.sync_gradients, "turn " .. seen)
    job:backward(loss_of(model, x))
    checks.same(seen % turns == 0, model.weight.grad ~= nil, "gradient in turn " .. seen)
    optimizer:step()
    if job.sync_gradients then steps = steps + 1 end
    optimizer:zero_grad()
    rows[#rows + 1] = job:gather_for_metrics(x)
  end
  checks.same(3, steps)
  checks.same(3 * turns, seen)
  checks.near(inputs, accelhost.cat(rows), "rows in their order")
  checks.same(1, accelhost.get_num_threads())
end)

checks.it("cuts a batch into its shards with split_batches", function()
  local job, model, _, loader = prepare({split_batches = true}, {batch_size = 12})
  local rows = {}
  for x in loader do
    checks.same(3, x:size(0))
    job:backward(loss_of(model, x))
    rows[#rows + 1] = job:gather_for_metrics(x)
  end
end)

checks.it("means weights over shards", function()
  local job, model, _, loader = prepare({}, {batch_size = 1})
  local count = 0
  local expected = model(inputs:narrow(0, 0, 4)):flatten()
  expected = (expected * accelhost.tensor {1, 2, 3, 4}:double()):sum() / 10
  local gradient = accelhost.autograd.grad(expected, {model.weight})[1]
  for x in loader do
    local shard = count * ranks + job.process_index
    job:backward(model(x):sum(), {weight = shard + 1})
    count = count + 1
    if job.sync_gradients then break end
  end
  checks.near(gradient, model.weight.grad, "weighted")
end)

checks.it("keeps gradients that were there, and uses parameters that only some shards used", function()
  local job, model = prepare()
  local extra = accelhost.zeros(1):double():requires_grad_()
  local Both = nn.Module:extend "Both"
  function Both:init() self.linear, self.extra = model, nn.Parameter(extra) end
  function Both:forward(x, uses) return self.linear(x):sum() + (uses and self.extra:sum() or 0) end
  job:free_memory()
  local both = job:prepare(Both())
  local loader = job:prepare(data.DataLoader(data.TensorDataset(inputs), {batch_size = SIZE}))
  both.linear.weight.grad = accelhost.ones(1, 2):double()
  local turn = 0
  for x in loader do
    local shard = turn * ranks + job.process_index
    job:backward(both(x, shard == 1))
    turn = turn + 1
    if job.sync_gradients then break end
  end
  checks.near(accelhost.full({1}, 0.25):double(), both.extra.grad, "extra")
  checks.near(inputs:narrow(0, 0, 12):sum(0):reshape(1, 2) / 4 + 1, both.linear.weight.grad, "added")
end)

checks.it("refuses a loss of no batch, and a second backward of one", function()
  local job, model, _, loader = prepare()
  checks.refused("inside its `for`", function() job:backward(model(inputs):sum()) end)
  local x = loader:batches()()
  job:backward(loss_of(model, x))
  checks.refused("a batch has one backward", function() job:backward(loss_of(model, x)) end)
  -- A round that a break left is dropped, with a word.
  model:zero_grad()
  for batch in loader do
    job:backward(loss_of(model, batch))
    if job.sync_gradients then break end
  end
  checks.near(accelhost.autograd.grad(loss_of(model, inputs:narrow(0, 0, 12)), {model.weight})[1], model.weight.grad)
end)

checks.it("refuses calls that would depend on the number of processes", function()
  local job, model, optimizer, loader = prepare()
  checks.refused("one model that is trained", function() job:prepare(nn.Linear(1, 1)) end)
  checks.refused("equally many batches", function() job:join_uneven_inputs({model}, function() end) end)
  checks.refused("add up over steps by accumulate", function() job:no_sync(model, function() end) end)
  checks.refused("averaged at a batch's last shard only", function() job:trigger_sync_in_backward(model) end)
  checks.refused("a closure would see one shard", function() optimizer:step(function() end) end)
  checks.refused("cut into the same shards", function()
    local Count = data.IterableDataset:extend "Count"
    function Count:iter() return function() end end -- luacheck: ignore self
    job:prepare(data.DataLoader(Count(), {batch_size = 1}))
  end)
  checks.refused("yields a process's own sampler shard already", function()
    job:prepare(data.DataLoader(data.TensorDataset(inputs), {already_sharded = true}))
  end)
  for option, given in pairs {
    ["comm_hook = 'bf16'"] = {kwargs_handlers = {accelhost.DistributedDataParallelKwargs {comm_hook = "bf16"}}},
    ["broadcast_buffers"] = {kwargs_handlers = {accelhost.DistributedDataParallelKwargs {broadcast_buffers = false}}},
    ["dispatch_batches"] = {dataloader_config = {dispatch_batches = true}},
    ["sync_each_batch"] = {gradient_accumulation_plugin = {num_steps = 2, sync_each_batch = true}},
    ["scheduler_steps"] = {scheduler_steps = "per_process"},
  } do
    given.virtual_shards = SHARDS
    checks.refused("virtual_shards excludes " .. option, function() accelhost.Accelerator(given) end)
  end
  checks.refused("virtual_shards", function() accelhost.Accelerator {virtual_shards = 0} end)
  for x in loader do
    if not job.sync_gradients then
      checks.refused("where accelerator.sync_gradients is true", function() job:save_state "nowhere" end)
    end
    job:backward(loss_of(model, x))
  end
end)

checks.it("acts on a signal when a step is complete, on all processes", function()
  local job, model, _, loader = prepare()
  job:save_on_signal {signals = {"USR1"}}
  local turn, name = 0, false
  for x in loader do
    if turn == 0 and job.is_main_process then
      os.execute("kill -USR1 " .. io.open "/proc/self/stat":read "*n")
    end
    job:backward(loss_of(model, x))
    turn = turn + 1
    name = job:check_signal {save = false}
    if name then break end
  end
  checks.same("USR1", name)
  checks.same(turns, turn)
end)

checks.it("draws apart in each shard, and together outside of them", function()
  local job, _, _, loader = prepare()
  local before, drawn = accelhost.randn(1):item(), {}
  for _ in loader do drawn[#drawn + 1] = accelhost.randn(1):item() end
  local after = accelhost.randn(1):item()
  local common = job:gather(accelhost.tensor {before, after}:double())
  for i = 2, ranks do
    checks.near(common:narrow(0, 0, 2), common:narrow(0, 2 * i - 2, 2), "outside")
  end
  local all = job:gather(accelhost.tensor(drawn)):tolist()
  for i = 1, #all do
    for j = 1, i - 1 do assert(all[i] ~= all[j], "shards draw alike") end
  end
end)

checks.finish()
