--- Keys and values of the tokens that a layer has seen, so that each is computed once.
--
-- An entry is {keys, values}, [batch, heads, tokens, width] each, with the number of all tokens that were seen, `seen`,
-- and is not changed: a longer one is made from it. With a window it has the last tokens only, at least those that the
-- next token sees. Without recorded history keys and values are views of a buffer with unused capacity after them; the
-- entry that ends where the buffer's tokens end is extended in it, any other (a text with two continuations) gets a new
-- buffer.
local C = require "accelhost._C"

local cache = {}

local function buffer_like(tensor, size)
  local shape = tensor:shape()
  shape[3] = size
  return C.empty(shape, {dtype = tensor.dtype, device = tensor.device})
end

local function new_room(entry, first, count, size)
  local room = {used = count, size = size}
  for i = 1, 2 do
    room[i] = buffer_like(entry[i], size)
    room[i]:narrow(2, 0, count):copy_(entry[i]:narrow(2, first, count))
  end
  return room
end

--- Return the number of tokens of an entry, those outside of its window too.
---@return integer
function cache.seen(entry) return entry.seen or entry[1]:size(2) end

--- Return the number of keys before the next token that its layer uses.
---@param window? integer
---@return integer
function cache.used(entry, window)
  local count = entry[1]:size(2)
  return window and math.min(count, window - 1) or count
end

local function with_history(entry, keys, values, first, count, seen)
  local function all(before, more)
    return count == 0 and more or C.cat({before:narrow(2, first, count), more}, 2)
  end
  return {all(entry[1], keys), all(entry[2], values), seen = seen}
end

--- Return the entry with more tokens after it.
---@param entry table? nil: there were none
---@param keys Tensor
---@param values Tensor
---@param window? integer keys that a query sees: earlier ones are left out
function cache.add(entry, keys, values, window)
  if not entry then return {keys, values, seen = keys:size(2)} end
  if entry.position then
    entry[1]:index_copy_(2, entry.position, keys)
    entry[2]:index_copy_(2, entry.position, values)
    return entry
  end
  local more, before, count = keys:size(2), entry[1]:size(2), cache.used(entry, window)
  local first, seen = before - count, cache.seen(entry) + more
  if C.autograd.is_grad_enabled() then return with_history(entry, keys, values, first, count, seen) end
  local room, start = entry.room, (entry.start or 0) + first
  if not room or room.used ~= entry.start + before or room.size < room.used + more then
    room, start = new_room(entry, first, count, math.max(64, math.floor(1.5 * (count + more)))), 0
  end
  local longer = {room = room, start = start, seen = seen}
  for i, tensor in ipairs {keys, values} do
    room[i]:narrow(2, room.used, more):copy_(tensor)
    longer[i] = room[i]:narrow(2, start, count + more)
  end
  room.used = room.used + more
  return longer
end

--- Return entries of all layers with the same tokens in buffers of fixed size, in which one token is written at a place
--- that a tensor has: a captured step writes another one at each replay.
---@param past table[] by layer, without windows that have left out tokens
---@param position Tensor [1] int64
function cache.fixed(past, size, position)
  local fixed = {}
  for i, entry in ipairs(past) do
    local seen = cache.seen(entry)
    local room = {buffer_like(entry[1], size), buffer_like(entry[2], size), seen = seen, position = position}
    for k = 1, 2 do
      room[k]:zero_() -- values of later places are multiplied by 0
      room[k]:narrow(2, seen - entry[k]:size(2), entry[k]:size(2)):copy_(entry[k])
    end
    fixed[i] = room
  end
  return fixed
end

--- Return the entries of all layers without the last tokens; nil where a window has left out tokens that the next one
--- sees then. The last tokens of `owned` entries are overwritten later.
---@param past table[] by layer
---@param seen integer number of tokens that stay
---@param owned? integer number of tokens added last, together: before them a window has left out nothing
---@return table[]?
function cache.crop(past, seen, owned)
  local cropped = {}
  for i, entry in ipairs(past) do
    local less, count = cache.seen(entry) - seen, entry[1]:size(2)
    if count < cache.seen(entry) and less > (owned or 0) then return nil end
    local room, start = entry.room, entry.start
    cropped[i] = {entry[1]:narrow(2, 0, count - less), entry[2]:narrow(2, 0, count - less), seen = seen,
      room = owned and room or nil, start = owned and start or nil}
    if owned and room and room.used == start + count then room.used = room.used - less end
  end
  return cropped
end

--- Return the entries of all layers with these rows of the batch.
---@param past table[] by layer
---@param rows Tensor [rows] int64
function cache.select(past, rows)
  local selected = {}
  for i, entry in ipairs(past) do
    selected[i] = {entry[1]:index_select(0, rows), entry[2]:index_select(0, rows), seen = cache.seen(entry)}
  end
  return selected
end

return cache
