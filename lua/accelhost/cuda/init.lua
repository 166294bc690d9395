--- accelhost.cuda: the CUDA devices of this process, by PyTorch's names. A `device` is a number, a name such as
--- "cuda:1", or nothing for the current one, which is the first unless set_device or an accelerator has chosen another.
--
--     if accelhost.cuda.is_available() then print(accelhost.cuda.get_device_name()) end
--
-- Nothing is initialised before a function is called; counting without NVIDIA's driver costs a search for its library.
---@param device? integer|string
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"
local place = require "accelhost.cuda.place"
local protect = require "accelhost.util.protect"

local cuda = {}

--- Is there a CUDA device that can be used?
--
--   accelhost.cuda.is_available() == (accelhost.cuda.device_count() > 0)  --> true
function cuda.is_available() return C.device.device_count "cuda" > 0 end

--- Return the number of CUDA devices, among those that CUDA_VISIBLE_DEVICES names.
--
--   accelhost.cuda.device_count() >= 0  --> true
---@return integer
function cuda.device_count() return C.device.device_count "cuda" end

--- The number of the device that "cuda" means.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.current_device()) end
---@return integer
function cuda.current_device() return place.index "current_device" end

--- Have "cuda" mean this device.
--
--   if accelhost.cuda.is_available() then accelhost.cuda.set_device(0) end
---@param device integer|string
function cuda.set_device(device) C.device.set_current(place.name("set_device", device)) end

local read_device = arguments.signature("cuda.device", {"device: any", "fn: callable"})

--- Call a function while "cuda" means this device; return its results.
--
--   if accelhost.cuda.device_count() > 1 then accelhost.cuda.device(1, function() return x:cuda() end) end
---@param device integer|string
---@param fn fun(): any
---@return any ...
function cuda.device(device, fn)
  read_device(device, fn)
  local name, before = place.name("device", device), place.name "device"
  C.device.set_current(name)
  return protect(function() C.device.set_current(before) end, fn)
end

--- The driver's properties of a device, as a table: name, major, minor, total_memory, multi_processor_count, warp_size,
--- L2_cache_size, uuid and more.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.get_device_properties(0).total_memory) end
---@return table<string, any>
function cuda.get_device_properties(device)
  return C.device.properties("cuda", place.index("get_device_properties", device))
end

--- A device's name, such as "NVIDIA H100 80GB HBM3".
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.get_device_name()) end
---@return string
function cuda.get_device_name(device)
  return C.device.properties("cuda", place.index("get_device_name", device)).name
end

--- A device's compute capability, as two results: 9, 0.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.get_device_capability()) end
---@return integer major
---@return integer minor
function cuda.get_device_capability(device)
  local properties = C.device.properties("cuda", place.index("get_device_capability", device))
  return properties.major, properties.minor
end

--- Can tensors of bfloat16 be computed with? Every device can here; 8.0 and later ones have instructions for it.
--
--   if accelhost.cuda.is_available() then print(accelhost.cuda.is_bf16_supported()) end
---@param including_emulation? boolean default true
function cuda.is_bf16_supported(including_emulation)
  if not cuda.is_available() then return false end
  return including_emulation ~= false or cuda.get_device_capability() >= 8
end

--- Wait until a device has completed its queued work.
--
--   if accelhost.cuda.is_available() then accelhost.cuda.synchronize() end
function cuda.synchronize(device) C.device.synchronize(place.name("synchronize", device)) end

local read_seed = arguments.signature("cuda.manual_seed", {"seed: integer"})

--- Seed the generator of the current device; nothing where there is none. accelhost.manual_seed seeds all generators.
--
--   accelhost.cuda.manual_seed(3)
function cuda.manual_seed(seed)
  seed = read_seed(seed)
  if cuda.is_available() then C.device.seed(place.name "manual_seed", seed) end
end

local read_seed_all = arguments.signature("cuda.manual_seed_all", {"seed: integer"})

--- Seed the generators of all CUDA devices, of those too that are used later.
--
--   accelhost.cuda.manual_seed_all(3)
function cuda.manual_seed_all(seed) C.device.seed_type("cuda", read_seed_all(seed)) end

--- The state of a device's generator.
--
--   if accelhost.cuda.is_available() then accelhost.cuda.set_rng_state(accelhost.cuda.get_rng_state()) end
---@return Tensor
function cuda.get_rng_state(device) return C.random.get_rng_state(place.name("get_rng_state", device)) end

--- Set the state of a device's generator.
---@param new_state Tensor a state returned by get_rng_state
function cuda.set_rng_state(new_state, device)
  C.random.set_rng_state(new_state, place.name("set_rng_state", device))
end

local lazy = {Event = {"accelhost.cuda.event"}}
namespace.add(lazy, "accelhost.cuda.memory", {
  "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "memory_reserved", "memory_stats",
  "memory_summary", "mem_get_info", "empty_cache", "host_memory_stats",
})

namespace.add(lazy, "accelhost.cuda.sensors", {
  "utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "sensors",
})

return namespace.new("cuda", cuda, lazy, {
  refused = {
    Stream = "kernels run in the order of the calls, and copies of prepared loaders overlap with them",
    stream = "kernels run in the order of the calls", current_stream = "cuda.synchronize waits for all of a device",
    default_stream = "cuda.synchronize waits for all of a device", amp = "accelhost.amp is for all devices",
    init = "a device is opened when it is first used", is_initialized = "a device is opened when it is first used",
    max_memory_reserved = "cuda.max_memory_allocated returns the peak of the tensors' memory",
    initial_seed = "accelhost.initial_seed returns the seed of manual_seed", seed = "accelhost.seed seeds all",
    ipc_collect = "processes share no memory of a device here",
  },
})
