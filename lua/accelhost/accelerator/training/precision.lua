--- Mixed precision: forwards of prepared models under autocast.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configuration = require "accelhost.accelerator.options.configuration"
local later = require "accelhost.util.later"
local handlers = later "accelhost.accelerator.options.handlers"

---@part Accelerator
---@field dtype string|false of autocast, false for mixed_precision = "no"
---@field handler AutocastKwargs|false of kwargs_handlers
---@field fp8 Fp8|false of mixed_precision = "fp8"
local Precision = class.new "Precision"

-- Everything but the linear layers of FP8 is in bfloat16.
local dtypes = {bf16 = "bfloat16", fp16 = "float16", fp8 = "bfloat16"}

---@param handler? AutocastKwargs
function Precision:init(accelerator, handler)
  self.accelerator, self.handler = accelerator, handler
  self.dtype = dtypes[accelerator.mixed_precision] or false
  self.fp8 = accelerator.mixed_precision == "fp8"
    and require "accelhost.accelerator.training.fp8"(accelerator, accelerator._fp8_recipe)
end

--- Forget the scales of models.
function Precision:reset()
  if self.fp8 then self.fp8:reset() end
end

-- Raise unless a device has products of 8-bit floats.
local function check_fp8(device)
  if device == "cpu" then return end
  local properties = C.device.properties("cuda", tonumber(device:match "%d+" or 0))
  if properties.major * 10 + properties.minor < 89 then
    arguments.fail("Accelerator: mixed_precision = 'fp8': 8-bit floats need compute capability 8.9, %s (%s) has %d.%d; "
      .. "use 'bf16'", device, properties.name, properties.major, properties.minor)
  end
end

--- Raise unless the accelerator's device can compute in its precision.
function Precision:check()
  local device = self.accelerator.device:match "^%a+"
  if self.dtype and device ~= "cpu" and device ~= "cuda" then
    arguments.fail("Accelerator: mixed_precision = '%s': tensors on cpu and cuda are cast, the device is %s",
      self.accelerator.mixed_precision, self.accelerator.device)
  end
  if self.fp8 then check_fp8(self.accelerator.device) end
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
  handler = handler or self.handler
  if not self.dtype then return fn(...) end
  local enabled, cache = not handler or handler.enabled, not handler or handler.cache_enabled
  return C.autocast.run(self.accelerator.device:match "^%a+", enabled, self.dtype, cache, fn, ...)
end

-- model -> its own forward, while it has one that runs under autocast
local own_forward = setmetatable({}, {__mode = "k"})

--- Run fn as the forward of a prepared model runs: with mixed_precision "bf16" or "fp16" under autocast, with "no" in
--- the dtypes that its tensors have. A handler with enabled = false makes an island of full precision.
--
--   accelerator:autocast(function() return 7 end)  --> 7
--   accelerator:autocast({enabled = false}, function() return 7 end)  --> 7
---@param handler? AutocastKwargs|function in place of the accelerator's; or fn at once
---@param fn? function
---@return any # the results of fn
function Precision:autocast(handler, fn)
  if type(handler) == "function" and fn == nil then
    handler, fn = nil, handler
  end
  if handler ~= nil then handler = configuration.of("autocast: handler", handlers.AutocastKwargs, handler) end
  arguments.check("autocast", "fn", "function", fn)
  return run(self, handler, fn)
end

--- Have a model's forward run under autocast, and return float32; one that is trained in FP8, if that is the precision.
---@param evaluation? boolean
function Precision:cast_forward(model, evaluation)
  if self.fp8 and not evaluation then self.fp8:prepare(model) end
  if not self.dtype or own_forward[model] then return end
  local forward = model.forward
  own_forward[model] = forward
  model.forward = function(...)
    return widened_all(run(self, nil, forward, ...))
  end
end

--- Restore a model's own forward.
function Precision:restore_forward(model)
  if self.fp8 then self.fp8:restore(model) end
  if not own_forward[model] then return end
  model.forward = nil
  if model.forward ~= own_forward[model] then model.forward = own_forward[model] end
  own_forward[model] = nil
end

return Precision
