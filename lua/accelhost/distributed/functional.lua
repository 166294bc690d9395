--- accelhost.distributed.nn: collectives with gradients, by the names of torch.distributed.nn. Each returns new
--- tensors, and its gradient is a collective too: all processes run backward through the same calls, in the same order.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local collectives = require "accelhost.distributed.collectives"
local exchange = require "accelhost.distributed.exchange"
local groups = require "accelhost.distributed.groups"
local namespace = require "accelhost.util.namespace"

local fail = arguments.fail
local functional = {}

local OP = {"op: 'sum'|'mean'", "sum", "of ReduceOp"} -- the others' gradients need values of other processes

local function reader(name, parameters)
  parameters[#parameters + 1] = {"group: group"}
  return arguments.signature("distributed.nn." .. name, parameters)
end

-- The group of a call. A process outside of it has nothing to return.
local function group_of(name, group)
  group = groups.resolve("distributed.nn." .. name, group)
  return group or fail("distributed.nn.%s: this process is not in the group", name)
end

-- A function of autograd whose calls are Function.apply(group, option, tensors...).
local function define(name, forward, backward)
  local made = autograd.Function:extend("distributed.nn." .. name)
  function made.forward(ctx, group, option, ...)
    ctx.group, ctx.option = group, option
    return forward(ctx, group, option, ...)
  end
  function made.backward(ctx, ...) return nil, nil, backward(ctx, ctx.group, ctx.option, ...) end
  return made.apply
end

local function memory(tensor) return tensor:detach():contiguous() end

local function memory_of_each(...)
  local list = {...}
  for i, tensor in ipairs(list) do list[i] = memory(tensor) end
  return list
end

local function blanks(tensor, count)
  local list = {}
  for i = 1, count do list[i] = tensor:new_empty(tensor:shape()) end
  return list
end

-- Each function is the gradient of another one, or of itself.
local all_reduce, broadcast, reduce, gather, scatter, all_gather, reduce_scatter, all_to_all

all_reduce = define("all_reduce", function(_, group, op, tensor)
  local out = memory(tensor):clone()
  collectives.all_reduce(out, op, group)
  return out
end, function(_, group, op, grad) return all_reduce(group, op, grad) end)

broadcast = define("broadcast", function(_, group, root, tensor)
  local out = memory(tensor):clone()
  collectives.broadcast(out, {group_src = root, group = group})
  return out
end, function(_, group, root, grad) return reduce(group, {root, "sum"}, grad) end)

reduce = define("reduce", function(_, group, option, tensor)
  local out = memory(tensor):clone()
  collectives.reduce(out, {group_dst = option[1], op = option[2], group = group})
  return group:rank() == option[1] and out or out:zero_()
end, function(_, group, option, grad)
  grad = broadcast(group, option[1], grad)
  return option[2] == "mean" and grad / group:size() or grad
end)

gather = define("gather", function(_, group, root, tensor)
  tensor = memory(tensor)
  local list = blanks(tensor, group:size())
  local takes = group:rank() == root
  collectives.gather(tensor, takes and list or nil, {group_dst = root, group = group})
  if not takes then
    for _, blank in ipairs(list) do blank:zero_() end
  end
  return unpack(list)
end, function(_, group, root, ...) return scatter(group, root, ...) end)

scatter = define("scatter", function(_, group, root, ...)
  local list = memory_of_each(...)
  local out = list[1]:new_empty(list[1]:shape())
  collectives.scatter(out, group:rank() == root and list or nil, {group_src = root, group = group})
  return out
end, function(_, group, root, grad) return gather(group, root, grad) end)

all_gather = define("all_gather", function(_, group, _, tensor)
  tensor = memory(tensor)
  local list = blanks(tensor, group:size())
  collectives.all_gather(list, tensor, group)
  return unpack(list)
end, function(_, group, _, ...) return reduce_scatter(group, "sum", ...) end)

reduce_scatter = define("reduce_scatter", function(_, group, op, ...)
  local list = memory_of_each(...)
  local out = list[1]:new_empty(list[1]:shape())
  collectives.reduce_scatter(out, list, op, group)
  return out
end, function(_, group, op, grad)
  if op == "mean" then grad = grad / group:size() end
  return all_gather(group, nil, grad)
end)

-- option: the shapes of the tensors that arrive.
all_to_all = define("all_to_all", function(ctx, group, shapes, ...)
  local list, outputs = memory_of_each(...), {}
  ctx.shapes = {}
  for i, tensor in ipairs(list) do
    ctx.shapes[i] = tensor:shape()
    outputs[i] = tensor:new_empty(shapes[i])
  end
  exchange.all_to_all(outputs, list, group)
  return unpack(outputs)
end, function(ctx, group, _, ...) return all_to_all(group, ctx.shapes, ...) end)

local function check_list(name, argument, list, group)
  if #list ~= group:size() then
    fail("distributed.nn.%s: %s: expected %d tensors, one for each process, got %d", name, argument, group:size(),
      #list)
  end
end

local read_all_reduce = reader("all_reduce", {"tensor: tensor", OP})

--- The sum or mean of the processes' tensors, on every one of them.
--
--   dist.nn.all_reduce(accelhost.ones(3))
---@param tensor userdata of one shape and dtype on all processes
---@param op? string "sum" or "mean"
---@return userdata
function functional.all_reduce(...)
  local tensor, op, group = read_all_reduce(...)
  return all_reduce(group_of("all_reduce", group), op, tensor)
end

local read_broadcast = reader("broadcast", {"tensor: tensor", "src: size"})

--- The tensor of one process, on every one of them. Its gradient is the sum of theirs.
--
--   dist.nn.broadcast(accelhost.ones(3), 0)
---@param tensor userdata of one shape and dtype on all processes
---@param src integer the sender's rank in the job
---@return userdata
function functional.broadcast(...)
  local tensor, src, group = read_broadcast(...)
  group = group_of("broadcast", group)
  return broadcast(group, groups.local_rank("distributed.nn.broadcast", group, src, "src"), tensor)
end

local read_reduce = reader("reduce", {"tensor: tensor", "dst: size", OP})

--- The sum or mean of the processes' tensors on one of them, zeros on the others.
--
--   dist.nn.reduce(accelhost.ones(3), 0)
---@param tensor userdata of one shape and dtype on all processes
---@param dst integer the receiver's rank in the job
---@param op? string "sum" or "mean"
---@return userdata
function functional.reduce(...)
  local tensor, dst, op, group = read_reduce(...)
  group = group_of("reduce", group)
  return reduce(group, {groups.local_rank("distributed.nn.reduce", group, dst, "dst"), op}, tensor)
end

local read_gather = reader("gather", {"tensor: tensor", {"dst: size", 0}})

--- Every process's tensor, on one of them; zeros on the others.
--
--   dist.nn.gather(accelhost.ones(3))
---@param tensor userdata of one shape and dtype on all processes
---@param dst? integer the receiver's rank in the job
---@return userdata[] # by rank in the group
function functional.gather(...)
  local tensor, dst, group = read_gather(...)
  group = group_of("gather", group)
  return {gather(group, groups.local_rank("distributed.nn.gather", group, dst, "dst"), tensor)}
end

local read_scatter = reader("scatter", {"tensors: tensor_list", {"src: size", 0}})

--- The tensor that one process has for this one.
--
--   dist.nn.scatter {accelhost.ones(3)}
---@param tensors userdata[] one for each process, of one shape and dtype; those of the sender count
---@param src? integer the sender's rank in the job
---@return userdata
function functional.scatter(...)
  local tensors, src, group = read_scatter(...)
  group = group_of("scatter", group)
  check_list("scatter", "tensors", tensors, group)
  return scatter(group, groups.local_rank("distributed.nn.scatter", group, src, "src"), unpack(tensors))
end

local read_all_gather = reader("all_gather", {"tensor: tensor"})

--- Every process's tensor, on every one of them: texts and images of all processes in one contrastive loss, say. The
--- gradient is the sum of those that the processes have for this one's tensor.
--
--   accelhost.cat(dist.nn.all_gather(accelhost.ones(2, 3)), 0)
---@param tensor userdata of one shape and dtype on all processes
---@return userdata[] # by rank in the group
function functional.all_gather(...)
  local tensor, group = read_all_gather(...)
  return {all_gather(group_of("all_gather", group), nil, tensor)}
end

local read_reduce_scatter = reader("reduce_scatter", {"output: tensor", "input_list: tensor_list", OP})

--- The sum or mean of the processes' lists tensor by tensor; process r receives the r-th.
--
--   dist.nn.reduce_scatter(accelhost.empty(3), {accelhost.ones(3)})
---@param output userdata of the result's shape; not written
---@param input_list userdata[] one for each process, as large as `output`
---@param op? string "sum" or "mean"
---@return userdata
function functional.reduce_scatter(...)
  local output, list, op, group = read_reduce_scatter(...)
  group = group_of("reduce_scatter", group)
  check_list("reduce_scatter", "input_list", list, group)
  for i, tensor in ipairs(list) do
    if arguments.shape_text(tensor) ~= arguments.shape_text(output) then
      fail("distributed.nn.reduce_scatter: input_list: tensor %d has shape %s, output %s", i,
        arguments.shape_text(tensor), arguments.shape_text(output))
    end
  end
  return reduce_scatter(group, op, unpack(list))
end

local read_all_to_all = reader("all_to_all", {"output_tensor_list: tensor_list", "input_tensor_list: tensor_list"})

--- Send each process a tensor and receive one from each, as experts do that are divided among processes.
--
--   dist.nn.all_to_all({accelhost.empty(3)}, {accelhost.ones(3)})
---@param output_tensor_list userdata[] one for each process, of the shapes that arrive; not written
---@param input_tensor_list userdata[] one for each process
---@return userdata[] # by rank in the group
function functional.all_to_all(...)
  local outputs, inputs, group = read_all_to_all(...)
  group = group_of("all_to_all", group)
  check_list("all_to_all", "output_tensor_list", outputs, group)
  check_list("all_to_all", "input_tensor_list", inputs, group)
  local shapes = {}
  for i, tensor in ipairs(outputs) do shapes[i] = tensor:shape() end
  return {all_to_all(group, shapes, unpack(inputs))}
end

local read_all_to_all_single = reader("all_to_all_single", {
  "output: tensor", "input: tensor", {"output_split_sizes: list"}, {"input_split_sizes: list"},
})

local function equal_parts(tensor, group)
  local sizes, rows = {}, tensor:dim() > 0 and tensor:size(0) / group:size() or 0.5
  if rows % 1 ~= 0 then
    fail("distributed.nn.all_to_all_single: dim 0 of %s does not divide by %d processes", arguments.shape_text(tensor),
      group:size())
  end
  for i = 1, group:size() do sizes[i] = rows end
  return sizes
end

--- Cut dim 0 of the input into a part for each process; the result holds, in rank order, the parts that all sent to
--- this one.
--
--   dist.nn.all_to_all_single(accelhost.empty(4), accelhost.ones(4))
---@param output userdata of the result's shape; not written
---@param input userdata
---@param output_split_sizes? integer[] sizes received from each process; default: equal parts
---@param input_split_sizes? integer[] sizes sent to each process
---@return userdata
function functional.all_to_all_single(...)
  local output, input, output_sizes, input_sizes, group = read_all_to_all_single(...)
  group = group_of("all_to_all_single", group)
  local shapes = {}
  for i, rows in ipairs(output_sizes or equal_parts(output, group)) do
    shapes[i] = output:shape()
    shapes[i][1] = rows
  end
  local parts = input:split(input_sizes or equal_parts(input, group))
  return C.cat({all_to_all(group, shapes, unpack(parts))}, 0)
end

return namespace.new("distributed.nn", functional, {}, {refused = {functional = "its functions are in distributed.nn"}})
