-- The n-th request for memory fails, for every n: each run ends with an error that names it, or exactly as it would
-- have where the request is one of those that may fail. $FAIL_ALLOC_BINARY is a program built with FAIL_ALLOC=1; $N
-- limits the requests tried of each job, $JOB is a pattern of the jobs' names.
local binary = assert(os.getenv("FAIL_ALLOC_BINARY"), "FAIL_ALLOC_BINARY: make test-faults sets it")
local bound = tonumber(os.getenv("N") or "")
local chosen = os.getenv("JOB") or ""

-- Requests whose failure is no error, and why; those of the second table are made once more and may fail once.
local optional = {
  ["host/cli/process/host.c: may_make_code"] = "a look whether the system lets programs make code; LuaJIT asks again",
  ["host/comm/control/segment.c: give_back"] = "shared memory that is given back stays unused until the group closes",
  ["host/comm/shm/shm.c: shm_free"] = "the same",
  ["host/data/gather.c: join_loader"] = "without a thread the loop gathers its batches itself",
  ["host/cli/base/lines.c: ah_lines_add"] = "the line is written at once instead of being held for its like",
}
local optional_once = {
  ["host/base/memory/alloc.c: system_alloc"] = "asked again when the cache has been given back and garbage collected",
  ["host/comm/control/control_block.c: ah_control_map_segments"] = "a smaller span of addresses does",
}

local step = [[
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
accelhost.manual_seed(0)
local model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
  nn.Linear(2 * 3 * 3, 4))
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local x, y = accelhost.randn(4, 1, 8, 8), accelhost.tensor({0, 1, 2, 3}, {dtype = "int64"})
]]

local collectives = [[
local accelhost = require "accelhost"
local nn, comm = accelhost.nn, require "accelhost._C".comm
local accelerator = accelhost.Accelerator()
local model = accelerator:prepare(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
for _ = 1, 2 do accelerator:backward(model(accelhost.ones(2, 3)):sum()) end
local rank = comm.rank()
comm.all_gather_ragged(accelhost.ones(rank + 1, 3))
comm.broadcast(accelhost.ones(10), 0)
comm.reduce_scatter_async(accelhost.ones(6, 5)):wait()
local one, other = nn.Linear(2, 2), nn.Linear(2, 2)
one, other = accelerator:prepare(one, other)
accelerator:backward((rank == 0 and one or nn.Sequential(one, other))(accelhost.ones(1, 2)):sum())
local part = comm.split(0)
part:all_reduce(accelhost.ones(70000))
local dist = accelhost.distributed
dist.init_process_group()
local works = {dist.broadcast(accelhost.ones(10), {src = 0, async_op = true})}
if dist.get_world_size() == 2 then
  dist.all_to_all_single(accelhost.ones(3), accelhost.ones(3), {1 + rank, 2 - rank}, {1 + rank, 2 - rank})
  works[2] = dist.isend(accelhost.ones(70000), 1 - rank)
  dist.recv(accelhost.ones(70000), 1 - rank)
end
for _, work in ipairs(works) do work:wait() end
dist.all_gather_object({}, {rank})
local ddp = dist.DistributedDataParallel(nn.Linear(2, 2))
ddp:register_comm_hook(nil, dist.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook)
ddp:join(function() ddp(accelhost.ones(1, 2)):sum():backward() end)
accelerator:gather_for_metrics(accelhost.ones(2, 3))
accelerator:print("done")]]

local jobs = {
  {name = "start", words = {"-e", "print(1)"}},
  {name = "a training step", words = {"-e", step .. [[
for _ = 1, 2 do
  local loss = F.cross_entropy(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
end
print(#tostring(model:state_dict()["5.weight"]))]]}},
  {name = "prepare and a loader", words = {"-e", step .. [[
local data = accelhost.data
local accelerator = accelhost.Accelerator()
local loader = data.DataLoader(data.TensorDataset(x, y), {batch_size = 2, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
for images, labels in loader do
  local loss = F.cross_entropy(model(images), labels)
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
end]]}},
  {name = "data", words = {"-e", [[
local accelhost = require "accelhost"
local data, C = accelhost.data, require "accelhost._C"
print(C.data.idx(arg[1], "labels"):sum():item())
for x, y in data.DataLoader(data.SyntheticDigits{size = 200}, {batch_size = 100}) do print(x:size(0), y[99]:item()) end
local wide = data.TensorDataset(accelhost.ones(600, 1000))
for x in data.DataLoader(wide, {batch_size = 300}) do print(x:sum():item()) end
print(accelhost.arange(120):reshape(3, 40), accelhost.zeros(0, 3))
print(C.comm.arena_empty({8}):zero_():sum():item())]], "@labels"}},
  {name = "files", words = {"-e", [[
local accelhost = require "accelhost"
local model = accelhost.nn.Linear(3, 2)
for _, kind in ipairs {"safetensors", "npz"} do
  local path = arg[1] .. "." .. kind
  accelhost.save(model:state_dict(), path)
  for name, value in pairs(accelhost.load(path)) do print(name, value:shape()) end
end
accelhost.save({step = 3, list = {model.weight, "text"}}, arg[1] .. ".npy.safetensors")
print(accelhost.load(arg[1] .. ".npy.safetensors").step)]], "@files"}},
  {name = "graphs", words = {"-e", [[
local accelhost = require "accelhost"
local x = accelhost.randn(3, 4, {requires_grad = true})
local y = x:clone()
y[0]:mul_(2)
accelhost.autograd.detect_anomaly(function() y[1]:mul_(3) end)
y[{{0, 2}}]:add_(1)
local handle = y:register_hook(function(grad) return grad * 2 end)
local first = accelhost.autograd.grad(y:pow(3):sum(), {x}, {create_graph = true})[1]
first:sum():backward()
handle:remove()
local Double = accelhost.autograd.Function:extend "Double"
function Double.forward(context, input) context:save_for_backward(input) return input * 2 end
function Double.backward(context, grad) return grad * 2 end
Double.apply(x):sum():backward()
local sorted, order = accelhost.randn(5000):sort()
accelhost.randn(64, 9):topk(3)
accelhost.cat({x, x}, 0):unsqueeze(0):expand(5, 6, 4):reshape(-1)
x.grad:index_select(0, accelhost.tensor({2, 0}, {dtype = "int64"}))
accelhost.nn.utils.clip_grad_norm_({x}, 1)
local z = x * 2
z:retain_grad()
for _ = 1, 20 do z:register_hook(function(grad) return grad + 0 end) end
accelhost.utils.checkpoint.checkpoint(function(u) return (u * x):exp() end, z):sum():backward()
local weight = accelhost.randn(2, 3, 3, {requires_grad = true})
local normed = accelhost.nn.functional.layer_norm(weight, {3})
accelhost.autograd.grad(normed:pow(2):sum(), {weight}, {create_graph = true})[1]:sum():backward()
print(#tostring(sorted), order:shape()[1], x.grad:sum():item() ~= nil)]]}},
  {name = "launch", words = {"launch", "--num_processes", "2", "--timeout", "20", "-e", collectives}},
  {name = "launch, rank 1", rank = 1,
    words = {"launch", "--num_processes", "3", "--timeout", "20", "-e", collectives}},
  {name = "launch, the launcher", rank = "launcher",
    optional = {["host/base/memory/array.c: ah_grow"] = "a piece of a line that cannot be kept is written at once"},
    words = {"launch", "--num_processes", "2", "--timeout", "20", "-e", "print(os.getenv('RANK') .. ('x'):rep(5000))"}},
  {name = "launch from a pipe", before = "echo 'print(7)' | ", words = {"launch", "--num_processes", "2", "-"}},
}

-- The requests of Lua itself, which are many: a sample of them unless $N is set. Without its compiler, whose code
-- does not survive every one.
for i = 2, 6 do
  jobs[#jobs + 1] = {name = "Lua in " .. jobs[i].name, lua = true, most = 400,
    words = {"run", "--jit=off", unpack(jobs[i].words)}}
end

-- Three labels in MNIST's format.
local labels_path = os.tmpname()
local labels_file = assert(io.open(labels_path, "wb"))
labels_file:write("\0\0\8\1\0\0\0\3\7\2\1")
labels_file:close()
local given = {["@labels"] = labels_path, ["@files"] = labels_path .. ".kept"}

local function quoted(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

local failed_path, count_path = os.tmpname(), os.tmpname()

local function lines_of(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = line end
  return list
end

-- Run a job with these requests failing: its output, its exit status as in the shell (128 + n for a signal),
-- where requests failed.
local function run(job, failing)
  assert(io.open(failed_path, "w")):close()
  assert(io.open(count_path, "w")):close()
  -- Closing at the end lets a sanitizer search for leaks and the count be written.
  local words = {job.before or "", "ACCELHOST_CLOSE=1 ACCELHOST_FAILED_ALLOC=" .. failed_path,
    "ACCELHOST_COUNT_ALLOC=" .. count_path, failing and "ACCELHOST_FAIL_ALLOC=" .. failing or "",
    job.lua and "ACCELHOST_FAIL_ALLOC_OF=lua" or "", job.rank and "ACCELHOST_FAIL_ALLOC_RANK=" .. job.rank or "",
    "timeout -s KILL 60", quoted(binary)}
  for _, word in ipairs(job.words) do words[#words + 1] = quoted(given[word] or word) end
  local pipe = assert(io.popen(table.concat(words, " ") .. " 2>&1; echo \"=$?\""))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*)=(%d+)\n$")
  return {output = output, code = tonumber(code), failed = lines_of(failed_path)}
end

-- The lines of an output without the ranks that printed them, each once, in one order: whether a line of several ranks
-- is joined is a matter of time.
local function said(output)
  local lines, known = {}, {}
  for line in output:gmatch("[^\n]+") do
    line = line:gsub("^%[[r%d,-]+%] ", "")
    if not known[line] then lines[#lines + 1] = line end
    known[line] = true
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

-- Return the error in a run's end, or nil. A right end is a failure that a person can act on: status 1 to 4, and a text
-- that names memory and no usage.
local function judge(job, result, usual, form)
  if result.code == 0 then
    for _, place in ipairs(result.failed) do
      local may_fail = optional[place] or job.optional and job.optional[place]
      if not may_fail and (form == "+" or not optional_once[place]) then return "went unnoticed" end
    end
    return said(result.output) ~= said(usual.output) and "printed something else" or nil
  end
  if #result.failed == 0 then return "failed without a cause" end
  if result.code > 4 then return "ended otherwise" end
  if result.code == 2 or result.output:find("--help", 1, true) then return "called it wrong usage" end
  local text = result.output:lower()
  local named = text:find("out of memory", 1, true) or text:find("cannot allocate memory", 1, true)
    or text:find("not enough memory", 1, true) or text:find("cannot start a thread", 1, true)
  return not named and "named no cause" or nil
end

local failures = 0
for _, job in ipairs(jobs) do
  if job.name:find(chosen) then
    local usual = run(job)
    assert(usual.code == 0, job.name .. ": " .. usual.output)
    local most, ended = 0, {[true] = 0, [false] = 0}
    for _, line in ipairs(lines_of(count_path)) do most = math.max(most, tonumber(line)) end
    for n = 1, most, math.ceil(most / (bound or job.most or most)) do
      for _, form in ipairs {"", "+"} do
        local result = run(job, n .. form)
        local problem = judge(job, result, usual, form)
        ended[result.code == 0] = ended[result.code == 0] + 1
        if problem then
          failures = failures + 1
          print(("FAILED %s, request %d%s (%s): %s, status %d: %s"):format(job.name, n, form,
            result.failed[1] or "none failed", problem, result.code, result.output:sub(1, 1500)))
        end
      end
    end
    print(("%s: %d requests; %d runs ended with an error, %d well"):format(job.name, most, ended[false], ended[true]))
  end
end
os.remove(failed_path)
os.remove(count_path)
os.execute("rm -f " .. labels_path .. "*")
os.exit(failures == 0 and 0 or 1)
