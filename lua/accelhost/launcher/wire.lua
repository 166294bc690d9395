--- Plain data of any size over a job's channels: bytes in messages, each with a letter in front, "+" when more follow.
local C = require "accelhost._C"
local tensor = require "accelhost.tensor"

local wire = {}

local MOST = 2 ^ 26

--- Send plain data (what the codec takes).
---@param put fun(message: string)
---@param data any
function wire.send(put, data)
  local bytes = assert(C.codec.pack(data))
  local count = bytes:numel()
  for from = 0, count - 1, MOST do
    local upto = math.min(from + MOST, count)
    put((upto < count and "+" or ".") .. C.to_string(bytes[{{from, upto}}]:contiguous()))
  end
end

-- The codec wants its bytes in one piece.
local function joined(parts)
  local count, at = 0, 0
  for _, part in ipairs(parts) do count = count + #part - 1 end
  local bytes = C.empty({count}, {dtype = "uint8"})
  for i, part in ipairs(parts) do
    local size = #part - 1
    bytes[{{at, at + size}}] = tensor.from_string(part:sub(2), {size}, "uint8")
    parts[i], at = false, at + size
  end
  return bytes
end

--- A receiver: give it each message as it comes; it answers true and the data with the last one.
---@return fun(message: string): boolean, any
function wire.receiver()
  local parts = {}
  return function(message)
    parts[#parts + 1] = message
    if message:sub(1, 1) == "+" then return false end
    local bytes = joined(parts)
    parts = {}
    return true, C.codec.unpack(bytes)
  end
end

--- What the process that started this rank sends; waits for it.
---@return any
function wire.receive()
  local take = wire.receiver()
  while true do
    local message = C.channel.receive()
    if message then
      local whole, data = take(message)
      if whole then return data end
    end
  end
end

return wire
