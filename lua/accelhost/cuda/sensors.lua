--- Readings of a card's sensors by NVML, which NVIDIA's driver contains: utilization, temperature, power, memory that
--- all processes use, ECC errors. They cost a millisecond or so, wait for no kernel, and open no device but to find it.
---@param device? integer|string
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local gpu_sensors = require "accelhost.util.gpu_sensors"
local place = require "accelhost.cuda.place"

local sensors = {}

local function reading(what, device, name)
  local index = place.index(what, device)
  local readings = gpu_sensors.read(index)
  if not readings then
    arguments.fail("cuda.%s: NVML (libnvidia-ml.so.1) is missing, or does not know cuda:%d", what, index)
  end
  if not readings[name] then arguments.fail("cuda.%s: cuda:%d has no such sensor", what, index) end
  return readings[name]
end

--- Percent of the last sample period, up to a second, in which a kernel ran.
--
--   if accelhost.cuda.sensors() then print(accelhost.cuda.utilization()) end
---@return integer
function sensors.utilization(device) return reading("utilization", device, "utilization") end

--- Percent of the last sample period in which the device's memory was read or written.
--
--   if accelhost.cuda.sensors() then print(accelhost.cuda.memory_usage()) end
---@return integer
function sensors.memory_usage(device) return reading("memory_usage", device, "memory_utilization") end

--- The temperature in degrees Celsius.
--
--   if accelhost.cuda.sensors() then print(accelhost.cuda.temperature()) end
---@return integer
function sensors.temperature(device) return reading("temperature", device, "temperature") end

--- The power in milliwatts, a mean of about a second.
--
--   if accelhost.cuda.sensors() then print(accelhost.cuda.power_draw()) end
---@return number
function sensors.power_draw(device) return reading("power_draw", device, "power") * 1000 end

--- The clock of the multiprocessors in MHz.
--
--   if accelhost.cuda.sensors() then print(accelhost.cuda.clock_rate()) end
---@return integer
function sensors.clock_rate(device) return reading("clock_rate", device, "clock") end

--- All readings as a table of numbers, as far as the card has them, for a log: utilization and memory_utilization in
--- percent, memory_used and memory_total in bytes of all processes, temperature in degrees Celsius, power and
--- power_limit in watts, clock in MHz, and ecc_corrected and ecc_uncorrected since the driver was loaded. nil where
--- there is no CUDA device, or no NVML.
--
--   local gpu = accelhost.cuda.sensors()
--   local own = accelhost.Accelerator{log_with = "jsonl", project_dir = os.tmpname() .. ".runs"}
--   own:init_trackers "mnist"
--   own:log({loss = 0.25, gpu = gpu}, {step = 1})
---@return table<string, number>|nil
function sensors.sensors(device)
  if device == nil and C.device.device_count "cuda" == 0 then return nil end
  return gpu_sensors.read(place.index("sensors", device))
end

return sensors
