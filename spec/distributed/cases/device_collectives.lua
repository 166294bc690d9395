-- Collectives of devices, each rank on its own device: device_collectives.lua [cards]. Operations without a call in
-- NCCL, parts, works that are not waited for, calls on the CPU's memory in between. Prints the backend, "ok".
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local dist = accelhost.distributed
dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
local cards = tonumber((...)) or size
local device = "cuda:" .. rank % cards

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

-- Bits, of bool and integers; every rank's is another one.
local bits = full({1}, 0, "int64") + 2 ^ rank
expect(comm.all_reduce(bits:clone(), "or"), {2 ^ size - 1}, "or")
expect(comm.all_reduce(bits:clone(), "xor"), {2 ^ size - 1}, "xor")
expect(comm.all_reduce(bits:clone(), "and"), {size == 1 and 1 or 0}, "and")
local first = full({2}, rank == 0 and 1 or 0, "bool")
expect(comm.all_reduce(first:clone(), "or"), {true, true}, "or of bool")
expect(comm.all_reduce(first:clone(), "and"), {size == 1, size == 1}, "and of bool")
expect(comm.all_reduce(first:clone(), "xor"), {true, true}, "xor of bool")
expect(comm.all_reduce(first:clone(), "max"), {true, true}, "max of bool")

-- Nothing, a scalar, a view.
expect(comm.all_reduce(full({0}, 1)), {}, "nothing")
expect(comm.all_reduce(full({}, 1)), {size}, "a scalar")
local whole = full({2, 3}, 0)
comm.all_reduce(whole:narrow(1, 0, 1):add_(1))
expect(whole, {size, 0, 0, size, 0, 0}, "a view")

-- In one order with tensors on the CPU.
local works = {}
for i = 1, 20 do
  works[i] = comm.all_reduce_async(i % 3 == 0 and accelhost.full({50}, i) or full({50}, i))
  if i % 7 == 0 then comm.all_reduce(accelhost.ones(1)) end
end
for i = 20, 1, -1 do assert(works[i]:wait():cpu():eq(i * size):all():item()) end

-- These are not waited for; their memory is used again, and the results of others are right.
for i = 1, 30 do
  comm.all_reduce_async(full({5000}, i))
  if i % 5 == 0 then collectgarbage() end
  local filled = full({5000}, -1)
  expect(comm.all_reduce(full({1}, i)), {i * size}, "next to an abandoned one")
  assert(filled:cpu():eq(-1):all():item(), "memory of an abandoned work was written")
end

-- A part, with calls of the whole in between, and messages.
local part = dist.new_group({size - 1, 0})
local x = full({3}, rank + 1)
dist.all_reduce(x, {group = part})
local members = size == 1 and {1} or {1, size}
local sum = 0
for _, r in ipairs(members) do sum = sum + r end
local inside = rank == 0 or rank == size - 1
expect(x, inside and {sum, sum, sum} or {rank + 1, rank + 1, rank + 1}, "a part")
dist.all_reduce(x, "max")
if size > 1 then
  local got = full({2}, 0)
  if rank == 0 then dist.send(full({2}, 7), 1) elseif rank == 1 then dist.recv(got, 0) end
  expect(got, rank == 1 and {7, 7} or {0, 0}, "a message")
end

-- Lists and parts of unequal sizes.
local list = {}
for r = 1, size do list[r] = full({2}, 0) end
dist.all_gather(list, full({2}, rank))
for r = 1, size do expect(list[r], {r - 1, r - 1}, "all_gather") end
local gathered = comm.all_gather_ragged(full({rank + 1, 2}, rank))
assert(gathered:size(0) == size * (size + 1) / 2)
local given, taken = {}, {}
for r = 1, size do given[r], taken[r] = r, rank + 1 end
local out = full({size * (rank + 1)}, 0)
dist.all_to_all_single(out, full({size * (size + 1) / 2}, rank), taken, given)
local row = {}
for r = 0, size - 1 do for _ = 0, rank do row[#row + 1] = r end end
expect(out, row, "all_to_all_single")

if rank == 0 then print(dist.get_backend_config()) end
dist.destroy_process_group()
print("ok")
