--- Windows for signals: of n + 1 points of a symmetric window all but the last, as Fourier transforms expect, or with
--- periodic = false the n points of a symmetric one.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dims = require "accelhost.util.dims"
local signature = arguments.signature

local windows = {}

local making = {{"dtype: dtype"}, {"device: device"}, {"requires_grad: flag", false}}

-- Make the function of a window: shape(u, ...) of places u in 0..1, in float64, and of the parameters `own`.
local function window(name, own, shape)
  local read = signature(name, dims.concat({"window_length: size", {"periodic: flag", true}}, own, making))
  local count = #own
  return function(...)
    local values = {read(...)}
    local length, dtype, device, requires_grad = values[1], unpack(values, count + 3, count + 5)
    local result
    if length < 2 then
      result = C.ones({length}, {dtype = "float64"})
    else
      local last = values[2] and length or length - 1
      result = shape(C.arange(length, {dtype = "float64"}) / last, unpack(values, 3, count + 2))
    end
    result = result:to {
      dtype = dtype or C.dtype.get_default_dtype(), device = device or C.device.get_default_device(),
    }
    return requires_grad and result:requires_grad_() or result
  end
end

local function cosine(u, turns) return (u * (2 * math.pi * turns)):cos() end

--- The triangle 1 - |2u - 1|, u in 0..1.
windows.bartlett_window = window("bartlett_window", {}, function(u) return 1 - (u * 2 - 1):abs() end)

--- 0.42 - 0.5 cos(2 pi u) + 0.08 cos(4 pi u), u in 0..1.
windows.blackman_window = window("blackman_window", {}, function(u)
  return cosine(u, 1) * -0.5 + cosine(u, 2) * 0.08 + 0.42
end)

--- 0.5 - 0.5 cos(2 pi u), u in 0..1.
--
--     accelhost.hann_window(4)  --> tensor([0.0000, 0.5000, 1.0000, 0.5000])
windows.hann_window = window("hann_window", {}, function(u) return cosine(u, 1) * -0.5 + 0.5 end)

--- alpha - beta cos(2 pi u), u in 0..1.
windows.hamming_window = window("hamming_window", {{"alpha: number", 0.54}, {"beta: number", 0.46}},
  function(u, alpha, beta) return cosine(u, 1) * -beta + alpha end)

--- i0(beta sqrt(1 - (2u - 1)^2)) / i0(beta), u in 0..1.
windows.kaiser_window = window("kaiser_window", {{"beta: number", 12}}, function(u, beta)
  local top = C.full({}, beta, {dtype = "float64"}):i0()
  return ((1 - (u * 2 - 1):square()):clamp_min(0):sqrt() * beta):i0() / top
end)

return windows
