--- Collectives of values other than tensors: numbers, texts, booleans, tensors and tables of them. In one process they
--- are returned unchanged.
local C = require "accelhost._C"
local serialize = require "accelhost.util.serialize"
local values = require "accelhost.distributed.values"
local comm = C.comm

local objects = {}

--- Every process's value, in the order of the ranks. A collective.
---@return any[]
---@return integer count
function objects.all_gather(what, value)
  if comm.size() > 1 then return values.all_gather(comm.world(), serialize.pack(what, "value", value)), comm.size() end
  serialize.check(what, "value", value) -- one process refuses the same values as several
  return {value}, 1
end

--- The items of every process's list in one list. A collective.
---@param list any[]
function objects.concatenated(what, list)
  local all = {}
  for _, part in ipairs((objects.all_gather(what, list))) do
    for _, item in ipairs(part) do all[#all + 1] = item end
  end
  return all
end

--- Return rank `from`'s value on every process; on one that replaces it, the value it had sent. A collective.
---@param from integer
function objects.broadcast(what, value, from)
  if comm.size() == 1 then return value end
  local own = comm.rank() == from
  local bytes = values.broadcast(comm.world(), own and serialize.pack(what, "value", value) or nil, from)
  if own and not C.recovery.is_on() then return value end
  return serialize.unpack(bytes)
end

--- Each rank's item of rank 0's list. A collective.
---@param list any[]? on rank 0: one item for each rank
function objects.scatter(what, list)
  local packed = list and {}
  for rank = 1, list and comm.size() or 0 do packed[rank] = serialize.pack(what, "value", list[rank]) end
  return values.scatter(comm.world(), packed, 0)
end

return objects
