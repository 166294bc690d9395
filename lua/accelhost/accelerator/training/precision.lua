--- Mixed precision: forwards of prepared models under autocast.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local configuration = require "accelhost.accelerator.options.configuration"
local later = require "accelhost.util.later"
local handlers = later "accelhost.accelerator.options.handlers"

local precision = {}

local halves = {bf16 = "bfloat16", fp16 = "float16"}

--- Raise unless a device can compute in a precision.
---@param mixed_precision string
---@param device string
function precision.check(mixed_precision, device)
  local type_of = device:match "^%a+"
  if mixed_precision ~= "no" and type_of ~= "cpu" and type_of ~= "cuda" then
    arguments.fail("Accelerator: mixed_precision = '%s': tensors on cpu and cuda are cast, the device is %s",
      mixed_precision, device)
  end
end

-- Return a model's outputs with fp16 and bf16 tensors as float32; in plain tables, too.
local function widened(value)
  if C.is_tensor(value) then
    local half = value.dtype == "bfloat16" or value.dtype == "float16"
    return half and value:to "float32" or value
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local copy = {}
  for key, item in next, value do copy[key] = widened(item) end
  return copy
end

local function widened_all(...)
  local count = select("#", ...)
  if count == 1 then return widened((...)) end
  local results = {...}
  for i = 1, count do results[i] = widened(results[i]) end
  return unpack(results, 1, count)
end

-- Run fn under an accelerator's autocast: in its precision, or as the handler sets it.
local function run(self, handler, fn, ...)
  local dtype = halves[self.mixed_precision]
  handler = handler or self._autocast_handler
  if not dtype then return fn(...) end
  local enabled, cache = not handler or handler.enabled, not handler or handler.cache_enabled
  return C.autocast.run(self.device:match "^%a+", enabled, dtype, cache, fn, ...)
end

-- model -> its own forward, while it has one that runs under autocast
local own_forward = setmetatable({}, {__mode = "k"})

--- Add autocast to the Accelerator class.
---@param Accelerator table
local function install(Accelerator)
  --- Run fn as the forward of a prepared model runs: with mixed_precision "bf16" or "fp16" under autocast, with "no" in
  --- the dtypes that its tensors have. A handler with enabled = false makes an island of full precision.
  --
  --   accelerator:autocast(function() return 7 end)  --> 7
  --   accelerator:autocast({enabled = false}, function() return 7 end)  --> 7
  ---@param handler? AutocastKwargs|function in place of the accelerator's; or fn at once
  ---@param fn? function
  ---@return any # the results of fn
  function Accelerator:autocast(handler, fn)
    if type(handler) == "function" and fn == nil then
      handler, fn = nil, handler
    end
    if handler ~= nil then handler = configuration.of("autocast: handler", handlers.AutocastKwargs, handler) end
    arguments.check("autocast", "fn", "function", fn)
    return run(self, handler, fn)
  end

  -- Let a model's forward run under autocast, and return float32.
  function Accelerator:_cast_forward(model)
    if self.mixed_precision == "no" or own_forward[model] then return end
    local forward = model.forward
    own_forward[model] = forward
    model.forward = function(...)
      return widened_all(run(self, nil, forward, ...))
    end
  end

  -- Restore a model's own forward.
  function Accelerator:_restore_forward(model) -- luacheck: ignore self
    if not own_forward[model] then return end
    model.forward = nil
    if model.forward ~= own_forward[model] then model.forward = own_forward[model] end
    own_forward[model] = nil
  end
end

return setmetatable(precision, {__call = function(_, Accelerator) return install(Accelerator) end})
