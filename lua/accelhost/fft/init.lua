--- accelhost.fft: Fourier transforms. A complex tensor is two tensors, its real and its imaginary part: functions that
--- return complex numbers in PyTorch return both, and accept both, the imaginary part being optional.
--
--   local re, im = accelhost.fft.rfft(accelhost.tensor{1, 0, 0, 0})
--   re                              --> tensor([1., 1., 1.])
--   accelhost.fft.irfft(re, im, 4)  --> tensor([1., 0., 0., 0.])
---@param imag Tensor? like real; default: zeros
---@param norm string? "backward", "ortho" or "forward"
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local dims = require "accelhost.util.dims"
local namespace = require "accelhost.util.namespace"
local transform = require "accelhost.fft.transform"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local fft = {}

-- norm -> the power of n that a forward transform is divided by; an inverse one is divided by the rest of n
local powers = {backward = 0, ortho = 0.5, forward = 1}

local real, complex = {"real: tensor"}, {"real: tensor", {"imag: tensor"}}
local one_dim = {{"n: count"}, {"dim: integer", -1}, {"norm: 'backward'|'ortho'|'forward'", "backward"}}

local function several_dims(default)
  return {{"s: integers"}, {"dim: integers", default}, {"norm: 'backward'|'ortho'|'forward'", "backward"}}
end

-- Floating parts of one shape and dtype.
local function check_parts(what, re, im)
  if not re:is_floating_point() then re = re:to(C.dtype.get_default_dtype()) end
  if re.dtype ~= "float32" and re.dtype ~= "float64" then
    fail("%s: real: expected float32 or float64, got %s; x:float() converts it", what, re.dtype)
  end
  if im and not C.same_shape(re, im) then
    fail("%s: real and imag: expected one shape, got %s and %s", what, shape_text(re), shape_text(im))
  end
  if im and im.dtype ~= re.dtype then
    if im:is_floating_point() then
      fail("%s: real and imag: expected one dtype, got %s and %s", what, re.dtype, im.dtype)
    end
    im = im:to(re.dtype)
  end
  return re, im
end

local function least_dims(what, re, least)
  if re:dim() < least then
    fail("%s: expected at least %d dim%s, got shape %s", what, least, least == 1 and "" or "s", shape_text(re))
  end
end

-- The first n elements of a dim, followed by zeros where it has fewer.
local function resized(x, dim, n)
  if not x or x:size(dim) == n then return x end
  if x:size(dim) > n then return x:narrow(dim, 0, n) end
  local shape = x:shape()
  shape[dim + 1] = n - x:size(dim)
  return C.cat({x, x:new_zeros(shape)}, dim)
end

local function check_length(what, re, dim)
  if re:size(dim) == 0 then fail("%s: dim %d: expected at least 1 element, got shape %s", what, dim, shape_text(re)) end
end

local function scaled(re, im, n, power)
  if power == 0 then return re, im end
  local factor = n ^ -power
  return re * factor, im and im * factor
end

-- The transform along one dim: sign -1 forward, 1 inverse.
local function along(re, im, dim, sign, norm)
  local n, power = re:size(dim), powers[norm]
  if sign > 0 then power = 1 - power end
  re, im = transform.last(re:transpose(dim, -1), im and im:transpose(dim, -1), sign)
  return scaled(re:transpose(dim, -1), im:transpose(dim, -1), n, power)
end

-- The numbers of frequencies 0 to n / 2, of which the others are the conjugates.
local function half_of(n) return math.floor(n / 2) + 1 end

local function real_to_half(re, dim, norm)
  local half = half_of(re:size(dim))
  local all_re, all_im = along(re, nil, dim, -1, norm)
  return all_re:narrow(dim, 0, half), all_im:narrow(dim, 0, half)
end

-- The real tensor of length n whose frequencies 0 to n / 2 these are.
local function half_to_real(re, im, dim, n, norm)
  local half = half_of(n)
  re, im = resized(re, dim, half), resized(im, dim, half)
  if n > 2 then
    -- Frequency k > n / 2 is the conjugate of n - k; imaginary parts of the frequencies 0 and n / 2 do not reach the
    -- real part.
    local rest = n - half
    re = C.cat({re, re:narrow(dim, 1, rest):flip(dim)}, dim)
    im = im and C.cat({im, im:narrow(dim, 1, rest):flip(dim):neg()}, dim)
  end
  return (along(re, im, dim, 1, norm))
end

-- Dims and lengths of a transform over several dims: by default all, or the last #s.
local function plan(what, re, s, dim)
  s = type(s) == "number" and {s} or s
  local list
  if dim then
    list = dims.wrap_all(what, dim, re:dim())
  else
    list = {}
    local count = s and #s or re:dim()
    least_dims(what, re, count)
    for i = 1, count do list[i] = re:dim() - count + i - 1 end
  end
  if s and #s ~= #list then fail("%s: s: expected %d lengths, one for each dim, got %d", what, #list, #s) end
  local lengths = {}
  for i = 1, #list do
    local n = s and s[i] or -1
    if n < -1 or n == 0 then fail("%s: s: expected lengths of at least 1, or -1 for the input's, got %d", what, n) end
    lengths[i] = n
  end
  return list, lengths
end

local function over_dims(what, re, im, sign, s, dim, norm)
  local list, lengths = plan(what, re, s, dim)
  for i, d in ipairs(list) do
    if lengths[i] > 0 then re, im = resized(re, d, lengths[i]), resized(im, d, lengths[i]) end
    check_length(what, re, d)
  end
  for i = #list, 1, -1 do re, im = along(re, im, list[i], sign, norm) end
  return re, im or C.zeros_like(re)
end

local function real_over_dims(what, re, s, dim, norm)
  local list, lengths = plan(what, re, s, dim)
  if #list == 0 then fail("%s: expected at least 1 dim to transform", what) end
  for i, d in ipairs(list) do
    if lengths[i] > 0 then re = resized(re, d, lengths[i]) end
    check_length(what, re, d)
  end
  local im
  re, im = real_to_half(re, list[#list], norm)
  for i = #list - 1, 1, -1 do re, im = along(re, im, list[i], -1, norm) end
  return re, im
end

local function half_over_dims(what, re, im, s, dim, norm)
  local list, lengths = plan(what, re, s, dim)
  if #list == 0 then fail("%s: expected at least 1 dim to transform", what) end
  for i = 1, #list - 1 do
    if lengths[i] > 0 then re, im = resized(re, list[i], lengths[i]), resized(im, list[i], lengths[i]) end
    check_length(what, re, list[i])
    re, im = along(re, im, list[i], 1, norm)
  end
  local last = list[#list]
  check_length(what, re, last)
  local n = lengths[#list] > 0 and lengths[#list] or 2 * (re:size(last) - 1)
  if n < 1 then fail("%s: a half spectrum of 1 frequency: pass the length of the result", what) end
  return half_to_real(re, im, last, n, norm)
end

-- Define a transform along one dim: run(name, re, im, n, dim, norm).
local function define(name, inputs, run)
  local read = signature(name, dims.concat(inputs, one_dim))
  fft[name] = function(...)
    local re, im, n, dim, norm
    if inputs == complex then
      re, im, n, dim, norm = read(...)
    else
      re, n, dim, norm = read(...)
    end
    re, im = check_parts(name, re, im)
    least_dims(name, re, 1)
    return run(name, re, im, n, dims.wrap(name, dim, re:dim()), norm)
  end
end

local function complex_run(sign)
  return function(name, re, im, n, dim, norm)
    if n then re, im = resized(re, dim, n), resized(im, dim, n) end
    check_length(name, re, dim)
    return along(re, im, dim, sign, norm)
  end
end

local function half_run(name, re, im, n, dim, norm)
  check_length(name, re, dim)
  n = n or 2 * (re:size(dim) - 1)
  if n < 1 then fail("%s: a half spectrum of 1 frequency: pass the length n of the result", name) end
  return half_to_real(re, im, dim, n, norm)
end

local function real_run(name, re, _, n, dim, norm)
  if n then re = resized(re, dim, n) end
  check_length(name, re, dim)
  return real_to_half(re, dim, norm)
end

--- The transform along a dim: X[k] is the sum of x[i] e^(-2 pi i k j / n), j being the imaginary unit.
--
--   (accelhost.fft.fft(accelhost.tensor{1, 0, 0, 0}))  --> tensor([1., 1., 1., 1.])
---@param real Tensor [..., length, ...]
---@param n integer? length of the transform: the input is cut, or zeros are appended; default: its length
---@param norm string? "backward", the default: no scale; "ortho": divided by the square root of n; "forward": by n
---@return Tensor real [..., n, ...]
---@return Tensor imag
---@names fft
define("fft", complex, complex_run(-1))

--- The inverse of fft: x[i] is the sum of X[k] e^(2 pi i k j / n), divided by n.
--
--   (accelhost.fft.ifft(accelhost.ones(4)))  --> tensor([1., 0., 0., 0.])
---@param real Tensor [..., length, ...]
---@param n integer? length of the transform; default: the input's
---@param norm string? that of fft: "backward", the default, "ortho" or "forward"
---@return Tensor real [..., n, ...]
---@return Tensor imag
---@names ifft
define("ifft", complex, complex_run(1))

--- The transform of real numbers: the frequencies 0 to n / 2. The others are their conjugates.
--
--   (accelhost.fft.rfft(accelhost.ones(8)))  --> tensor([8., 0., 0., 0., 0.])
---@param real Tensor [..., length, ...]
---@param n integer? length of the transform: the input is cut, or zeros are appended; default: its length
---@return Tensor real [..., n // 2 + 1, ...]
---@return Tensor imag
---@names rfft
define("rfft", real, real_run)

--- The inverse of rfft: real numbers from their frequencies 0 to n / 2.
--
--   accelhost.fft.irfft(accelhost.ones(3))  --> tensor([1., 0., 0., 0.])
---@param real Tensor [..., n // 2 + 1, ...]
---@param n integer? length of the result; default: 2 (length - 1), which is even
---@param norm string? that of rfft
---@return Tensor [..., n, ...]
---@names irfft
define("irfft", complex, half_run)

local opposite = {backward = "forward", forward = "backward", ortho = "ortho"}

--- The transform of a signal whose second half is the conjugate of the first: real frequencies.
--
--   accelhost.fft.hfft(accelhost.ones(3))  --> tensor([4., 0., 0., 0.])
---@param real Tensor [..., n // 2 + 1, ...]
---@param n integer? length of the result; default: 2 (length - 1)
---@return Tensor [..., n, ...]
---@names hfft
define("hfft", complex, function(name, re, im, n, dim, norm)
  return half_run(name, re, im and im:neg(), n, dim, opposite[norm])
end)

--- The inverse of hfft.
--
--   (accelhost.fft.ihfft(accelhost.ones(4)))  --> tensor([1., 0., 0.])
---@param real Tensor [..., length, ...]
---@param n integer? length of the transform; default: the input's
---@param norm string? that of hfft
---@return Tensor real [..., n // 2 + 1, ...]
---@return Tensor imag
---@names ihfft
define("ihfft", real, function(name, re, _, n, dim, norm)
  local im
  re, im = real_run(name, re, nil, n, dim, opposite[norm])
  return re, im:neg()
end)

-- Define a transform over several dims: run(name, re, im, s, dim, norm); those that end with 2 are over the last two.
local function define_several(stem, inputs, run)
  for suffix, default in pairs {n = false, ["2"] = {-2, -1}} do
    local name = stem .. suffix
    local read = signature(name, dims.concat(inputs, several_dims(default or nil)))
    fft[name] = function(...)
      local re, im, s, dim, norm
      if inputs == complex then
        re, im, s, dim, norm = read(...)
      else
        re, s, dim, norm = read(...)
      end
      re, im = check_parts(name, re, im)
      return run(name, re, im, s, dim, norm)
    end
  end
end

--- The transforms fft and ifft over several dims, one after the other: fft2 and ifft2 over the last two.
--
--   (accelhost.fft.fft2(accelhost.ones(2, 2)))  --> tensor([[4., 0.],
--   -->         [0., 0.]])
---@param s integer[]? lengths of the dims, -1 for the input's
---@param dim integer[]? default: all dims, or as many of the last as s has lengths
---@return Tensor real
---@return Tensor imag
---@names fftn ifftn fft2 ifft2
for stem, sign in pairs {fft = -1, ifft = 1} do
  define_several(stem, complex, function(name, re, im, s, dim, norm)
    return over_dims(name, re, im, sign, s, dim, norm)
  end)
end

--- The transform of real numbers over several dims: rfft over the last of them, fft over the others.
--
--   (accelhost.fft.rfft2(accelhost.ones(2, 2)))  --> tensor([[4., 0.],
--   -->         [0., 0.]])
---@param s integer[]? lengths of the dims, -1 for the input's
---@param dim integer[]? default: all dims, or as many of the last as s has lengths
---@return Tensor real
---@return Tensor imag
---@names rfftn rfft2
define_several("rfft", real, function(name, re, _, s, dim, norm) return real_over_dims(name, re, s, dim, norm) end)

--- The inverse of rfftn: ifft over all dims but the last, irfft over that.
--
--   accelhost.fft.irfft2(accelhost.ones(2, 2))  --> tensor([[1., 0.],
--   -->         [0., 0.]])
---@param s integer[]? lengths of the result's dims, -1 for the input's; of the last dim by default 2 (length - 1)
---@param dim integer[]? default: all dims, or as many of the last as s has lengths
---@param norm string? that of rfftn
---@return Tensor
---@names irfftn irfft2
define_several("irfft", complex, half_over_dims)

local making = {"n: count", {"d: number", 1}, {"dtype: dtype"}, {"device: device"}, {"requires_grad: flag", false}}

-- Define a function that returns the frequencies places(n) / (d n).
local function define_frequencies(name, places)
  local read = signature(name, making)
  fft[name] = function(...)
    local n, d, dtype, device, requires_grad = read(...)
    local options = {dtype = dtype or C.dtype.get_default_dtype(), device = device}
    local result = places(n, options) / (n * d)
    return requires_grad and result:requires_grad_() or result
  end
end

--- The frequencies of fft, in its order: 0, 1, ..., -2, -1, divided by n d.
--
--   accelhost.fft.fftfreq(4)  --> tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
---@param n integer length of the transform
---@param d number? distance of the samples; default 1
---@return Tensor [n]
---@names fftfreq
define_frequencies("fftfreq", function(n, options)
  local positive = math.ceil(n / 2)
  return C.cat {C.arange(positive, options), C.arange(positive - n, 0, 1, options)}
end)

--- The frequencies of rfft: 0, 1, ..., n / 2, divided by n d.
--
--   accelhost.fft.rfftfreq(4)  --> tensor([0.0000, 0.2500, 0.5000])
---@param n integer length of the transform
---@param d number? distance of the samples; default 1
---@return Tensor [n // 2 + 1]
---@names rfftfreq
define_frequencies("rfftfreq", function(n, options) return C.arange(half_of(n), options) end)

-- Define a function that moves the elements of dims by `by(size)` places.
local function define_shift(name, by)
  local read = signature(name, {"input: tensor", {"dim: integers"}})
  fft[name] = function(...)
    local input, dim = read(...)
    local list = {}
    if dim then
      list = dims.wrap_all(name, dim, input:dim())
    else
      for d = 1, input:dim() do list[d] = d - 1 end
    end
    local shifts = {}
    for i, d in ipairs(list) do shifts[i] = by(input:size(d)) end
    return #list > 0 and C.roll(input, shifts, list) or input:clone()
  end
end

--- Move frequency 0 to the middle of each dim.
--
--   accelhost.fft.fftshift(accelhost.fft.fftfreq(4))  --> tensor([-0.5000, -0.2500,  0.0000,  0.2500])
---@param dim integer|integer[]? default: all dims
---@return Tensor like input
---@names fftshift
define_shift("fftshift", function(size) return math.floor(size / 2) end)

--- The inverse of fftshift.
--
--   local x = accelhost.arange(5)
--   accelhost.fft.ifftshift(accelhost.fft.fftshift(x)):equal(x)  --> true
---@param dim integer|integer[]? default: all dims
---@return Tensor like input
---@names ifftshift
define_shift("ifftshift", function(size) return math.ceil(size / 2) end)

autocast(fft, "float32", "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2")

return namespace.new("fft", fft)
