--- Collectives on tensors, by PyTorch's names, into tensors of the script.
---@param tensor userdata of one shape and dtype on all processes
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local groups = require "accelhost.distributed.groups"
local work = require "accelhost.distributed.work"
local fail, shape_text = arguments.fail, arguments.shape_text
local no_grad = C.autograd.no_grad

local collectives = {}

--- The reductions of the processes' values by all_reduce and its kin: SUM, AVG (the mean), PRODUCT, MIN, MAX, and of
--- the bits of integers and bool BAND, BOR, BXOR. Their values are accepted as well: "sum", "mean", "product", "min",
--- "max", "and", "or", "xor". Sums are formed in rank order: the same bits on every process and in every run.
--
--   dist.all_reduce(x, dist.ReduceOp.MAX)
collectives.ReduceOp = setmetatable({
  SUM = "sum", AVG = "mean", PRODUCT = "product", MIN = "min", MAX = "max", BAND = "and", BOR = "or", BXOR = "xor",
}, {__index = function(self, name)
  local known = arguments.sorted_keys(self)
  fail("distributed.ReduceOp has no %s%s (known: %s)", tostring(name),
    name == "PREMUL_SUM" and ": multiply the tensor before the call" or "", table.concat(known, ", "))
end})

local reduction = {"op: 'sum'|'mean'|'product'|'min'|'max'|'and'|'or'|'xor'", "sum", "of ReduceOp"}

-- Begin a call, or make it: `finish` copies its result to the script's tensors.
local function run(group, kind, out, given, options, async, value, finish)
  if async then
    options.async = true
    return work.Work(group.native:collective(kind, out, given, options), finish, value)
  end
  group.native:collective(kind, out, given, options)
  if finish then finish() end
end

local function reader(name, parameters)
  parameters[#parameters + 1] = {"group: group"}
  parameters[#parameters + 1] = {"async_op: flag", false}
  return arguments.signature("distributed." .. name, parameters)
end

-- The rank in the group of the process that a call sends from or to, named by its rank in the job or the group.
local function root_of(what, group, rank, group_rank, name)
  if rank and group_rank then fail("%s: pass %s or group_%s, not both", what, name, name) end
  if not rank and not group_rank then fail("%s: '%s' is missing", what, name) end
  if rank then return groups.local_rank(what, group, rank, name) end
  if group_rank >= group:size() then
    fail("%s: group_%s: expected 0 to %d, got %d", what, name, group:size() - 1, group_rank)
  end
  return group_rank
end
collectives.root_of = root_of

-- In place.

local read_all_reduce = reader("all_reduce", {"tensor: tensor", reduction})

--- Combine the processes' tensors, in place, on every one of them.
--
--   dist.all_reduce(x)                                       -- x is the sum now
--   dist.all_reduce(x, {op = dist.ReduceOp.MAX, async_op = true}):wait()
function collectives.all_reduce(...)
  local tensor, op, group, async = read_all_reduce(...)
  group = groups.resolve("distributed.all_reduce", group)
  if not group then return end
  return run(group, "all_reduce", tensor, tensor, {op = op}, async, tensor)
end

local read_broadcast = arguments.signature("distributed.broadcast", {
  "tensor: tensor", {"src: size"}, {"group: group"}, {"async_op: flag", false}, {"group_src: size"},
})

--- Broadcast the tensor of one process, in place.
--
--   dist.broadcast(x, 0)
---@param src? integer the giver's rank in the job
function collectives.broadcast(...)
  local what = "distributed.broadcast"
  local tensor, src, group, async, group_src = read_broadcast(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = root_of(what, group, src, group_src, "src")
  return run(group, "broadcast", tensor, tensor, {root = root}, async, tensor)
end

local read_reduce = arguments.signature("distributed.reduce", {
  "tensor: tensor", {"dst: size"}, reduction, {"group: group"}, {"async_op: flag", false}, {"group_dst: size"},
})

--- Combine the processes' tensors, in place, on one of them; those of the others are unchanged.
--
--   dist.reduce(x, 0)
---@param dst? integer the taker's rank in the job
function collectives.reduce(...)
  local what = "distributed.reduce"
  local tensor, dst, op, group, async, group_dst = read_reduce(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = root_of(what, group, dst, group_dst, "dst")
  local out = group:rank() == root and tensor or nil
  return run(group, "reduce", out, tensor, {root = root, op = op}, async, tensor)
end

-- Lists of tensors, one for each process.

local function check_list(what, name, list, count, like)
  if #list ~= count then fail("%s: %s: expected %d tensors, one for each process, got %d", what, name, count, #list) end
  for i, tensor in ipairs(list) do
    local same = tensor.dtype == like.dtype and tensor:numel() == like:numel()
    if not same then
      fail("%s: %s: tensor %d is %s %s, expected %s %s", what, name, i, tensor.dtype, shape_text(tensor), like.dtype,
        shape_text(like))
    end
  end
end

-- A tensor with a row for each of `count` tensors like this one.
local function rows_like(tensor, count)
  return tensor:new_empty({count, tensor:numel()})
end

local function spread(rows, list)
  return function()
    no_grad(function()
      for i, tensor in ipairs(list) do tensor:copy_(rows[i - 1]:reshape(tensor:shape())) end
    end)
  end
end

--- The elements of all tensors in one, without their history.
---@param list userdata[]
---@return userdata
function collectives.joined(list)
  return no_grad(function()
    local flat = {}
    for i, tensor in ipairs(list) do flat[i] = tensor:detach():reshape(-1) end
    return C.cat(flat, 0)
  end)
end

local read_all_gather = reader("all_gather", {"tensor_list: tensor_list", "tensor: tensor"})

--- Copy every process's tensor to all of them.
--
--   dist.all_gather({accelhost.empty(3)}, accelhost.ones(3))
---@param tensor_list userdata[] one for each process, as large as `tensor`; written
function collectives.all_gather(...)
  local what = "distributed.all_gather"
  local list, tensor, group, async = read_all_gather(...)
  group = groups.resolve(what, group)
  if not group then return end
  check_list(what, "tensor_list", list, group:size(), tensor)
  local rows = rows_like(tensor, group:size())
  return run(group, "all_gather", rows, tensor, {}, async, list, spread(rows, list))
end

local read_into = reader("all_gather_into_tensor", {"output_tensor: tensor", "input_tensor: tensor"})

local function check_dtypes(what, output, input)
  if output.dtype ~= input.dtype then
    fail("%s: expected tensors of one dtype, got %s and %s", what, output.dtype, input.dtype)
  end
end

--- Copy every process's tensor to all of them, into one tensor: [n, ...] from each to [processes * n, ...], or
--- [processes, n, ...].
--
--   dist.all_gather_into_tensor(accelhost.empty(3), accelhost.ones(3))
---@param output_tensor userdata written
---@param input_tensor userdata of one shape and dtype on all processes
function collectives.all_gather_into_tensor(...)
  local what = "distributed.all_gather_into_tensor"
  local output, input, group, async = read_into(...)
  group = groups.resolve(what, group)
  if not group then return end
  check_dtypes(what, output, input)
  if output:numel() ~= input:numel() * group:size() then
    fail("%s: output_tensor %s does not hold %d tensors %s", what, shape_text(output), group:size(), shape_text(input))
  end
  return run(group, "all_gather", output, input, {}, async, output)
end

--- The same as all_gather_into_tensor.
--
--   dist.all_gather_single(accelhost.empty(3), accelhost.ones(3))
collectives.all_gather_single = collectives.all_gather_into_tensor

local read_gather = arguments.signature("distributed.gather", {
  "tensor: tensor", {"gather_list: tensor_list"}, {"dst: size"}, {"group: group"}, {"async_op: flag", false},
  {"group_dst: size"},
})

--- Copy every process's tensor to one of them.
--
--   dist.gather(accelhost.ones(3), {accelhost.empty(3)}, {dst = 0})
---@param gather_list? userdata[] on the taker: one for each process, as large as `tensor`; written
---@param dst? integer the taker's rank in the job; default: the group's first
function collectives.gather(...)
  local what = "distributed.gather"
  local tensor, list, dst, group, async, group_dst = read_gather(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = root_of(what, group, dst, group_dst or not dst and 0 or nil, "dst")
  if group:rank() ~= root then
    if list and #list > 0 then fail("%s: gather_list: expected on rank %d only", what, group.ranks[root + 1]) end
    return run(group, "gather", nil, tensor, {root = root}, async)
  end
  if not list then fail("%s: 'gather_list' is missing on rank %d, which receives", what, group.ranks[root + 1]) end
  check_list(what, "gather_list", list, group:size(), tensor)
  local rows = rows_like(tensor, group:size())
  return run(group, "gather", rows, tensor, {root = root}, async, list, spread(rows, list))
end

local read_gather_single = arguments.signature("distributed.gather_single", {
  "tensor: tensor", {"gather_tensor: tensor"}, {"dst: size"}, {"group: group"}, {"async_op: flag", false},
  {"group_dst: size"},
})

--- Copy every process's tensor to one of them, into one tensor: [n, ...] from each to [processes * n, ...], or
--- [processes, n, ...].
--
--   dist.gather_single(accelhost.ones(3), accelhost.empty(3), {dst = 0})
---@param gather_tensor? userdata on the taker; written
---@param dst? integer the taker's rank in the job; default: the group's first
---@param group? ProcessGroup default: the world
---@param group_dst? integer its rank in the group, instead of `dst`
function collectives.gather_single(...)
  local what = "distributed.gather_single"
  local tensor, out, dst, group, async, group_dst = read_gather_single(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = root_of(what, group, dst, group_dst or not dst and 0 or nil, "dst")
  local takes = group:rank() == root
  if takes and not out then
    fail("%s: 'gather_tensor' is missing on rank %d, which receives", what, group.ranks[root + 1])
  end
  if takes then check_dtypes(what, out, tensor) end
  if takes and out:numel() ~= tensor:numel() * group:size() then
    fail("%s: gather_tensor %s does not hold %d tensors %s", what, shape_text(out), group:size(), shape_text(tensor))
  end
  return run(group, "gather", takes and out or nil, tensor, {root = root}, async, takes and out or nil)
end

--- The same as gather_single.
--
--   dist.gather_into_tensor(accelhost.ones(3), accelhost.empty(3), {dst = 0})
collectives.gather_into_tensor = collectives.gather_single

local read_scatter = arguments.signature("distributed.scatter", {
  "tensor: tensor", {"scatter_list: tensor_list"}, {"src: size"}, {"group: group"}, {"async_op: flag", false},
  {"group_src: size"},
})

--- Scatter the tensors of one process.
--
--   dist.scatter(accelhost.empty(3), {accelhost.ones(3)}, {src = 0})
---@param tensor userdata written; of one shape and dtype on all processes
---@param scatter_list? userdata[] on the giver: one for each process, as large as `tensor`
---@param src? integer the giver's rank in the job; default: the group's first
function collectives.scatter(...)
  local what = "distributed.scatter"
  local tensor, list, src, group, async, group_src = read_scatter(...)
  group = groups.resolve(what, group)
  if not group then return end
  local root = root_of(what, group, src, group_src or not src and 0 or nil, "src")
  local given
  if group:rank() == root then
    if not list then fail("%s: 'scatter_list' is missing on rank %d, which sends", what, group.ranks[root + 1]) end
    check_list(what, "scatter_list", list, group:size(), tensor)
    given = collectives.joined(list)
  elseif list and #list > 0 then
    fail("%s: scatter_list: expected on rank %d only", what, group.ranks[root + 1])
  end
  return run(group, "scatter", tensor, given, {root = root}, async, tensor)
end

local read_reduce_scatter = reader("reduce_scatter", {"output: tensor", "input_list: tensor_list", reduction})

--- Combine the processes' lists tensor by tensor; process r receives the r-th.
--
--   dist.reduce_scatter(accelhost.empty(3), {accelhost.ones(3)})
---@param output userdata written
---@param input_list userdata[] one for each process, as large as `output`
function collectives.reduce_scatter(...)
  local what = "distributed.reduce_scatter"
  local output, list, op, group, async = read_reduce_scatter(...)
  group = groups.resolve(what, group)
  if not group then return end
  check_list(what, "input_list", list, group:size(), output)
  return run(group, "reduce_scatter", output, collectives.joined(list), {op = op}, async, output)
end

local read_reduce_scatter_tensor = reader("reduce_scatter_tensor", {
  "output: tensor", "input: tensor", reduction,
})

--- Combine the processes' tensors; process r receives the r-th part of dim 0: [processes * n, ...] (or [processes, n,
--- ...]) from each to [n, ...].
--
--   dist.reduce_scatter_tensor(accelhost.empty(3), accelhost.ones(3))
---@param output userdata written
---@param input userdata of one shape and dtype on all processes
---@param group? ProcessGroup default: the world
function collectives.reduce_scatter_tensor(...)
  local what = "distributed.reduce_scatter_tensor"
  local output, input, op, group, async = read_reduce_scatter_tensor(...)
  group = groups.resolve(what, group)
  if not group then return end
  check_dtypes(what, output, input)
  if input:numel() ~= output:numel() * group:size() then
    fail("%s: input %s is not %d times as large as output %s", what, shape_text(input), group:size(),
      shape_text(output))
  end
  return run(group, "reduce_scatter", output, input, {op = op}, async, output)
end

--- The same as reduce_scatter_tensor.
--
--   dist.reduce_scatter_single(accelhost.empty(3), accelhost.ones(3))
collectives.reduce_scatter_single = collectives.reduce_scatter_tensor

-- Barriers.

local read_barrier = arguments.signature("distributed.barrier", {
  {"group: group"}, {"async_op: flag", false}, {"device_ids"}, {"timeout: positive"},
})

--- Wait until all processes of a group are here.
--
--   dist.barrier()
---@param device_ids? nil of GPUs
---@param timeout? number seconds to wait at most; default: the group's
function collectives.barrier(...)
  local what = "distributed.barrier"
  local group, async, device_ids, timeout = read_barrier(...)
  group = groups.resolve(what, group)
  if device_ids ~= nil then fail("%s: device_ids: they are of GPUs; leave it out", what) end
  if timeout and async then fail("%s: a timeout is of a blocking call; leave async_op or timeout out", what) end
  if not group then return end
  return run(group, "barrier", nil, nil, {timeout = timeout}, async)
end

--- A barrier that names who is missing when the time is up: the first of them, or all with wait_all_ranks. As with any
--- collective that failed the group is of no use after that.
--
--   dist.monitored_barrier{timeout = 2, wait_all_ranks = true}
---@param timeout? number seconds to wait at most; default: the group's
collectives.monitored_barrier = arguments.named("distributed.monitored_barrier", {
  {"group: group"}, {"timeout: positive"}, {"wait_all_ranks: flag", false},
}, function(what, group, timeout, all)
  group = groups.resolve(what, group)
  if not group then return end
  run(group, "monitored_barrier", nil, nil, {timeout = timeout, all = all})
end)

collectives.run = run

return collectives
