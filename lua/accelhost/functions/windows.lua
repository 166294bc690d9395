--- Windows for signals: of n + 1 points of a symmetric window all but the last, as Fourier transforms expect, or with
--- periodic = false the n points of a symmetric one.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local signature = arguments.signature

local windows = {}

-- shape(u) of places u in 0..1, in float64, as the dtype that was asked for.
local function window(length, periodic, dtype, device, requires_grad, shape)
  local result
  if length < 2 then
    result = C.ones({length}, {dtype = "float64"})
  else
    local last = periodic and length or length - 1
    result = shape(C.arange(length, {dtype = "float64"}) / last)
  end
  result = result:to {dtype = dtype, device = device or C.device.get_default_device()}
  return requires_grad and result:requires_grad_() or result
end

local function cosine(u, turns) return (u * (2 * math.pi * turns)):cos() end

local making = {{"dtype: dtype", "float32"}, {"device: device"}, {"requires_grad: flag", false}}

local read_bartlett = signature("bartlett_window", {"window_length: size", {"periodic: flag", true}, unpack(making)})

--- The triangle 1 - |2u - 1|, u in 0..1.
function windows.bartlett_window(...)
  local length, periodic, dtype, device, requires_grad = read_bartlett(...)
  return window(length, periodic, dtype, device, requires_grad, function(u) return 1 - (u * 2 - 1):abs() end)
end

local read_blackman = signature("blackman_window", {"window_length: size", {"periodic: flag", true}, unpack(making)})

--- 0.42 - 0.5 cos(2 pi u) + 0.08 cos(4 pi u), u in 0..1.
function windows.blackman_window(...)
  local length, periodic, dtype, device, requires_grad = read_blackman(...)
  return window(length, periodic, dtype, device, requires_grad, function(u)
    return cosine(u, 1) * -0.5 + cosine(u, 2) * 0.08 + 0.42
  end)
end

local read_hann = signature("hann_window", {"window_length: size", {"periodic: flag", true}, unpack(making)})

--- 0.5 - 0.5 cos(2 pi u), u in 0..1.
--
--     accelhost.hann_window(4)  --> tensor([0.0000, 0.5000, 1.0000, 0.5000])
function windows.hann_window(...)
  local length, periodic, dtype, device, requires_grad = read_hann(...)
  return window(length, periodic, dtype, device, requires_grad, function(u) return cosine(u, 1) * -0.5 + 0.5 end)
end

local read_hamming = signature("hamming_window", {
  "window_length: size", {"periodic: flag", true}, {"alpha: number", 0.54}, {"beta: number", 0.46}, unpack(making),
})

--- alpha - beta cos(2 pi u), u in 0..1.
function windows.hamming_window(...)
  local length, periodic, alpha, beta, dtype, device, requires_grad = read_hamming(...)
  return window(length, periodic, dtype, device, requires_grad, function(u) return cosine(u, 1) * -beta + alpha end)
end

local read_kaiser = signature("kaiser_window",
  {"window_length: size", {"periodic: flag", true}, {"beta: number", 12}, unpack(making)})

--- i0(beta sqrt(1 - (2u - 1)^2)) / i0(beta), u in 0..1.
function windows.kaiser_window(...)
  local length, periodic, beta, dtype, device, requires_grad = read_kaiser(...)
  return window(length, periodic, dtype, device, requires_grad, function(u)
    local top = C.full({}, beta, {dtype = "float64"}):i0()
    return ((1 - (u * 2 - 1):square()):clamp_min(0):sqrt() * beta):i0() / top
  end)
end

return windows
