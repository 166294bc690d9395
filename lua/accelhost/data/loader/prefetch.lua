--- Copies of batches to a device that overlap with its kernels: a batch is requested in the device's
--- copy stream, and kernels wait for it from the moment it is returned. Where the next batch is ready then, its copy
--- starts at once, so that it has arrived when the step ends.
local C = require "accelhost._C"
local pack = require "accelhost.util.pack"
local placement = require "accelhost.data.loader.placement"
local warn = require "accelhost.util.warn"

local copy = C.prefetch
local prefetch = {}

--- Does a device receive batches by prefetch?
---@param device string?
function prefetch.suits(device) return device ~= nil and device ~= "cpu" and copy.is_there(device) end

local function set_out(value, device)
  if C.is_tensor(value) and value.device == "cpu" and not value.requires_grad then return copy.fetch(value, device) end
  return nil
end

-- Queue an entry's tensors for the copy; those that the thread in C has gathered for this pass alone are consumed.
local function set_out_all(entry, device, own)
  for i = 2, entry.n do
    local value = entry[i]
    entry[i] = placement.value(value, device, set_out)
    if own and entry[i] ~= value and copy.is_pinned(value) then value:free() end
  end
end

-- The fields of a pass that describe the current batch.
local shown = {"length", "valid", "uneven", "last"}

-- Begin the next batch, and keep the fields that describe it; its first value is false at the end.
local function ask(pass, produce, device)
  local entry = pack(produce(pass))
  if not entry[1] then return entry end
  set_out_all(entry, device, pass.gather ~= nil)
  for _, name in ipairs(shown) do entry[name] = pass[name] end
  return entry
end

-- Can a batch be had without waiting for it?
local function is_ready(pass)
  if pass.gather then return pass.gather:is_filled() end
  return pass.workers ~= nil and not pass.loader.stream and pass.workers:is_ready()
end

--- The values of a pass's next batch on a device, as `produce` returns them on the CPU; false at the end.
---@param produce fun(pass: Pass): boolean, any
---@return boolean, any ...
function prefetch.step(pass, produce, device)
  local entry = pass.coming or ask(pass, produce, device)
  pass.coming = nil
  if entry.problem then error(entry.problem, 0) end
  if not entry[1] then return false end
  copy.join(device)
  if is_ready(pass) then
    local fine, coming = pcall(ask, pass, produce, device)
    pass.coming = fine and coming or {problem = coming} -- raised when it is requested
  end
  for _, name in ipairs(shown) do pass[name] = entry[name] end
  return unpack(entry, 1, entry.n)
end

--- Return the device for whose copies a loader's batches are pinned on the host; nil: they are not pinned.
---@return string? device
function prefetch.pins_for(loader)
  if loader.device and prefetch.suits(loader.device) and loader.non_blocking ~= false then return loader.device end
  if not loader.pin_memory then return nil end
  if C.device.device_count "cuda" == 0 then
    warn "DataLoader: pin_memory = true, but there is no CUDA device: memory is not pinned"
    return nil
  end
  return "cuda"
end

local function pin(value) return C.is_tensor(value) and value.device == "cpu" and value:pin_memory() or nil end

--- A batch's values in pinned memory.
---@return any ...
function prefetch.pinned(...)
  local values, count = {...}, select("#", ...)
  for i = 1, count do values[i] = placement.value(values[i], "cpu", pin) end
  return unpack(values, 1, count)
end

return prefetch
