-- Every collective on tensors, against its expected result for ranks that hold known numbers. Prints "ok".
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local rank, size = comm.rank(), comm.size()

local function same(tensor, expected, what)
  local flat = tensor:reshape(-1):tolist()
  assert(#flat == #expected, what .. ": " .. #flat .. " elements")
  for i = 1, #expected do
    assert(flat[i] == expected[i], ("%s: element %d is %s, expected %s"):format(what, i - 1, flat[i], expected[i]))
  end
end

local total, product = size * (size + 1) / 2, 1
for r = 1, size do product = product * r end

for _, dtype in ipairs {"float32", "float64", "int64", "int32", "float16", "bfloat16"} do
  local function ones() return accelhost.full({3}, rank + 1, {dtype = dtype}) end
  same(comm.all_reduce(ones()), {total, total, total}, dtype .. " sum")
  same(comm.all_reduce(ones(), "max"), {size, size, size}, dtype .. " max")
  same(comm.all_reduce(ones(), "min"), {1, 1, 1}, dtype .. " min")
  same(comm.all_reduce(ones(), "product"), {product, product, product}, dtype .. " product")
end
same(comm.all_reduce(accelhost.full({2}, rank + 1), "mean"), {total / size, total / size}, "mean")

-- A transposed view is reduced in place, its base sees it.
local base = accelhost.arange(6):to("float32"):reshape(2, 3) + rank
local view = base:transpose(0, 1)
comm.all_reduce(view)
local shift = size * (size - 1) / 2
same(base, {shift, size + shift, 2 * size + shift, 3 * size + shift, 4 * size + shift, 5 * size + shift}, "view")

for root = 0, size - 1 do
  same(comm.broadcast(accelhost.full({2}, rank), root), {root, root}, "broadcast")
  local gathered = comm.gather(accelhost.full({1, 2}, rank), root)
  assert((gathered ~= nil) == (rank == root), "gather returns a result to the root only")
  if gathered then
    local expected = {}
    for r = 0, size - 1 do expected[#expected + 1] = r; expected[#expected + 1] = r end
    same(gathered, expected, "gather")
    assert(gathered:size(0) == size and gathered:size(1) == 2, "gather concatenates on dim 0")
  end
  local whole = rank == root and accelhost.arange(2 * size):to("float32") or nil
  local part = accelhost.zeros(2)
  comm.collective("scatter", part, whole, {root = root})
  same(part, {2 * rank, 2 * rank + 1}, "scatter")
end

local all = {}
for r = 0, size - 1 do all[#all + 1] = r end
same(comm.all_gather(accelhost.full({1}, rank)), all, "all_gather")

-- Dtypes without arithmetic are copied, and not reduced.
for _, dtype in ipairs {"int8", "int16", "uint16", "uint32", "uint64"} do
  local function own(count) -- devices move these dtypes, and do not fill them
    return accelhost.full({count}, 100 + rank, {dtype = dtype, device = "cpu"}):to(accelhost.get_default_device())
  end
  local expected = {}
  for r = 0, size - 1 do expected[#expected + 1] = 100 + r end
  same(comm.broadcast(own(1), size - 1), {100 + size - 1}, dtype .. " broadcast")
  local gathered = comm.all_gather(own(1))
  assert(gathered.dtype == dtype, dtype .. " keeps its dtype")
  same(gathered, expected, dtype .. " all_gather")
  local at_root = comm.gather(own(1), 0)
  if rank == 0 then same(at_root, expected, dtype .. " gather") end
  same(comm.all_to_all(own(size)), expected, dtype .. " all_to_all")
  local fine, message = pcall(comm.all_reduce, own(1))
  assert(not fine and tostring(message):find("expected a dtype with arithmetic, got " .. dtype, 1, true), message)
end

local ragged = {}
for r = 0, size - 1 do for _ = 1, r do ragged[#ragged + 1] = r; ragged[#ragged + 1] = r end end
local result = comm.all_gather_ragged(accelhost.full({rank, 2}, rank))
same(result, ragged, "all_gather_ragged")
assert(result:size(0) == size * (size - 1) / 2 and result:size(1) == 2, "all_gather_ragged keeps the other dims")

same(comm.reduce_scatter(accelhost.arange(size):to("float32") + rank), {rank * size + shift}, "reduce_scatter")

local sent, expected = {}, {}
for r = 0, size - 1 do sent[#sent + 1] = 10 * rank + r; expected[#expected + 1] = 10 * r + rank end
same(comm.all_to_all(accelhost.tensor(sent)), expected, "all_to_all")

local works = {}
for i = 1, 20 do works[i] = comm.all_reduce_async(accelhost.full({100}, i * (rank + 1))) end
for i = 20, 1, -1 do assert(works[i]:wait()[99]:item() == i * total, "all_reduce_async") end
assert(works[1]:is_completed(), "a work that was waited for is completed")
local gathering = comm.all_gather_async(accelhost.full({1, 2}, rank))
local scattering = comm.reduce_scatter_async(accelhost.arange(size):to("float32") + rank)
comm.all_gather_async(accelhost.full({3}, rank)) -- it is not waited for
collectgarbage()
same(scattering:wait(), {rank * size + shift}, "reduce_scatter_async")
local rows = {}
for r = 0, size - 1 do rows[#rows + 1] = r; rows[#rows + 1] = r end
same(gathering:wait(), rows, "all_gather_async")
assert(gathering:wait():size(1) == 2, "a result is given again")

-- Parts: odd and even ranks, counted from behind; the last rank alone stays out of another.
local part = comm.split(rank % 2, -rank)
local members = math.floor((size - 1 - rank % 2) / 2) + 1
assert(part:size() == members and part:rank() == (size - 1 - rank - (size - 1 - rank) % 2) / 2, "ordered by key")
same(part:all_reduce(accelhost.full({2}, 1)), {members, members}, "all_reduce in a part")
local whole = comm.all_reduce_async(accelhost.full({2}, 1))
same(part:all_reduce_async(accelhost.full({2}, 1), "max"):wait(), {1, 1}, "all_reduce_async in a part")
same(whole:wait(), {size, size}, "while the whole group works")
assert(part:arena_empty({4}):sum():item() == 0, "memory of a part")
part:barrier()
part:close()
assert(not pcall(part.barrier, part), "a closed group is refused")
assert((comm.split(rank == size - 1 and -1 or 0) == nil) == (rank == size - 1), "a color below 0 stays out")

comm.barrier()
print("ok")
