-- The guarantees of an accelerator, checked by every rank; prints "ok" at the end.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local function same(expected, got, what)
  assert(#expected == #got, what .. ": length")
  for i = 1, #expected do
    assert(expected[i] == got[i], ("%s: item %d: expected %s, got %s"):format(what, i, expected[i], got[i]))
  end
end

local near = checks.near

local accelerator = accelhost.Accelerator()
local rank, size = accelerator.process_index, accelerator.num_processes

-- properties
assert(accelerator.is_main_process == (rank == 0))
assert(accelerator.is_last_process == (rank == size - 1))
assert(accelerator.device == accelhost.get_default_device())

-- gather: scalars, ragged rows, tables; every rank has the whole
local ranks = {}
for r = 0, size - 1 do ranks[#ranks + 1] = r end
same(ranks, accelerator:gather(accelhost.tensor(rank)):tolist(), "gather of scalars")
local rows, expected = accelhost.full({rank + 1}, rank), {}
for r = 0, size - 1 do for _ = 0, r do expected[#expected + 1] = r end end
same(expected, accelerator:gather(rows):tolist(), "gather of unequal lengths")
local first, second = accelerator:gather(accelhost.tensor(rank), {x = accelhost.tensor(-rank)})
assert(#first == size and second.x[size - 1]:item() == 1 - size)

-- reduce does not change its argument
local value = accelhost.tensor({rank, 1}, {dtype = "float64"})
same({size * (size - 1) / 2, size}, accelerator:reduce(value):tolist(), "sum")
same({(size - 1) / 2, 1}, accelerator:reduce(value, "mean"):tolist(), "mean")
same({size - 1, 1}, accelerator:reduce(value, "max"):tolist(), "max")
same({rank, 1}, value:tolist(), "the argument")
assert(not pcall(accelerator.reduce, accelerator, value, "none"))
assert(not pcall(accelerator.reduce, accelerator, accelhost.tensor(1):long(), "mean"))
assert(not pcall(accelerator.reduce, accelerator, accelhost.tensor(true)))
assert(accelerator:reduce(accelhost.tensor(rank == 0), "max"):item() == true)

-- pad_across_processes
local padded = accelerator:pad_across_processes(accelhost.full({rank + 1}, 1), {pad_index = -1})
assert(#padded == size and padded:eq(1):sum():item() == rank + 1)

-- triggers
assert(accelerator:check_trigger() == false)
if accelerator.is_last_process then accelerator:set_trigger() end
assert(accelerator:check_trigger() == true)
assert(accelerator:check_trigger() == false)

-- split_between_processes: 17 items
local items = {}
for i = 1, 17 do items[i] = i end
local part = accelerator:split_between_processes(items)
local total = accelerator:reduce(accelhost.tensor(#part)):item()
assert(total == 17 and #part - math.floor(17 / size) <= 1)

part = accelerator:split_between_processes({names = items, values = accelhost.arange(17)}, {apply_padding = true})
assert(#part.names == math.ceil(17 / size) and #part.values == #part.names)
for i, name in ipairs(part.names) do assert(part.values[i - 1]:item() + 1 == name) end
assert(not pcall(accelerator.split_between_processes, accelerator, {a = {1}, b = {1, 2}}))
assert(#accelerator:split_between_processes({}, {apply_padding = true}) == 0)

-- prepare: rank 0's weights everywhere, and the mean over the global batch
local function problem()
  accelhost.manual_seed(5)
  local model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)):double()
  local inputs = accelhost.randn(12 * size, 3):double()
  local labels = accelhost.arange(12 * size) % 2
  return model, inputs, labels
end

local reference, inputs, labels = problem()
local model = problem()
if rank > 0 then accelhost.no_grad(function() model[1].weight:add_(rank) end) end
local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
local same_model
same_model, optimizer = accelerator:prepare(model, optimizer)
assert(same_model == model and accelerator:unwrap_model(model) == model)
assert(accelerator:prepare(model) == model, "preparing twice is harmless")

local reference_optimizer = optim.SGD(reference:parameters(), {lr = 0.1})
for _ = 1, 3 do
  F.cross_entropy(reference(inputs), labels):backward()
  reference_optimizer:step()
  reference_optimizer:zero_grad()
  local mine = {start = 12 * rank}
  accelerator:backward(F.cross_entropy(model(inputs:narrow(0, mine.start, 12)), labels:narrow(0, mine.start, 12)))
  optimizer:step()
  optimizer:zero_grad()
end
for i, parameter in ipairs(model:parameters()) do near(reference:parameters()[i], parameter, "parameter " .. i) end

-- accumulation over micro-steps with weights: the mean over all samples
F.cross_entropy(reference(inputs), labels):backward()
accelerator.gradient_accumulation_steps = 2
local synced = {}
for step = 1, 2 do
  accelerator:accumulate(model, function()
    local start, length = 12 * rank + (step == 1 and 0 or 4), step == 1 and 4 or 8
    local loss = F.cross_entropy(model(inputs:narrow(0, start, length)), labels:narrow(0, start, length))
    accelerator:backward(loss, {weight = length})
    synced[step] = accelerator.sync_gradients
    optimizer:step()
    if step == 1 then optimizer:zero_grad() end
  end)
end
same({false, true}, synced, "which micro-step synchronises")
for i, parameter in ipairs(model:parameters()) do
  near(reference:parameters()[i].grad, parameter.grad, "accumulated gradient " .. i)
end
accelerator.gradient_accumulation_steps = 1
optimizer:zero_grad()
reference:zero_grad()

-- no_sync: gradients stay local until the next synchronising backward
accelerator:no_sync(model, function()
  accelerator:backward(model(inputs:narrow(0, 0, 1)):sum() * (rank + 1))
end)
assert(accelerator.sync_gradients)
local spread = accelerator:gather(model[1].weight.grad:abs():sum():reshape(1))
assert(size == 1 or spread[0]:item() ~= spread[1]:item(), "local gradients differ")
optimizer:zero_grad()

-- a branch that only some ranks run: the others count as zero; one that no rank runs stays without gradient
local Branches = nn.Module:extend "Branches"
function Branches:init()
  self.shared, self.some, self.none = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)
end
function Branches:forward(x, use) return use and self.shared(x) + self.some(x) or self.shared(x) end
local branches = accelerator:prepare(Branches())
local x = accelhost.ones(1, 2)
accelerator:backward(branches(x, rank == 0):sum())
assert(branches.none.weight.grad == nil)
assert(math.abs(branches.some.bias.grad:item() - 1 / size) < 1e-6)
assert(branches.shared.bias.grad:item() == 1)

-- a shared parameter is averaged once, after its last use
local tied = nn.Linear(2, 2, {bias = false})
local pair = accelerator:prepare(nn.Sequential(tied, tied))
accelerator:backward(pair(accelhost.full({1, 2}, rank + 1)):sum())
local everyone = accelerator:gather(tied.weight.grad:reshape(1, 4))
for r = 1, size - 1 do same(everyone[0]:tolist(), everyone[r]:tolist(), "shared gradient") end

-- gather_for_metrics is exact where ranks or batches do not divide the samples
local set = data.TensorDataset(accelhost.arange(10))
local loader = accelerator:prepare(data.DataLoader(set, {batch_size = 3}))
local seen = {}
for batch in loader do
  for _, item in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = item end
end
same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, seen, "metrics")

-- changing the model's parameters behind prepare's back is noticed
branches.extra = nn.Linear(1, 1)
local ok, message = pcall(function() accelerator:backward(branches(x, true):sum()) end)
assert(not ok and message:find("prepare it again", 1, true), message)

accelerator:wait_for_everyone()
print("ok")
