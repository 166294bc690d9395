--- Copy the tensors of a batch to a device.
local C = require "accelhost._C"

local placement = {}

--- A tensor on `device`; a table with all tensors in it there, copied where one moves; anything else unchanged.
---@param bring? fun(tensor: Tensor, device: string): Tensor? copies a tensor there; nil: as by t:to
function placement.value(value, device, bring)
  if C.is_tensor(value) then return bring and bring(value, device) or value:to {device = device} end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local moved, changed = {}, false
  for key, item in pairs(value) do
    moved[key] = placement.value(item, device, bring)
    changed = changed or moved[key] ~= item
  end
  return changed and moved or value
end

--- placement.value of each argument.
---@return any ...
function placement.all(device, ...)
  local values, count = {...}, select("#", ...)
  for i = 1, count do values[i] = placement.value(values[i], device) end
  return unpack(values, 1, count)
end

return placement
