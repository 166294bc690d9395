--- The device that an argument `device` names: nil for the current one, a number, or "cuda:1".
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local place = {}

--- Its number; an error where there is none.
---@param device integer|string|nil
---@return integer
function place.index(what, device)
  local count = C.device.device_count "cuda"
  if count == 0 then fail("cuda.%s: there is no CUDA device: %s", what, C.device.missing "cuda") end
  local index = device
  if device == nil or device == "cuda" then
    index = C.device.current "cuda"
  elseif type(device) == "string" then
    index = tonumber(device:match "^cuda:(%d+)$")
  end
  if type(index) ~= "number" or index < 0 or index % 1 ~= 0 then
    fail("cuda.%s: device: expected a number or the name of a CUDA device, got %s", what, arguments.describe(device))
  end
  if index >= count then
    fail("cuda.%s: device: there %s %d CUDA device%s, got %d", what, count == 1 and "is" or "are", count,
      count == 1 and "" or "s", index)
  end
  return index
end

--- Return its name, for functions that expect one.
---@param device integer|string|nil
function place.name(what, device) return "cuda:" .. place.index(what, device) end

return place
