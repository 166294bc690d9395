--- Framing of plain data of any size over a job's channels: a message with the number of further ones, and those, of
--- bytes; or one with the location of a large block in memory that the sender shares.
local C = require "accelhost._C"
local tensor = require "accelhost.tensor"

local framing = {}

local MOST, MUCH = 2 ^ 26, 2 ^ 20

--- Send plain data (of the types that the codec supports).
---@param put fun(message: string)
---@param shares? boolean much of it is sent by shared memory, once for all receivers
---@return userdata? # keeps the shared memory: hold it until everybody has read it
function framing.send(put, data, shares)
  local bytes = assert(C.codec.pack(data))
  local count = bytes:numel()
  if shares and count > MUCH then
    local path, keeper = C.codec.share(bytes)
    put(path)
    return keeper
  end
  put(tostring(math.ceil(count / MOST)))
  for from = 0, count - 1, MOST do put(C.to_string(bytes[{{from, math.min(from + MOST, count)}}])) end
end

-- The codec wants its bytes in one piece, which may be longer than a text can be.
local function joined(parts)
  local count, at = 0, 0
  for _, part in ipairs(parts) do count = count + #part end
  local bytes = C.empty({count}, {dtype = "uint8"})
  for i, part in ipairs(parts) do
    bytes[{{at, at + #part}}] = tensor.from_string(part, {#part}, "uint8")
    parts[i], at = "", at + #part
  end
  return bytes
end

--- A receiver: call it with each message as it arrives; it returns true and the data with the last one.
---@return fun(message: string): boolean, any
function framing.receiver()
  local parts, left = {}, 0
  return function(message)
    if left == 0 then
      if message:find "^/" then return true, C.codec.unpack(C.codec.map(message)) end
      parts, left = {}, tonumber(message)
      return false
    end
    parts[#parts + 1], left = message, left - 1
    if left > 0 then return false end
    return true, C.codec.unpack(#parts == 1 and message or joined(parts))
  end
end

--- Wait for the call from the process that started this rank, and return it.
function framing.receive()
  local receive = framing.receiver()
  while true do
    local message = C.channel.receive()
    if message then
      local whole, data = receive(message)
      if whole then return data end
    end
  end
end

return framing
