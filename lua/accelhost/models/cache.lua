--- Keys and values of the tokens that a layer has seen, so that each is computed once.
--
-- An entry is {keys, values}, [batch, heads, tokens, width] each, and stays as it is: a longer one is made from it.
-- Without recorded history they are views of a buffer with unused capacity after them; the entry that ends where the
-- buffer's tokens end is extended in it, any other (a text with two continuations) gets a new buffer.
local C = require "accelhost._C"

local cache = {}

local function buffer_like(tensor, size)
  local shape = tensor:shape()
  shape[3] = size
  return C.empty(shape, {dtype = tensor.dtype, device = tensor.device})
end

local function new_room(entry, used, size)
  local room = {used = used, size = size}
  for i = 1, 2 do
    room[i] = buffer_like(entry[i], size)
    room[i]:narrow(2, 0, used):copy_(entry[i])
  end
  return room
end

--- The entry with more tokens behind.
---@param entry table? nil: there were none
---@param keys Tensor
---@param values Tensor
---@return table
function cache.add(entry, keys, values)
  if not entry then return {keys, values} end
  if C.autograd.is_grad_enabled() then return {C.cat({entry[1], keys}, 2), C.cat({entry[2], values}, 2)} end
  local before, room = entry[1]:size(2), entry.room
  local after = before + keys:size(2)
  if not room or room.used ~= before or room.size < after then
    room = new_room(entry, before, math.max(64, math.floor(1.5 * after)))
  end
  local longer = {room = room}
  for i, more in ipairs {keys, values} do
    room[i]:narrow(2, before, after - before):copy_(more)
    longer[i] = room[i]:narrow(2, 0, after)
  end
  room.used = after
  return longer
end

return cache
