-- Messages between tensors on devices: device_messages.lua [cards] [how]. Of two ranks or three, each on a device of
-- its own, or on one card. Prints "ok". HOW "differ": ends with an error of dtypes; "kill": rank 1 dies as a message
-- has begun to arrive, "early": before its line is open, and rank 0 prints the error.
local ffi = require "ffi"
ffi.cdef "int kill(int process, int signal); int getpid();"
local accelhost = require "accelhost"
local dist = accelhost.distributed
dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
local cards, how = tonumber((...)) or size, select(2, ...)
local device = "cuda:" .. rank % cards

local function full(shape, value, dtype, where)
  return accelhost.full(shape, value, {device = where or device, dtype = dtype or "float32"})
end
local function expect(tensor, value, what)
  local got = tensor:cpu():to "float64"
  assert(got:eq(value):all():item(), ("%s: expected %g, got %s"):format(what, value, tostring(got)))
end
local other, last = 1 - rank, size - 1

if how == "differ" then
  if rank == 0 then dist.send(full({3}, 1), 1) else dist.recv(full({3}, 0, "float64"), 0) end
elseif how then
  local x = full({2e6}, 1)
  if how == "kill" and rank == 0 then dist.send(x:narrow(0, 0, 3), 1) end
  if how == "kill" and rank == 1 then dist.recv(x:narrow(0, 0, 3), 0) end
  if rank == 1 then
    local work = dist.irecv(x, 0)
    while how == "kill" and not work:is_completed() do end
    ffi.C.kill(ffi.C.getpid(), 9)
  end
  local fine, text = pcall(function()
    dist.isend(x, 1):wait()
    return x:sum():item()
  end)
  print(fine, text)
  error "as expected"
end

-- Before any collective; the other way as well, both sending first, more than fits anywhere at once.
if rank < 2 then
  local got = full({300000}, 0)
  local works = {dist.isend(full({300000}, rank + 1), other), dist.irecv(got, other)}
  for _, work in ipairs(works) do work:wait() end
  expect(got, other + 1, "both ways")
end

-- Tags overtake; of one tag the order is kept; a sent tensor may be changed at once.
if rank == 0 then
  local works, x = {}, full({100}, 0)
  for i = 1, 40 do
    x:fill_(i)
    works[i] = dist.isend(x, 1, {tag = i % 4})
  end
  for _, work in ipairs(works) do work:wait() end
elseif rank == 1 then
  local got = full({100}, 0)
  for tag = 3, 0, -1 do
    for i = 1, 10 do
      dist.recv(got, 0, {tag = tag})
      expect(got, tag == 0 and 4 * i or 4 * (i - 1) + tag, "tag " .. tag)
    end
  end
end

-- Views, 0-dim, empty and other dtypes; in the middle of collectives; a received tensor can be used by the next op.
for _, dtype in ipairs {"float64", "float16", "bfloat16", "int64", "uint8", "bool"} do
  if rank == 0 then
    dist.send(full({4, 6}, 1, dtype):transpose(0, 1), 1)
    dist.send(full({}, 1, dtype), 1)
    dist.send(full({0}, 1, dtype), 1)
  elseif rank == 1 then
    local room, scalar = full({6, 9}, 0, dtype), full({}, 0, dtype)
    dist.recv(room:narrow(1, 2, 4), 0)
    dist.recv(scalar, 0)
    dist.recv(full({0}, 0, dtype), 0)
    local sum = room:to("float32"):sum():item() + scalar:to("float32"):item()
    assert(sum == 25, dtype .. ": " .. sum)
  end
  local sum = full({2}, 1)
  dist.all_reduce(sum)
  expect(sum, size, "a collective in between")
end

-- From the CPU to a device and back; either side first.
if rank == 0 then
  dist.send(full({5}, 3, nil, "cpu"), 1)
  local got = full({5}, 0, nil, "cpu")
  dist.recv(got, 1)
  expect(got, 7, "to the CPU")
elseif rank == 1 then
  local got = full({5}, 0)
  dist.recv(got, 0)
  expect(got, 3, "from the CPU")
  dist.send(full({5}, 7), 0)
end
if rank > 0 then
  dist.send(full({2}, rank), 0)
else
  local sum, got = 0, full({2}, 0)
  for _ = 1, last do sum = sum + dist.recv(got) + got:sum():item() end
  assert(sum == 3 * last * (last + 1) / 2, sum)
end

-- A message that its sender does not wait for; memory that it would reuse stays as it is.
if rank == 0 then
  dist.isend(full({5000}, 5), 1)
  collectgarbage()
  local filled = full({5000}, -1)
  dist.barrier()
  expect(filled, -1, "memory of an abandoned message")
elseif rank == 1 then
  local got = full({5000}, 0)
  dist.recv(got, 0)
  expect(got, 5, "an abandoned message")
  dist.barrier()
else
  dist.barrier()
end

-- A ring, in a batch; in a part, while the last rank does something else.
local from, got = (rank - 1) % size, full({7}, 0)
for _, work in ipairs(dist.batch_isend_irecv {
  dist.P2POp(dist.isend, full({7}, rank), (rank + 1) % size), dist.P2POp(dist.irecv, got, from),
}) do work:wait() end
expect(got, from, "a ring")
local part = dist.new_group({1, 0})
if rank < 2 then
  if rank == 0 then dist.send(full({2}, 7), 1, {group = part}) else dist.recv(got:narrow(0, 0, 2), 0, part) end
  if rank == 1 then expect(got:narrow(0, 0, 2), 7, "in a part") end
  local x = full({2}, rank + 1)
  dist.all_reduce(x, {group = part}) -- the part's own communicator opens, without the last rank
  expect(x, 3, "a part's sum")
end
if size > 2 then dist.barrier() end

-- In values, to the receiver's own device.
accelhost.cuda.set_device(device)
local function check_value(value, of, what)
  assert(value.x.device == device and value.list[1].dtype == "int64", what .. ": " .. value.x.device)
  expect(value.x, of, what)
  expect(value.list[1], of, what)
  assert(value.y.device == "cpu" and value.name == "rank " .. of, what)
end
local mine = {x = full({2, 3}, rank):transpose(0, 1), list = {full({}, rank, "int64")}, y = accelhost.ones(1),
  name = "rank " .. rank}
local all, values = {}, rank == 0 and {mine} or {false}
dist.all_gather_object(all, mine)
for r = 0, last do check_value(all[r + 1], r, "all_gather_object") end
dist.broadcast_object_list(values, 0)
check_value(values[1], 0, "broadcast_object_list")
local out, inputs = {}, {}
for r = 0, last do inputs[r + 1] = all[r + 1] end
dist.scatter_object_list(out, rank == 0 and inputs or nil, {src = 0})
check_value(out[1], rank, "scatter_object_list")
if rank == 0 then dist.send_object_list({mine}, 1) end
if rank == 1 then
  dist.recv_object_list(values, 0)
  check_value(values[1], 0, "recv_object_list")
end
local fine, text = pcall(dist.all_gather_object, {}, {accelhost.empty(1, {device = "meta"})})
assert(not fine and text:find("obj[1]: expected a tensor with values, got one on meta", 1, true), text)
dist.destroy_process_group()
print("ok")
