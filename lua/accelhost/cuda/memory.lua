--- The memory of CUDA devices: bytes of tensors, bytes that are cached for the next ones, and the total.
---@param device? integer|string
local C = require "accelhost._C"
local place = require "accelhost.cuda.place"

local memory = {}

local function stats(what, device) return C.system.memory_stats(place.name(what, device)) end

--- Return the bytes of tensors on a device now, rounded up to blocks.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.memory_allocated()) end
---@return integer
function memory.memory_allocated(device) return stats("memory_allocated", device).live end

--- The most of that since the start, or since reset_peak_memory_stats.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.max_memory_allocated()) end
---@return integer
function memory.max_memory_allocated(device) return stats("max_memory_allocated", device).peak end

--- Reset max_memory_allocated.
--
--   if accelhost.cuda.is_available() then accelhost.cuda.reset_peak_memory_stats() end
function memory.reset_peak_memory_stats(device) C.device.reset_peak(place.name("reset_peak_memory_stats", device)) end

--- Return the bytes that were allocated from the driver: those of tensors and those that are cached for the next ones.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.memory_reserved()) end
---@return integer
function memory.memory_reserved(device)
  local now = stats("memory_reserved", device)
  return now.live + now.cached
end

--- The counts of a device's allocator, by PyTorch's names. num_alloc_retries counts requests for which garbage was
--- collected or cached blocks were given back to the driver, num_ooms those that failed all the same: many retries mean
--- that the device is nearly full.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.memory_stats()["allocated_bytes.all.peak"]) end
---@return table<string, integer>
function memory.memory_stats(device)
  local now = stats("memory_stats", device)
  return {
    ["allocated_bytes.all.current"] = now.live, ["allocated_bytes.all.peak"] = now.peak,
    ["reserved_bytes.all.current"] = now.live + now.cached, ["inactive_split_bytes.all.current"] = now.cached,
    ["allocation.all.allocated"] = now.allocations, num_device_alloc = now.system_calls,
    num_alloc_retries = now.retries, num_ooms = now.ooms,
  }
end

--- Bytes of a device that are free, and all that it has, as two results; other processes count too.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.mem_get_info()) end
---@return integer free
---@return integer total
function memory.mem_get_info(device)
  local free, total = C.device.memory_info(place.name("mem_get_info", device))
  return free, total
end

--- The host's pinned memory: its bytes, those that are kept for the next batches too.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.host_memory_stats()["reserved_bytes.current"]) end
---@return table<string, integer>
function memory.host_memory_stats(device)
  local _, _, pinned = C.device.memory_info(place.name("host_memory_stats", device))
  return {["reserved_bytes.current"] = pinned}
end

--- Return cached memory of all devices, and pinned memory, to the driver, after a collection of garbage.
--
--   accelhost.cuda.empty_cache()
function memory.empty_cache() C.system.empty_cache() end

local function in_units(bytes)
  local units, at = {"B", "KiB", "MiB", "GiB", "TiB"}, 1
  while bytes >= 1024 and at < #units do
    bytes, at = bytes / 1024, at + 1
  end
  return (at == 1 and "%d %s" or "%.1f %s"):format(bytes, units[at])
end

--- The same as a text with a line for each count.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.memory_summary()) end
---@return string
function memory.memory_summary(device)
  local name = place.name("memory_summary", device)
  local now = C.system.memory_stats(name)
  local free, total, pinned = C.device.memory_info(name)
  local lines = {("%s: %s"):format(name, C.device.describe("cuda", place.index("memory_summary", device)) or "")}
  for _, row in ipairs {
    {"tensors", in_units(now.live)}, {"tensors at most", in_units(now.peak)},
    {"kept for the next", in_units(now.cached)}, {"free on the device", in_units(free)},
    {"the device has", in_units(total)}, {"pinned on the host", in_units(pinned)},
    {"blocks handed out", ("%d"):format(now.allocations)}, {"asked of the driver", ("%d"):format(now.system_calls)},
    {"asked again", ("%d"):format(now.retries)}, {"not to be had", ("%d"):format(now.ooms)},
  } do
    lines[#lines + 1] = ("  %-20s %s"):format(row[1], row[2])
  end
  return table.concat(lines, "\n")
end

return memory
