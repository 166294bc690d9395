--- Collectives on values of any form, without an accelerator.
---@param tensor userdata|table
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local collectives = require "accelhost.accelerator.process.collectives"
local objects = require "accelhost.accelerator.process.objects"
local comm = C.comm

local operations = {}

--- Concatenate every process's tensors on dim 0, on every process; tables are traversed. A collective.
--
--   accelhost.utils.gather(a)  --> tensor([1., 2., 3.])
---@return any
function operations.gather(tensor)
  return (collectives.map("gather", collectives.gather, tensor))
end

--- Combine every process's tensors, on every process; tables are traversed. A collective.
--
--   accelhost.utils.reduce(a, "sum")  --> tensor([1., 2., 3.])
---@param reduction? string "sum", "mean", "max", "min" or "product"
---@param scale? number factor of the result
---@return any
operations.reduce = arguments.named("reduce", {
  "tensor: any", {"reduction: string", "mean"}, {"scale: number", 1},
}, function(what, value, reduction, scale)
  return (collectives.map(what, function(tensor)
    local result = collectives.reduce(tensor, reduction)
    return scale == 1 and result or result * scale
  end, value))
end)

local function check_rank(what, from)
  if from >= comm.size() then
    arguments.fail("%s: from_process: expected 0 to %d, got %d", what, comm.size() - 1, from)
  end
end

--- One process's tensors on every process; tables are traversed. All pass tensors of one shape. A collective.
--
--   accelhost.utils.broadcast(a)  --> tensor([1., 2., 3.])
---@return any
operations.broadcast = arguments.named("broadcast", {
  "tensor: any", {"from_process: size", 0},
}, function(what, value, from)
  check_rank(what, from)
  return (collectives.map(what, function(tensor)
    local copy = tensor:detach():clone()
    if comm.size() > 1 then comm.broadcast(copy, from) end
    return copy
  end, value))
end)

--- Pad every process's tensors to the longest along a dim; tables are traversed. A collective.
--
--   accelhost.utils.pad_across_processes(a)  --> tensor([1., 2., 3.])
---@return any
operations.pad_across_processes = arguments.named("pad_across_processes", {
  "tensor: any", {"dim: integer", 0}, {"pad_index: number", 0}, {"pad_first: flag", false},
}, function(what, value, dim, pad_index, pad_first)
  local options = {dim = dim, pad_index = pad_index, pad_first = pad_first}
  return (collectives.map(what, function(tensor) return collectives.pad(tensor, options) end, value))
end)

--- The items of every process's list in one list, on every process; numbers, texts, booleans, tensors and tables of
--- them are serialised. With one process the result is a list, too. A collective.
--
--   accelhost.utils.gather_object{"a", "b"}  --> {a, b}
---@param object any[]
---@return any[]
function operations.gather_object(object)
  arguments.check("gather_object", "object", "list", object)
  return objects.concatenated("gather_object", object)
end

--- One process's list in the place of every process's. A collective.
--
--   accelhost.utils.broadcast_object_list{"a", "b"}  --> {a, b}
---@param object_list any[] changed in place
---@return any[] object_list
operations.broadcast_object_list = arguments.named("broadcast_object_list", {
  "object_list: list", {"from_process: size", 0},
}, function(what, list, from)
  check_rank(what, from)
  local all = objects.broadcast(what, list, from)
  if all ~= list then
    for i = math.max(#list, #all), 1, -1 do list[i] = all[i] end
  end
  return list
end)

--- Return the tensor of one process on every process; the others pass nil. A collective.
--
--   accelhost.utils.copy_tensor_to_devices(a)  --> tensor([1., 2., 3.])
---@param tensor? userdata
---@return userdata
function operations.copy_tensor_to_devices(tensor)
  if tensor ~= nil then arguments.check("copy_tensor_to_devices", "tensor", "tensor", tensor) end
  local all, count = objects.all_gather("copy_tensor_to_devices", tensor ~= nil and tensor:detach() or false)
  local found
  for rank = 1, count do
    if all[rank] then
      if found then arguments.fail "copy_tensor_to_devices: expected a tensor on one process, got several" end
      found = all[rank]
    end
  end
  return found or arguments.fail "copy_tensor_to_devices: no process has a tensor"
end

return operations
