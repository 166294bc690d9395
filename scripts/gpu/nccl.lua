--- NCCL with one card: a group of one rank opens a communicator (ACCELHOST_NCCL_ALONE=1) and makes every kind of call,
--- asynchronous ones, messages to itself, averaged backwards, a captured step; results are compared with their inputs.
--- usage: ACCELHOST_NCCL_ALONE=1 accelhost scripts/gpu/nccl.lua      Exit status 1 when one differs.
--
-- With the word `fail` NCCL is expected to fail at its 4th call (ACCELHOST_SIM_FAIL=nccl:4): the errors are printed.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local nn, F, optim, dist = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.distributed
local how = ...
dist.init_process_group()
local device = "cuda:0"

local function full(shape, value, dtype)
  return accelhost.full(shape, value, {device = device, dtype = dtype or "float32"})
end
local function expect(tensor, values, what)
  assert(tensor.device == device, what .. ": on " .. tensor.device)
  local got = tensor:cpu():flatten():tolist()
  assert(#got == #values, what .. ": " .. #got .. " elements")
  for i, value in ipairs(values) do
    local text = "%s: element %d is %s, expected %s"
    assert(got[i] == value, text:format(what, i - 1, tostring(got[i]), tostring(value)))
  end
end

if how == "fail" then
  for i = 1, 3 do expect(comm.all_reduce(full({2}, i)), {i, i}, "before the failure") end
  print(pcall(function() return comm.all_reduce(full({2}, 4)):sum():item() end))
  print(pcall(comm.all_reduce, full({2}, 5)))
  error "as expected"
end

-- Reductions of each dtype; in place, into a new tensor, and those without a call in NCCL.
for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"} do
  local reductions = dtype:find "float" and {"sum", "mean", "max", "min", "product"} or {"sum", "max", "min", "product"}
  for _, reduce in ipairs(reductions) do
    expect(comm.all_reduce(full({3}, 3, dtype), reduce), {3, 3, 3}, reduce .. " of " .. dtype)
  end
end
expect(comm.all_reduce(full({2}, 1, "bool"), "and"), {true, true}, "and of bool")
expect(comm.all_reduce(full({1}, 5, "int64"), "xor"), {5}, "xor, by the host")
expect(comm.broadcast(full({2}, 7), 0), {7, 7}, "broadcast")
expect(comm.all_gather(full({2}, 4)), {4, 4}, "all_gather")
expect(comm.reduce_scatter(full({4}, 6)), {6, 6, 6, 6}, "reduce_scatter")
expect(comm.all_to_all(accelhost.arange(4, {device = device})), {0, 1, 2, 3}, "all_to_all")
expect(comm.gather(full({2}, 3), 0), {3, 3}, "gather")
local reduced = full({2}, 8)
dist.reduce(reduced, 0)
expect(reduced, {8, 8}, "reduce")
local out = full({3}, 0)
dist.scatter(out, {full({3}, 9)}, 0)
expect(out, {9, 9, 9}, "scatter")
expect(comm.all_gather_ragged(full({2, 1}, 2)), {2, 2}, "all_gather_ragged")
expect(comm.all_reduce(full({0}, 1)), {}, "nothing")
dist.barrier()

-- Works, in one order with blocking calls and those of the CPU's memory; some are not waited for.
local works = {}
for i = 1, 20 do
  works[i] = comm.all_reduce_async(full({5000}, i))
  if i % 7 == 0 then comm.all_reduce(accelhost.ones(1)) end
  if i % 5 == 0 then comm.all_reduce_async(full({5000}, -i)) end
end
for i = 20, 1, -1 do assert(works[i]:wait():cpu():eq(i):all():item()) end

-- Messages to itself, which no script can send: the send waits for its receive.
local room = {full({6}, 0), full({6}, 0)}
local sends = {comm.send(full({6}, 1), 0, 0, true), comm.send(full({6}, 2), 0, 3, true)}
assert(not sends[1]:is_completed())
comm.recv(room[2], 0, 3)
comm.recv(room[1], 0)
for _, work in ipairs(sends) do work:wait() end
expect(room[1], {1, 1, 1, 1, 1, 1}, "a message")
expect(room[2], {2, 2, 2, 2, 2, 2}, "a message with a tag")
local fine, text = pcall(comm.send, accelhost.ones(2), 0)
assert(not fine and text:find("send: expected another rank than this one, 0", 1, true), text)
fine, text = pcall(dist.send, full({2}, 1), 0)
assert(not fine and text:find("expected another process than this one, 0", 1, true), text)

-- A prepared model, eager and captured, has the bits of one whose gradients nothing averages.
local function losses(compiled)
  accelhost.manual_seed(3)
  local accelerator = accelhost.Accelerator {
    kwargs_handlers = {accelhost.DistributedDataParallelKwargs {bucket_cap_mb = 0.0005}}}
  local model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
  local optimizer = optim.AdamW(model:parameters(), {lr = 0.02})
  model, optimizer = accelerator:prepare(model, optimizer)
  local function step(x, y)
    local loss = F.cross_entropy(model(x), y)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    local sum = loss:detach():clone()
    dist.all_reduce(sum)
    return sum
  end
  local call, seen = compiled and accelerator:compile(step) or step, {}
  for _ = 1, 6 do
    local x = accelhost.randn({8, 12}, {device = "cpu"}):to(accelerator.device)
    local y = accelhost.randint(0, 10, {8}, {device = "cpu"}):to(accelerator.device)
    seen[#seen + 1] = ("%.17g"):format(call(x, y):item())
  end
  assert(not compiled or call.captured, "the step was not captured")
  return table.concat(seen, " ")
end
local eager, captured = losses(false), losses(true)
assert(eager == captured, eager .. "\n" .. captured)

local backends = dist.get_backend_config()
assert(backends == "cpu:self,cuda:nccl", backends)
dist.destroy_process_group()
print(backends .. ": every result is as expected")
