--- Discrete Fourier transforms along the last dim, made of matrix products, so that they run and have gradients on
--- every device: a length is divided into factors (Cooley and Tukey, 1965), a transform of the size of a factor is a
--- product with a matrix of cosines and sines. A length with a large prime factor becomes a convolution of a length
--- without (Bluestein, 1970).
--
-- A complex tensor is a pair of tensors, real and imaginary part. The imaginary part nil is zero.
local C = require "accelhost._C"

local transform = {}

-- The largest size of one matrix. Beyond it a step more costs less than the products.
local DIRECT = 64

-- The largest prime factor that is transformed by a matrix.
local LARGEST_PRIME = 256

-- key -> constants, of the last lengths that were used; dropped together when there are many
local cache, cached, MOST_CACHED = {}, 0, 64

-- The constants of a key, dtype and device: the tensors of make(), which computes them in float64.
local function constants(key, like, make)
  key = ("%s %s %s"):format(key, like.dtype, like.device)
  local found = cache[key]
  if not found then
    if cached == MOST_CACHED then cache, cached = {}, 0 end
    found = C.autograd.no_grad(function()
      local list = {make()}
      for i, tensor in ipairs(list) do list[i] = tensor:to {dtype = like.dtype, device = like.device} end
      return list
    end)
    cache[key], cached = found, cached + 1
  end
  return found[1], found[2]
end

-- cos and sin of 2 pi turns / n, of whole numbers in float64: exactly 0 at quarters of a turn.
local function circle(turns, n)
  turns = turns:remainder(n)
  local angle = turns * (2 * math.pi / n)
  return angle:cos():masked_fill((turns * 4):remainder(2 * n):eq(n), 0),
    angle:sin():masked_fill((turns * 2):remainder(n):eq(0), 0)
end

-- cos and sin of 2 pi i k / n for i < rows and k < columns.
local function angles(rows, columns, n)
  local on_cpu = {dtype = "float64", device = "cpu"}
  return circle(C.arange(rows, on_cpu):view(rows, 1) * C.arange(columns, on_cpu), n)
end

-- (re + i im) (c + i sign s) with tensors or, by `product`, matrices.
local function multiply(product, re, im, c, s, sign)
  if not im then return product(re, c), product(re, s) * sign end
  if sign > 0 then return product(re, c) - product(im, s), product(im, c) + product(re, s) end
  return product(re, c) + product(im, s), product(im, c) - product(re, s)
end

local function times(a, b) return a * b end

-- A divisor of n for a step: the largest up to DIRECT, else the least prime factor; nil when that is too large.
local function factor_of(n)
  for d = math.min(DIRECT, math.floor(math.sqrt(n))), 2, -1 do
    if n % d == 0 then return d end
  end
  for d = DIRECT + 1, math.min(LARGEST_PRIME, n) do
    if n % d == 0 then return d end
  end
end

local along

-- A transform of length n as a convolution: i k = (i^2 + k^2 - (k - i)^2) / 2.
local function convolved(re, im, n, sign)
  local length = 1
  while length < 2 * n - 1 do length = length * 2 end
  local c, s = constants("chirp " .. n, re, function()
    local i = C.arange(n, {dtype = "float64", device = "cpu"})
    return circle(i * i, 2 * n)
  end)
  local filter_re, filter_im = constants(("filter %d %d"):format(n, sign), re, function()
    local double = re:new_empty({}, {dtype = "float64", device = "cpu"})
    local cos, sin = constants("chirp " .. n, double)
    local function wrapped(x) return C.cat({x, x:new_zeros(length - 2 * n + 1), x:narrow(0, 1, n - 1):flip(0)}) end
    return along(wrapped(cos), wrapped(sin) * -sign, length, -1)
  end)
  re, im = multiply(times, re, im, c, s, sign)
  local pad = re:shape()
  pad[#pad] = length - n
  local zeros = re:new_zeros(pad)
  re, im = along(C.cat({re, zeros}, -1), C.cat({im, zeros}, -1), length, -1)
  re, im = re * filter_re - im * filter_im, re * filter_im + im * filter_re
  re, im = along(re, im, length, 1)
  return multiply(times, re:narrow(-1, 0, n) / length, im:narrow(-1, 0, n) / length, c, s, sign)
end

-- The transform along the last dim of length n: the sums of x[i] e^(sign 2 pi i k sqrt(-1) / n).
function along(re, im, n, sign)
  if n == 1 then return re, im or C.zeros_like(re) end
  local factor = n > DIRECT and factor_of(n) or n
  if n > DIRECT and not factor then return convolved(re, im, n, sign) end
  if factor == n then
    local c, s = constants("matrix " .. n, re, function() return angles(n, n, n) end)
    return multiply(C.matmul, re, im, c, s, sign)
  end
  -- i = i1 rest + i2 and k = k1 + factor k2: a transform over i1, factors e^(i2 k1 / n), a transform over i2.
  local rest, shape = n / factor, re:shape()
  local function divided(x)
    local sizes = {unpack(shape)}
    sizes[#sizes], sizes[#sizes + 1] = factor, rest
    return x and x:reshape(sizes):transpose(-1, -2)
  end
  re, im = along(divided(re), divided(im), factor, sign)
  local c, s = constants(("factors %d %d"):format(rest, factor), re, function() return angles(rest, factor, n) end)
  re, im = multiply(times, re, im, c, s, sign)
  re, im = along(re:transpose(-1, -2), im:transpose(-1, -2), rest, sign)
  local function joined(x) return x:transpose(-1, -2):reshape(shape) end
  return joined(re), joined(im)
end

--- The transform along the last dim, without a scale.
---@param re Tensor float32 or float64
---@param im Tensor? like re
---@param sign integer -1 forward, 1 inverse
---@return Tensor re like re
---@return Tensor im
function transform.last(re, im, sign)
  return along(re, im, re:size(-1), sign)
end

return transform
