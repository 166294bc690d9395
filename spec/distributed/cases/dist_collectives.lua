-- accelhost.distributed's collectives against their expected results. Prints "ok".
local accelhost = require "accelhost"
local dist = accelhost.distributed

dist.init_process_group {backend = "gloo", timeout = 50}
local rank, size = dist.get_rank(), dist.get_world_size()
local op = dist.ReduceOp

local function same(tensor, expected, what)
  local flat = tensor:reshape(-1):tolist()
  assert(#flat == #expected, ("%s: %d elements, expected %d"):format(what, #flat, #expected))
  for i = 1, #expected do
    assert(flat[i] == expected[i], ("%s: element %d is %s, expected %s"):format(what, i - 1, tostring(flat[i]),
      tostring(expected[i])))
  end
end

-- Each call blocking and as a work.
local function both(what, make, call, check)
  for _, async in ipairs {false, true} do
    local t = make()
    local work = call(t, async)
    if async then
      assert(work:wait() == true and work:is_completed(), what)
      assert(work:wait() == true, "a second wait is nothing")
    else
      assert(work == nil, what .. " blocking returns nothing")
    end
    check(t, what .. (async and " (async)" or ""))
  end
end

local function full(value, n, dtype) return accelhost.full({n or 3}, value, {dtype = dtype or "float32"}) end
local sum, product, all_bits, any_bits, odd_bits = 0, 1, rank + 1, 0, 0
for r = 1, size do
  sum, product = sum + r, product * r
  any_bits = require("bit").bor(any_bits, r)
  odd_bits = require("bit").bxor(odd_bits, r)
  all_bits = require("bit").band(all_bits, r)
end
for _, row in ipairs {
  {op.SUM, sum}, {op.PRODUCT, product}, {op.MAX, size}, {op.MIN, 1}, {op.AVG, sum / size, "float32"},
  {op.BAND, all_bits, "int64"}, {op.BOR, any_bits, "int32"}, {op.BXOR, odd_bits, "uint8"},
} do
  both("all_reduce " .. row[1], function() return full(rank + 1, 3, row[3]) end,
    function(t, async) return dist.all_reduce(t, row[1], {async_op = async}) end,
    function(t, what) same(t, {row[2], row[2], row[2]}, what) end)
end
local flags = accelhost.tensor({rank == 0, true}, {dtype = "bool"})
dist.all_reduce(flags, op.BAND)
assert(flags[0]:item() == (size == 1) and flags[1]:item() == true, "BAND of bool")

for root = 0, size - 1 do
  both("broadcast", function() return full(rank) end,
    function(t, async) return dist.broadcast(t, {src = root, async_op = async}) end,
    function(t, what) same(t, {root, root, root}, what) end)
  both("reduce", function() return full(rank + 1) end,
    function(t, async) return dist.reduce(t, root, op.SUM, {async_op = async}) end,
    function(t, what)
      local value = rank == root and sum or rank + 1
      same(t, {value, value, value}, what)
    end)
  both("gather", function()
    local list = {}
    for r = 1, size do list[r] = full(-1, 2) end
    return list
  end, function(list, async)
    return dist.gather(full(rank, 2), rank == root and list or nil, {dst = root, async_op = async})
  end, function(list, what)
    for r = 1, size do same(list[r], {rank == root and r - 1 or -1, rank == root and r - 1 or -1}, what) end
  end)
  both("scatter", function() return full(-1, 2) end, function(t, async)
    local list = {}
    for r = 1, size do list[r] = full(10 * r, 2) end
    return dist.scatter(t, rank == root and list or nil, {group_src = root, async_op = async})
  end, function(t, what) same(t, {10 * (rank + 1), 10 * (rank + 1)}, what) end)
end

local everyone = {}
for r = 0, size - 1 do everyone[#everyone + 1] = r; everyone[#everyone + 1] = r end
both("all_gather", function()
  local list = {}
  -- A transposed one is written in place too.
  for r = 1, size do list[r] = accelhost.zeros(2, 1):transpose(0, 1) end
  return list
end, function(list, async) return dist.all_gather(list, full(rank, 2), {async_op = async}) end,
  function(list, what) for r = 1, size do same(list[r], {r - 1, r - 1}, what) end end)
both("all_gather_into_tensor", function() return accelhost.zeros(size, 2) end,
  function(t, async) return dist.all_gather_into_tensor(t, full(rank, 2), {async_op = async}) end,
  function(t, what) same(t, everyone, what) end)
local holder = accelhost.zeros(2, size)
dist.all_gather_into_tensor(holder:transpose(0, 1), full(rank, 2))
same(holder:transpose(0, 1), everyone, "into a view")
for root = 0, size - 1 do
  both("gather_single", function() return accelhost.full({size, 2}, -1) end, function(t, async)
    return dist.gather_single(full(rank, 2), rank == root and t or nil, {dst = root, async_op = async})
  end, function(t, what)
    local nothing = {}
    for i = 1, 2 * size do nothing[i] = -1 end
    same(t, rank == root and everyone or nothing, what)
  end)
end
both("reduce_scatter_tensor", function() return full(-1, 2) end, function(t, async)
  return dist.reduce_scatter_tensor(t, accelhost.arange(2 * size):to "float32" + rank, {async_op = async})
end, function(t, what)
  local shift = size * (size - 1) / 2
  same(t, {2 * rank * size + shift, (2 * rank + 1) * size + shift}, what)
end)
both("reduce_scatter", function() return full(-1, 2) end, function(t, async)
  local list = {}
  for r = 1, size do list[r] = full(r, 2) end
  return dist.reduce_scatter(t, list, op.MAX, {async_op = async})
end, function(t, what) same(t, {rank + 1, rank + 1}, what) end)

both("all_to_all_single", function() return full(-1, size) end, function(t, async)
  return dist.all_to_all_single(t, accelhost.arange(size):to "float32" + 10 * rank, {async_op = async})
end, function(t, what)
  local expected = {}
  for r = 1, size do expected[r] = 10 * (r - 1) + rank end
  same(t, expected, what)
end)
-- Rank i sends rank j i + j rows of two.
local given, taken, rows, room, expected = {}, {}, 0, 0, {}
for r = 0, size - 1 do
  given[r + 1], taken[r + 1] = rank + r, r + rank
  rows, room = rows + rank + r, room + r + rank
  for _ = 1, 2 * (r + rank) do expected[#expected + 1] = r end
end
both("all_to_all_single with sizes", function() return accelhost.zeros(room, 2) end, function(t, async)
  return dist.all_to_all_single(t, accelhost.full({rows, 2}, rank), taken, given, {async_op = async})
end, function(t, what) same(t, expected, what) end)
both("all_to_all", function()
  local list = {}
  for r = 1, size do list[r] = accelhost.zeros(r, rank + 1) end
  return list
end, function(list, async)
  local inputs = {}
  for r = 1, size do inputs[r] = accelhost.full({(rank + 1) * r}, 10 * rank + r) end
  return dist.all_to_all(list, inputs, {async_op = async})
end, function(list, what)
  for r = 1, size do
    local want = {}
    for i = 1, r * (rank + 1) do want[i] = 10 * (r - 1) + rank + 1 end
    same(list[r], want, what)
  end
end)

dist.barrier()
dist.barrier({async_op = true}):wait()
dist.barrier {timeout = 40}
dist.monitored_barrier {timeout = 40}
local value = dist.all_reduce(full(1), {async_op = true}):get_future():chain(function(t) return t / size end):wait()
same(value, {1, 1, 1}, "a future")

-- Objects.
local list = {}
dist.all_gather_object(list, {name = "rank " .. rank, values = {rank, nil, true}, t = full(rank)})
for r = 1, size do
  assert(list[r].name == "rank " .. (r - 1) and list[r].values[3] == true, "all_gather_object")
  same(list[r].t, {r - 1, r - 1, r - 1}, "a tensor in an object")
end
local collected = rank == size - 1 and {} or nil
dist.gather_object(("x"):rep(rank), collected, size - 1)
for r = 1, collected and size or 0 do assert(collected[r] == ("x"):rep(r - 1), "gather_object") end
local told = rank == 0 and {"text", nil, 2 ^ 60, n = 4} or {}
dist.broadcast_object_list(told, 0)
assert(told[1] == "text" and told[2] == nil and told[3] == 2 ^ 60 and told[4] == nil, "broadcast_object_list")
local own, all = {}, nil
if rank == 0 then
  all = {}
  for r = 1, size do all[r] = {for_rank = r - 1} end
end
dist.scatter_object_list(own, all, 0)
assert(own[1].for_rank == rank, "scatter_object_list")

-- Messages round the ring.
if size > 1 then
  local after, before = (rank + 1) % size, (rank - 1) % size
  local got = full(-1)
  local works = dist.batch_isend_irecv {
    dist.P2POp(dist.isend, full(rank), after), dist.P2POp(dist.irecv, got, before, nil, 0),
  }
  for _, work in ipairs(works) do work:wait() end
  same(got, {before, before, before}, "batch_isend_irecv")
  assert(works[2]:source_rank() == before, "the source of a message")
  if rank == 0 then
    for r = 1, size - 1 do dist.send(full(7 + r), r, nil, 3) end
    local seen = {}
    for _ = 1, size - 1 do
      local view = accelhost.zeros(3, 2)
      local from = dist.recv(view:select(1, 0))
      assert(view[0][0]:item() == from and view[0][1]:item() == 0, "recv into a view")
      seen[from] = true
    end
    for r = 1, size - 1 do assert(seen[r], "recv from any rank") end
    dist.send_object_list({"hello", {1, 2}}, 1)
  else
    assert(dist.recv(got, 0, {tag = 3}) == 0)
    same(got, {7 + rank, 7 + rank, 7 + rank}, "recv")
    dist.send(full(rank), 0)
    if rank == 1 then
      local objects = {}
      assert(dist.recv_object_list(objects, 0) == 0 and objects[1] == "hello" and objects[2][2] == 2)
    end
  end
end

-- Parts.
local evens = {}
for r = 0, size - 1, 2 do evens[#evens + 1] = r end
local part = dist.new_group(evens)
local t = full(rank)
dist.all_reduce(t, {group = part})
if rank % 2 == 0 then
  local total = 0
  for _, r in ipairs(evens) do total = total + r end
  same(t, {total, total, total}, "a part")
  assert(dist.get_rank(part) == rank / 2 and dist.get_world_size(part) == #evens)
  assert(dist.get_global_rank(part, #evens - 1) == evens[#evens] and dist.get_group_rank(part, rank) == rank / 2)
  dist.broadcast(t, {src = evens[#evens], group = part})
else
  same(t, {rank, rank, rank}, "who is outside a part does nothing")
  assert(dist.get_rank(part) == -1 and part == dist.group.NON_GROUP_MEMBER)
end
if size == 3 then
  local turned = dist.new_group({2, 0, 1}, {sort_ranks = false})
  assert(turned:rank() == (rank + 1) % 3, "ranks in the order given")
end
local mine, singles = dist.new_subgroups(1)
assert(mine:size() == 1 and #singles == size and mine.ranks[1] == rank)
local per_host = tonumber(os.getenv "LOCAL_WORLD_SIZE") or size
local neighbours, per_hosts = dist.new_subgroups()
assert(neighbours:size() == per_host and #per_hosts == size / per_host, "groups of a host's ranks")
local count = full(1)
dist.all_reduce(count, {group = neighbours})
same(count, {per_host, per_host, per_host}, "within a host")
local ours = dist.new_subgroups_by_enumeration {evens}
assert((ours ~= nil) == (rank % 2 == 0))
local halves = dist.split_group {split_ranks = {evens}}
assert((halves ~= dist.group.NON_GROUP_MEMBER) == (rank % 2 == 0))
if rank % 2 == 0 then
  assert(halves:rank() == rank / 2)
  dist.set_timeout(30, halves)
  local again = dist.split_group(halves, {{#evens - 1}})
  assert((again ~= dist.group.NON_GROUP_MEMBER) == (rank == evens[#evens]), "ranks are those of the parent")
  assert(rank ~= evens[#evens] or again.ranks[1] == rank)
end
if part ~= dist.group.NON_GROUP_MEMBER then dist.destroy_process_group(part) end
collectgarbage()

dist.destroy_process_group()
assert(not dist.is_initialized())
print "ok"
