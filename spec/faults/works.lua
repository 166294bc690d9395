-- Ten thousand asynchronous calls under way at once, on ranks of unequal speed: of every form and size, waited for in
-- any order, abandoned, mixed with blocking calls and with calls of subgroups. Every result is checked. $N: how
-- many calls each job starts.
local binary = assert(os.getenv("ACCELHOST_BINARY"), "ACCELHOST_BINARY: make test-faults sets it")
local count = tonumber(os.getenv("N") or "") or 10000

local script = [[
local accelhost = require "accelhost"
local C = require "accelhost._C"
local comm, count, seed = C.comm, tonumber(arg[1]), tonumber(arg[2])
local rank, size = comm.rank(), comm.size()
local part = size > 2 and comm.split(rank == size - 1 and -1 or 0) or nil

-- Numbers that all ranks draw alike (the next call), and this rank's own (its delays, the works that it abandons).
local function generator(state)
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return math.floor(state / 65536) % n
  end
end
local common, own = generator(seed), generator(seed + 7919 * (rank + 1))
local sum = size * (size + 1) / 2
local shared = comm.arena_empty({4096})

local works, given_up, blocking = {}, 0, 0
for i = 1, count do
  local kind, length = common(8), 1 + common(common(20) == 0 and 20000 or 50)
  local value = 1 + common(5)
  if kind == 0 then
    works[#works + 1] = {comm.all_gather_async(accelhost.full({1, length}, value * (rank + 1))), value * size}
  elseif kind == 1 then
    works[#works + 1] = {comm.reduce_scatter_async(accelhost.full({size, length}, value * (rank + 1))), value * sum}
  elseif kind == 2 and i % 50 == 0 then
    blocking = blocking + 1
    assert(comm.all_reduce(accelhost.full({length}, value * (rank + 1)))[0]:item() == value * sum, "blocking")
  elseif kind == 3 and part then
    works[#works + 1] = {part:all_reduce_async(accelhost.full({length}, value)), value * (size - 1)}
  elseif kind ~= 3 or size == 2 then
    works[#works + 1] = {comm.all_reduce_async(accelhost.full({length}, value * (rank + 1))), value * sum}
  end
  local work = works[#works]
  if work and own(20) == 0 then
    works[#works] = nil
    given_up = given_up + 1
  end
  if own(400) == 0 then
    local till = C.system.now() + 0.005
    while C.system.now() < till do end
  end
end
comm.all_reduce(shared:fill_(rank + 1))
assert(shared[4095]:item() == sum, "in the arena")
collectgarbage()
for i = #works, 2, -1 do
  local k = 1 + own(i)
  works[i], works[k] = works[k], works[i]
end
for i, work in ipairs(works) do
  local result = work[1]:wait():reshape(-1)
  local last = result[result:numel() - 1]:item()
  assert(last == work[2], ("work %d of %d: got %g, expected %g"):format(i, #works, last, work[2]))
end
comm.barrier()
if rank == 0 then print(#works, given_up, blocking) end
]]

local failures = 0
local path = os.tmpname()
local file = assert(io.open(path, "w"))
file:write(script)
file:close()
for trial, ranks in ipairs {2, 3, 5, 2, 3} do
  local pipe = assert(io.popen(("timeout -s KILL 120 '%s' launch --num_processes %d --timeout 30 %s %d %d 2>&1; "
    .. "echo =$?"):format(binary, ranks, path, count, trial)))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*)=(%d+)\n$")
  local waited, given_up, blocking = output:match("^(%d+)%s+(%d+)%s+(%d+)%s*$")
  if code == "0" and waited then
    print(("%d ranks: %s works waited for by rank 0, %s given up, %s blocking calls between"):format(ranks, waited,
      given_up, blocking))
  else
    failures = failures + 1
    print(("FAILED %d ranks, trial %d: status %s: %s"):format(ranks, trial, code, output:sub(1, 800)))
  end
end
os.remove(path)
os.exit(failures == 0 and 0 or 1)
