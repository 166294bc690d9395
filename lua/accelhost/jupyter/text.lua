--- Texts as the protocol counts and carries them: positions in code points, pictures in base64.
local printable = require "accelhost.util.printable"

local text = {}

--- The number of bytes before a position in code points.
---@param value string in UTF-8
---@param position integer
---@return integer
function text.bytes_before(value, position)
  local count, at = 0, 1
  while count < position and at <= #value do
    at = value:find("[%z\1-\127\192-\255]", at + 1) or #value + 1
    count = count + 1
  end
  return at - 1
end

--- The number of code points of a text.
---@param value string
function text.length(value)
  local _, continued = value:gsub("[\128-\191]", "")
  return #value - continued
end

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local pairs_of -- 12 bits -> two digits

local function make_pairs()
  pairs_of = {}
  for i = 0, 4095 do
    local high, low = math.floor(i / 64) + 1, i % 64 + 1
    pairs_of[i] = digits:sub(high, high) .. digits:sub(low, low)
  end
end

--- Encode bytes in base64.
---@param bytes string
function text.base64(bytes)
  if not pairs_of then make_pairs() end
  local parts, count = {}, #bytes
  for at = 1, count - 2, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local all = a * 65536 + b * 256 + c
    parts[#parts + 1] = pairs_of[math.floor(all / 4096)] .. pairs_of[all % 4096]
  end
  local rest = count % 3
  if rest > 0 then
    local a, b = bytes:byte(count - rest + 1, count)
    local all = a * 65536 + (b or 0) * 256
    local last = pairs_of[math.floor(all / 4096)] .. pairs_of[all % 4096]
    parts[#parts + 1] = last:sub(1, rest + 1) .. ("="):rep(3 - rest)
  end
  return table.concat(parts)
end

--- A text with question marks for bytes that are no UTF-8.
---@param value string
---@return string
text.utf8 = printable.utf8

return text
