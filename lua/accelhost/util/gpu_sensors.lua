--- The sensors of a CUDA device of this process, by NVML.
local C = require "accelhost._C"

local gpu_sensors = {}

local TEXTS = {"name", "uuid", "pids"}

--- Return the readings of the card that a device is, by its UUID, since NVML counts all cards of the host: numbers by
--- name; nil where NVML is missing or does not know the card.
---@param index integer of the device
---@return table<string, number>|nil
function gpu_sensors.read(index)
  local uuid = C.device.properties("cuda", index).uuid
  for card = 0, math.huge do
    local readings = C.device.sensors("cuda", card)
    if not readings then return nil end
    if readings.uuid == uuid then
      for _, text in ipairs(TEXTS) do readings[text] = nil end
      return readings
    end
  end
end

return gpu_sensors
