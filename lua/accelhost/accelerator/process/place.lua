--- The device of a process: its GPU, else the CPU.
local C = require "accelhost._C"
local launched = require "accelhost.util.launched"
local warn = require "accelhost.util.warn"

local place = {}

-- Return this process's GPU: its local rank, modulo the number of GPUs.
local function own_gpu(count)
  local rank, size = C.comm.local_rank(), C.comm.local_size()
  if size > count and rank == 0 then
    warn(("Accelerator: %d processes share %d GPU%s"):format(size, count, count == 1 and "" or "s"))
  end
  return "cuda:" .. rank % count
end

--- Return the device of an accelerator: the CPU where the script or the launcher sets it, the default device where
--- that is another, else this process's GPU, which "cuda" means from then on; without GPUs the CPU.
---@param cpu boolean
---@return string
function place.choose(cpu)
  local default = C.device.get_default_device()
  if cpu then return "cpu" end
  if default ~= "cpu" then return default end
  local count = C.device.device_count "cuda"
  if count == 0 then return "cpu" end
  local device = own_gpu(count)
  C.device.set_current(device)
  return device
end

--- Return the same for an object that is made without an accelerator.
---@param cpu boolean? the script's setting
---@return string
function place.of(what, cpu)
  return place.choose(launched.settle(what, "cpu", "flag", cpu, false))
end

return place
