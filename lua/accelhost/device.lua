--- The name of a device.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local read = arguments.signature("device", {"type: string|size", {"index: size"}})

--- Return the name of a device, for options called `device` and for to(). Devices are strings here, as tensor.device
--- is, without fields: the type is device:match "^%a+". A number alone is that of a GPU.
--
--   accelhost.device("cpu")            --> cpu
--   accelhost.device("cuda", 1)        --> cuda:1
--   accelhost.zeros(2, {device = accelhost.device "meta"}).device  --> meta
---@param type string|integer "cpu", "cuda", "cuda:1", "meta"
---@param index? integer
---@return string
local function device(...)
  local kind, index = read(...)
  if type(kind) == "number" then kind, index = "cuda", kind end
  if index and kind:find(":", 1, true) then
    fail("device: the index is given twice, in '%s' and as %d", kind, index)
  end
  local name = index and ("%s:%d"):format(kind, index) or kind
  if not C.device.is_name(name) then
    fail("device: expected a device name such as \"cpu\" or \"cuda:1\", got '%s'", name)
  end
  return name
end

return {device = device}
