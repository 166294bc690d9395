--- Functions with custom derivatives (autograd.Function) under autocast.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local check_device = require("accelhost.amp.autocast").check_device

local custom = {}

-- Floating tensors of a value, but for float64, in a dtype; in plain tables, too.
local function cast(value, dtype)
  if C.is_tensor(value) then
    local eligible = value:is_floating_point() and value.dtype ~= "float64"
    return eligible and value:to(dtype) or value
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local copy = {}
  for key, item in next, value do copy[key] = cast(item, dtype) end
  return copy
end

local read_forward = arguments.signature("custom_fwd",
  {"fwd: function", {"device_type: string", "cpu"}, {"cast_inputs: dtype"}})

--- A forward of an autograd.Function for use under autocast. It runs in the block's precision; with cast_inputs, under
-- autocast, its tensors are cast to that dtype and autocast is off inside. Its backward needs custom_bwd.
--
--   local Square = accelhost.autograd.Function:extend "Square"
--   Square.forward = accelhost.amp.custom_fwd(function(ctx, x) ctx:save_for_backward(x) return x * x end,
--     {cast_inputs = "float32"})
--   Square.backward = accelhost.amp.custom_bwd(function(ctx, grad) return grad * ctx.saved_tensors[1] * 2 end)
--   accelhost.autocast("cpu", Square.apply, x:to "bfloat16").dtype  --> float32
---@param fwd fun(ctx: Context, ...): ...
---@param device_type? string "cpu" (default) or "cuda"
---@param cast_inputs? string a dtype
---@return fun(ctx: Context, ...): ...
function custom.custom_fwd(...)
  local fwd, device_type, dtype = read_forward(...)
  check_device("custom_fwd", device_type)
  return function(ctx, ...)
    local enabled, block_dtype = C.autocast.state(device_type)
    ctx._autocast_dtype, ctx._autocast = block_dtype, enabled and dtype == nil
    if dtype == nil or not enabled then return fwd(ctx, ...) end
    local given, count = {...}, select("#", ...)
    for i = 1, count do given[i] = cast(given[i], dtype) end
    return C.autocast.run(device_type, false, nil, nil, fwd, ctx, unpack(given, 1, count))
  end
end

local read_backward = arguments.signature("custom_bwd", {"bwd: function", {"device_type: string", "cpu"}})

--- A backward of an autograd.Function that runs in the precision in which its forward, by custom_fwd, ran.
--
--   local backward = accelhost.amp.custom_bwd(function(ctx, grad) return grad * 2 end)
---@param bwd fun(ctx: Context, ...): ...
---@param device_type? string "cpu" (default) or "cuda"
---@return fun(ctx: Context, ...): ...
function custom.custom_bwd(...)
  local bwd, device_type = read_backward(...)
  check_device("custom_bwd", device_type)
  return function(ctx, ...)
    return C.autocast.run(device_type, ctx._autocast or false, ctx._autocast_dtype, nil, bwd, ctx, ...)
  end
end

return custom
