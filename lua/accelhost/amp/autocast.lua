--- Blocks in which ops choose their precision.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local autocast = {}
local fail = arguments.fail

local known = {cpu = true, cuda = true}
local halves = {bfloat16 = true, float16 = true}

--- Raise unless autocast is there for a type of device.
function autocast.check_device(what, device_type)
  arguments.check(what, "device_type", "string", device_type)
  if not known[device_type] then
    fail("%s: device_type: expected 'cpu' or 'cuda', whose lists of ops are known here, got '%s'", what, device_type)
  end
end

local function check_dtype(what, dtype)
  if dtype ~= nil and not halves[dtype] then
    fail("%s: dtype: expected bfloat16 or float16, got %s", what, dtype)
  end
end

local reader = arguments.signature("autocast",
  {"device_type: string", {"dtype: dtype"}, {"enabled: flag", true}, {"cache_enabled: flag"}})

-- Read the options before the function, which may be any argument after the first, so that autocast's options may be
-- incomplete.
local function read_options(...)
  return reader(...)
end

local function is_callable(value)
  if type(value) == "function" then return true end
  local meta = type(value) == "table" and getmetatable(value)
  return meta and meta.__call ~= nil
end

--- Run fn in mixed precision: products and convolutions compute in `dtype`, losses, factorisations and other ops that
--- need it in float32, all other ops in the dtypes of their inputs. Tensors are cast where they are used; gradients are
--- cast back to the dtypes of the tensors, so float32 weights get float32 gradients. Blocks nest; one with enabled =
--- false computes
-- in the dtypes of the inputs. Call backward outside: it computes in the dtypes of its forward.
--
--   accelhost.autocast("cpu", function() return t:mm(t:t()) end).dtype      --> bfloat16
--   accelhost.autocast("cpu", {enabled = false}, function() return t:mm(t:t()) end).dtype  --> float32
---@param device_type string "cpu" or "cuda": blocks of both may be nested, each for the tensors there
---@param dtype? string bfloat16 or float16; default: the first on the CPU, the second on CUDA
---@param enabled? boolean default true
---@param cache_enabled? boolean keep the casts of weights until the outermost block ends; default: as around it
---@param fn fun(...): ...
---@param ... any fn's arguments
---@return any ... the results of fn
function autocast.autocast(...)
  local given, count = {...}, select("#", ...)
  local at = 2
  while at <= count and not is_callable(given[at]) do at = at + 1 end
  local device_type, dtype, enabled, cache = read_options(unpack(given, 1, at - 1))
  autocast.check_device("autocast", device_type)
  check_dtype("autocast", dtype)
  if at > count then fail("autocast: expected a function to run after the options, got none") end
  return C.autocast.run(device_type, enabled, dtype, cache, unpack(given, at, count))
end

--- Is there autocast for a type of device? For "cpu" and "cuda".
--
--   accelhost.amp.is_autocast_available "cpu"  --> true
---@param device_type string
function autocast.is_autocast_available(device_type)
  arguments.check("is_autocast_available", "device_type", "string", device_type)
  return known[device_type] == true
end

local function check_optional(what, device_type)
  if device_type ~= nil then autocast.check_device(what, device_type) end
end

--- Does this code run in an autocast block that is enabled, for a type of device or for any?
--
--   accelhost.is_autocast_enabled()  --> false
---@param device_type? string "cpu" or "cuda"
function autocast.is_autocast_enabled(device_type)
  check_optional("is_autocast_enabled", device_type)
  return C.autocast.is_enabled(device_type)
end

--- The dtype of the innermost autocast block; outside of one the default.
--
--   accelhost.get_autocast_dtype "cpu"  --> bfloat16
---@param device_type? string "cpu" or "cuda"
---@return string
function autocast.get_autocast_dtype(device_type)
  check_optional("get_autocast_dtype", device_type)
  return (select(2, C.autocast.state(device_type or "cpu")))
end

--- Are the casts of weights kept within a block?
--
--   accelhost.is_autocast_cache_enabled()  --> true
function autocast.is_autocast_cache_enabled()
  return (select(3, C.autocast.state "cpu"))
end

--- Switch autocast on or off from now on; `autocast` does so for the run of a function.
--
--   accelhost.set_autocast_enabled("cpu", false)
---@param device_type string "cpu" or "cuda"
autocast.set_autocast_enabled = arguments.named("set_autocast_enabled", {
  "device_type: string", "enabled: flag",
}, function(what, device_type, enabled)
  autocast.check_device(what, device_type)
  C.autocast.set(device_type, enabled)
end)

--- Set the dtype of autocast blocks that name none.
--
--   accelhost.set_autocast_dtype("cpu", "bfloat16")
---@param device_type string "cpu" or "cuda"
---@param dtype string bfloat16 or float16
autocast.set_autocast_dtype = arguments.named("set_autocast_dtype", {
  "device_type: string", "dtype: dtype",
}, function(what, device_type, dtype)
  autocast.check_device(what, device_type)
  check_dtype(what, dtype)
  C.autocast.set(device_type, nil, dtype)
end)

--- Cache the casts of weights within autocast blocks, or cast again at each use.
--
--   accelhost.set_autocast_cache_enabled(true)
---@param enabled boolean
function autocast.set_autocast_cache_enabled(enabled)
  C.autocast.set("cpu", nil, nil, arguments.check("set_autocast_cache_enabled", "enabled", "flag", enabled))
end

--- Let go of the casts of weights that are kept.
--
--   accelhost.clear_autocast_cache()
function autocast.clear_autocast_cache()
  C.autocast.clear()
end

return autocast
