--- The state of a GradScaler in the memory of devices that unscale gradients without the host: its scale, and for each
--- optimizer an overflow flag. The host copies the flag when it needs it, which waits for the device.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail

local Found = class.new "Found"

function Found:init()
  self._scales = {}                              -- device -> {factor, inverse}
  self._flags = setmetatable({}, {__mode = "k"}) -- optimizer -> tensor, 1 when its gradients overflowed
end

local function inverse_of(scale)
  return C.tensor({1 / scale}, {device = "cpu"}):item() -- as a float32 holds it
end

-- Refuse a captured step without existing tensors: tensors that it makes itself belong to the graph.
local function check_there(device)
  if host_updates.is_recording() then
    fail("GradScaler: it has not scaled a loss and unscaled gradients on %s before, so that it cannot be captured in a "
      .. "graph", device)
  end
end

--- Return the scale on a device and its inverse: tensors that follow the scale.
---@return table {factor = Tensor, inverse = Tensor}
function Found:scales(device, scale)
  local there = self._scales[device]
  if not there then
    check_there(device)
    there = {factor = C.tensor(scale, {dtype = "float32", device = device}),
      inverse = C.tensor(inverse_of(scale), {dtype = "float64", device = device})}
    self._scales[device] = there
  end
  return there
end

--- The scale has changed. Not within a captured step.
function Found:rescale(scale)
  for _, there in pairs(self._scales) do
    there.factor:fill_(scale)
    there.inverse:fill_(inverse_of(scale))
  end
end

--- Unscale gradients of an optimizer, where their device can do that without the host.
---@param optimizer table
---@param parameters Tensor[] that have gradients
---@return Tensor? flag 1 after it when one was infinite or NaN; nil: nothing was done
function Found:unscale(optimizer, parameters, scale)
  local device = parameters[1] and parameters[1].grad.device
  if not device or device == "cpu" then return nil end
  local flag = self._flags[optimizer]
  if not flag or flag.device ~= device then
    check_there(device)
    flag = C.tensor(0, {dtype = "int32", device = device})
    self._flags[optimizer] = flag
  end
  return C.optim.unscale_grad_there(parameters, self:scales(device, scale).inverse, flag) and flag
end

return class.guard(Found)
