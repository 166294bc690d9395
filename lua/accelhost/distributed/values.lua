--- Exchange Lua values between the processes of a native group: as bytes (util/serialize.lua), after their number.
local C = require "accelhost._C"
local serialize = require "accelhost.util.serialize"

local values = {}

local function whole_numbers(list) return C.tensor(list, {dtype = "int64", device = "cpu"}) end

local function room(bytes) return C.zeros({bytes}, {dtype = "uint8", device = "cpu"}) end

-- Return bytes of the length that the group recorded: a process that replaces another one repeats that one's message,
-- whose length may differ from its own value now.
local function as_given(bytes, count) return bytes:numel() == count and bytes or room(count) end

-- Return the number of bytes of each process.
local function lengths(native, own)
  local all = C.zeros({native:size()}, {dtype = "int64", device = "cpu"})
  native:collective("all_gather", all, whole_numbers {own})
  return all:tolist()
end

-- Unpack the values that are stored one after the other.
local function unpack_all(bytes, counts, list)
  local at = 0
  for r, count in ipairs(counts) do
    list[r] = serialize.unpack(bytes:narrow(0, at, count))
    at = at + count
  end
  return list
end

--- Every process's value, in the order of the ranks. A collective.
---@param bytes userdata this process's
---@param list? table the list to fill
---@return table list
function values.all_gather(native, bytes, list)
  local counts, total = lengths(native, bytes:numel()), 0
  for _, count in ipairs(counts) do total = total + count end
  local all = room(total)
  native:collective("all_gather_ragged", all, as_given(bytes, counts[native:rank() + 1]), {counts = counts})
  return unpack_all(all, counts, list or {})
end

-- Bytes from one process to all, or from all to one: counts[r + 1] of rank r.
local function exchange(native, counts, root, scatters, given)
  local size, own, total, pairwise = native:size(), native:rank(), 0, {}
  for i = 1, size * size do pairwise[i] = 0 end
  for r = 0, size - 1 do
    pairwise[scatters and root * size + r + 1 or r * size + root + 1] = counts[r + 1]
    if scatters and r == own or not scatters and own == root then total = total + counts[r + 1] end
  end
  local out = room(total)
  native:collective("all_to_all_ragged", out, given or room(0), {counts = pairwise})
  return out
end

--- Every process's value on one of them. A collective.
---@param bytes userdata this process's
---@param root integer the receiving rank, in the group
---@param list? table the list to fill on the receiver
function values.gather(native, bytes, root, list)
  local counts = lengths(native, bytes:numel())
  local out = exchange(native, counts, root, false, as_given(bytes, counts[native:rank() + 1]))
  if native:rank() == root then unpack_all(out, counts, list) end
end

--- Each process's value of one's list. A collective.
---@param packed userdata[]? on the giver: the bytes of each process's value
---@param root integer the sending rank, in the group
function values.scatter(native, packed, root)
  local counts = {}
  for r = 1, native:size() do counts[r] = packed and packed[r]:numel() or 0 end
  counts = whole_numbers(counts)
  native:broadcast(counts, root)
  return serialize.unpack(exchange(native, counts:tolist(), root, true,
    packed and as_given(C.cat(packed, 0), counts:sum():item())))
end

--- One process's bytes on all. A collective.
---@param bytes userdata? on the giver
---@param root integer the sending rank, in the group
---@return userdata bytes
function values.broadcast(native, bytes, root)
  local length = whole_numbers {bytes and bytes:numel() or 0}
  native:broadcast(length, root)
  bytes = as_given(bytes or room(0), length:item())
  native:broadcast(bytes, root)
  return bytes
end

--- Send bytes to a process, which receives them by `receive`.
---@param bytes userdata
---@param peer integer
function values.send(native, bytes, peer)
  native:send(whole_numbers {bytes:numel()}, peer)
  native:send(bytes, peer)
end

--- Receive bytes.
---@param peer? integer nil: from whichever has sent some first
---@return userdata bytes
---@return integer peer
function values.receive(native, peer)
  local length = whole_numbers {0}
  peer = native:recv(length, peer)
  local bytes = room(length:item())
  native:recv(bytes, peer)
  return bytes, peer
end

return values
