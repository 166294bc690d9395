--- Collectives on tensors and on tables of them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local comm = C.comm

local collectives = {}

local function apply(what, fn, value)
  if C.is_tensor(value) then return fn(value) end
  if type(value) ~= "table" then
    arguments.fail("%s: expected a tensor or a table of tensors, got %s", what, arguments.describe(value))
  end
  local result = {}
  for _, key in ipairs(arguments.sorted_keys(value)) do result[key] = apply(what, fn, value[key]) end
  return result
end

--- Apply fn to every tensor in the arguments, tables included.
---@param fn fun(tensor: userdata): userdata
---@param ... userdata|table
---@return any ...
function collectives.map(what, fn, ...)
  local results, count = {}, select("#", ...)
  for i = 1, count do results[i] = apply(what, fn, (select(i, ...))) end
  return unpack(results, 1, count)
end

--- [n, ...] on each process -> [sum of n, ...] on all.
---@return userdata
function collectives.gather(tensor)
  tensor = tensor:detach()
  if tensor:dim() == 0 then tensor = tensor:reshape(1) end
  if comm.size() == 1 then return tensor end
  return comm.all_gather_ragged(tensor)
end

---@param reduction string
---@return userdata a new tensor
function collectives.reduce(tensor, reduction)
  local known = {sum = true, mean = true, max = true, min = true, product = true}
  if not known[reduction] then
    arguments.fail("reduce: expected sum, mean, max, min or product, got '%s'", tostring(reduction))
  end
  -- One process refuses the same dtypes as several.
  if reduction == "mean" and not tensor:is_floating_point() then
    arguments.fail("reduce: mean needs a floating dtype, got %s", tensor.dtype)
  end
  if tensor.dtype == "bool" and reduction ~= "max" and reduction ~= "min" then
    arguments.fail("reduce: bool has max and min only, got %s", reduction)
  end
  local result = C.autograd.no_grad(tensor.clone, tensor)
  if comm.size() > 1 then comm.all_reduce(result, reduction) end
  return result
end

---@param options {dim?: integer, pad_index?: number, pad_first?: boolean}
---@return userdata
function collectives.pad(tensor, options)
  local dim = options.dim or 0
  if dim < 0 then dim = dim + tensor:dim() end
  if tensor:dim() == 0 or dim >= tensor:dim() or comm.size() == 1 then return tensor end
  local length = tensor:size(dim)
  local longest = C.tensor({length}, {dtype = "int64", device = "cpu"})
  comm.all_reduce(longest, "max")
  longest = longest:item()
  if longest == length then return tensor end
  local shape = tensor:shape()
  shape[dim + 1] = longest - length
  local filler = tensor:new_full(shape, options.pad_index or 0)
  return C.cat(options.pad_first and {filler, tensor} or {tensor, filler}, dim)
end

--- Is it so on any process, or on every one?
---@param flag boolean
---@param every boolean
function collectives.agree(flag, every)
  local all = C.tensor({flag and 1 or 0}, {dtype = "int64", device = "cpu"})
  comm.all_reduce(all, every and "min" or "max")
  return all:item() == 1
end

--- Rank 0's bytes (a u8 tensor of the same length everywhere) on every process.
---@param tensor userdata u8 [n]
---@return userdata
function collectives.broadcast_bytes(tensor)
  if comm.size() > 1 then comm.broadcast(tensor, 0) end
  return tensor
end

return collectives
