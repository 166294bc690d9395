-- Collectives with gradients. Every process knows all inputs, so that it computes the expected numbers alone.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local dist = accelhost.distributed

local accelerator = accelhost.Accelerator()
local rank, size = accelerator.process_index, accelerator.num_processes

-- Input and weight of the loss of process r.
local function values(r, n)
  local steps = accelhost.arange(n or 6, {dtype = "float64"})
  return ((steps + 1) * (r + 1) / 7):sin():view(-1, 3), ((steps + 2) * (r + 2) / 5):cos():view(-1, 3)
end

local function leaf(r, n) return (values(r, n)):clone():requires_grad_() end

-- The gradient of this process's input where process r has the loss loss_of(r, inputs).
local function expected(loss_of)
  local inputs, total = {}, 0
  for r = 0, size - 1 do inputs[r] = leaf(r) end
  for r = 0, size - 1 do total = total + loss_of(r, inputs) end
  return accelhost.autograd.grad(total, {inputs[rank]}, {allow_unused = true})[1] or accelhost.zeros_like(inputs[rank])
end

-- Of no loss of a prepared model, so `backward` would warn.
local function grad_of(loss, x) return accelhost.autograd.grad(loss, {x})[1] end

local function weigh(r, tensor, more) return (tensor * select(2, values(r)) * (more or 1)):sum() end

local function sum_of(inputs)
  local sum = 0
  for r = 0, size - 1 do sum = sum + inputs[r]:tanh() end
  return sum
end

-- name -> {this process's loss by the collective, the loss of process r by all inputs}
local cases = {
  all_reduce = {function(x) return weigh(rank, dist.nn.all_reduce(x:tanh()):exp()) end,
    function(r, inputs) return weigh(r, sum_of(inputs):exp()) end},
  all_reduce_mean = {function(x) return weigh(rank, dist.nn.all_reduce(x:tanh(), "mean"):exp()) end,
    function(r, inputs) return weigh(r, (sum_of(inputs) / size):exp()) end},
  broadcast = {function(x) return weigh(rank, dist.nn.broadcast(x, size - 1):exp()) end,
    function(r, inputs) return weigh(r, inputs[size - 1]:exp()) end},
  reduce = {function(x) return weigh(rank, dist.nn.reduce(x:tanh(), 0, "mean"):exp()) end,
    function(r, inputs) return r == 0 and weigh(r, (sum_of(inputs) / size):exp()) or 0 end},
  all_gather = {function(x) return weigh(rank, dist.nn.all_gather(x)[1] * dist.nn.all_gather(x)[size]) end,
    function(r, inputs) return weigh(r, inputs[0] * inputs[size - 1]) end},
  gather = {function(x)
    local list = dist.nn.gather(x, 0)
    return weigh(rank, list[1] * list[size])
  end, function(r, inputs) return r == 0 and weigh(r, inputs[0] * inputs[size - 1]) or 0 end},
  scatter = {function(x)
    local list = {}
    for r = 0, size - 1 do list[r + 1] = x:tanh() * (r + 1) end
    return weigh(rank, dist.nn.scatter(list, 0):exp())
  end, function(r, inputs) return weigh(r, (inputs[0]:tanh() * (r + 1)):exp()) end},
  reduce_scatter = {function(x)
    local list = {}
    for r = 0, size - 1 do list[r + 1] = x:tanh() * (r + 1) end
    return weigh(rank, dist.nn.reduce_scatter(accelhost.empty_like(x), list, dist.ReduceOp.AVG):exp())
  end, function(r, inputs) return weigh(r, (sum_of(inputs) * ((r + 1) / size)):exp()) end},
  all_to_all = {function(x)
    local given, room = {}, {}
    for r = 0, size - 1 do
      given[r + 1], room[r + 1] = x:narrow(0, r % 2, 1), accelhost.empty(1, 3, {dtype = "float64"})
    end
    return (accelhost.cat(dist.nn.all_to_all(room, given), 0):exp() * (rank + 1)):sum()
  end, function(r, inputs)
    local sum = 0
    for from = 0, size - 1 do sum = sum + inputs[from]:narrow(0, r % 2, 1):exp():sum() end
    return sum * (r + 1)
  end},
}

local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)

for _, name in ipairs(names) do
  local case = cases[name]
  checks.it(name .. " has the gradient of the same function of all inputs", function()
    local x = leaf(rank)
    checks.near(expected(case[2]), grad_of(case[1](x), x), name)
  end)
end

checks.it("all_to_all_single returns rows of every process, in parts of any sizes, and their gradients", function()
  local x = leaf(rank, 3 * (size + 1))
  local given, taken = {}, {}
  for r = 0, size - 1 do
    given[r + 1] = r == 0 and 2 or 1
    taken[r + 1] = rank == 0 and 2 or 1
  end
  local room = accelhost.empty(rank == 0 and 2 * size or size, 3, {dtype = "float64"})
  local out = dist.nn.all_to_all_single(room, x, taken, given)
  checks.near(2 * x:detach(), grad_of((out * out):sum(), x), "all_to_all_single")
end)

checks.it("the gradients of a model that was prepared are averaged in the same backward", function()
  accelhost.manual_seed(3)
  local model = accelerator:prepare(accelhost.nn.Linear(3, 2))
  local input = values(rank):to "float32"
  local outputs = accelhost.cat(dist.nn.all_gather(model(input)), 0)
  accelerator:backward(outputs:pow(2):sum())
  accelhost.manual_seed(3)
  local alone, all = accelhost.nn.Linear(3, 2), {}
  for r = 0, size - 1 do all[r + 1] = (values(r)):to "float32" end
  local gradient = grad_of(alone(accelhost.cat(all, 0)):pow(2):sum(), alone.weight)
  checks.near(gradient, model.weight.grad, "weight.grad", 1e-5)
end)

checks.it("MultipleNegativesRankingLoss compares the anchors of a process with the texts of all", function()
  local function model(features) return {sentence_embedding = features} end
  local Loss = accelhost.models.MultipleNegativesRankingLoss
  local anchors, positives = {}, {}
  for r = 0, size - 1 do anchors[r + 1], positives[r + 1] = leaf(r), select(2, values(r)) end
  local x = anchors[rank + 1]
  local loss = Loss(model, {gather_across_devices = true}) {x, positives[rank + 1]}
  local alone = Loss(model) {accelhost.cat(anchors, 0), accelhost.cat(positives, 0)}
  checks.near(alone, dist.nn.all_reduce(loss, "mean"), "loss")
  checks.near(grad_of(alone, x) * size, grad_of(loss, x), "gradient")
end)

checks.it("a list of another length and an operation without a gradient are refused", function()
  checks.refused("distributed.nn.scatter: tensors: expected " .. size .. " tensors, one for each process",
    function() dist.nn.scatter({}, 0) end)
  if size > 1 then
    checks.refused("distributed.nn.all_to_all_single: dim 0 of (1, 3) does not divide by " .. size .. " processes",
      function() dist.nn.all_to_all_single(accelhost.empty(size, 3), accelhost.ones(1, 3)) end)
  end
  checks.refused("distributed.nn.all_reduce: unknown op 'max' (known: sum, mean)",
    function() dist.nn.all_reduce(accelhost.ones(1), dist.ReduceOp.MAX) end)
end)

checks.finish()
