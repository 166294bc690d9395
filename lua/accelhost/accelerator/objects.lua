--- Values that are no tensors, between the processes: numbers, texts, booleans, tensors and tables of them.
local C = require "accelhost._C"
local travel = require "accelhost.util.travel"
local comm = C.comm

local objects = {}

local function pack(what, value)
  travel.check(what, "value", value)
  return travel.pack(value)
end

--- Every process's value, in the order of the ranks. A collective.
---@param what string the function, for messages
---@param value any
---@return any[]
---@return integer count
function objects.all_gather(what, value)
  local size = comm.size()
  if size == 1 then
    travel.check(what, "value", value) -- what several processes refuse, one refuses too
    return {value}, 1
  end
  local bytes = pack(what, value)
  local lengths = comm.all_gather(C.tensor({bytes:numel()}, {dtype = "int64", device = "cpu"})):tolist()
  local all, values, first = comm.all_gather_ragged(bytes), {}, 0
  for rank = 1, size do
    values[rank] = travel.unpack(all:narrow(0, first, lengths[rank]))
    first = first + lengths[rank]
  end
  return values, size
end

--- The items of every process's list in one list. A collective.
---@param what string
---@param list any[]
---@return any[]
function objects.concatenated(what, list)
  local all = {}
  for _, part in ipairs((objects.all_gather(what, list))) do
    for _, item in ipairs(part) do all[#all + 1] = item end
  end
  return all
end

--- Rank `from`'s value on every process. A collective.
---@param what string
---@param value any
---@param from integer
---@return any
function objects.broadcast(what, value, from)
  if comm.size() == 1 then return value end
  local own = comm.rank() == from
  local bytes = own and pack(what, value) or nil
  local length = C.tensor({own and bytes:numel() or 0}, {dtype = "int64", device = "cpu"})
  comm.broadcast(length, from)
  if not own then bytes = C.zeros({length:item()}, {dtype = "uint8", device = "cpu"}) end
  comm.broadcast(bytes, from)
  if own then return value end
  return travel.unpack(bytes)
end

--- Each rank's item of rank 0's list. A collective.
---@param what string
---@param list any[]? on rank 0: one item for each rank
---@return any
function objects.scatter(what, list)
  local parts, longest = {}, 0
  for rank = 1, list and comm.size() or 0 do
    parts[rank] = pack(what, list[rank])
    longest = math.max(longest, parts[rank]:numel())
  end
  for rank, part in ipairs(parts) do
    local missing = longest - part:numel()
    if missing > 0 then parts[rank] = C.cat({part, C.zeros({missing}, {dtype = "uint8", device = "cpu"})}, 0) end
  end
  return travel.unpack(comm.scatter(list and C.cat(parts, 0) or nil, 0))
end

return objects
