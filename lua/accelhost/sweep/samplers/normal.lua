--- The normal distribution function and its inverse, as Lua that is compiled: samplers ask for tens of thousands of
--- values, one after another.
local normal = {}

local abs, exp, log, sqrt = math.abs, math.exp, math.log, math.sqrt
local root_half, root_two_pi = sqrt(0.5), sqrt(2 * math.pi)

-- erfc of y by three rational functions. W. J. Cody, Rational Chebyshev Approximations for the Error Function, 1969:
-- https://doi.org/10.1090/S0025-5718-1969-0247736-4
local function erf_small(y)
  local t = y * y
  local top = (((1.85777706184603153e-1 * t + 3.16112374387056560) * t + 1.13864154151050156e2) * t
    + 3.77485237685302021e2) * t + 3.20937758913846947e3
  local bottom = (((t + 2.36012909523441209e1) * t + 2.44024637934444173e2) * t + 1.28261652607737228e3) * t
    + 2.84423683343917062e3
  return y * top / bottom
end

local function erfc_middle(y)
  local top = (((((((2.15311535474403846e-8 * y + 5.64188496988670089e-1) * y + 8.88314979438837594) * y
    + 6.61191906371416295e1) * y + 2.98635138197400131e2) * y + 8.81952221241769090e2) * y
    + 1.71204761263407058e3) * y + 2.05107837782607147e3) * y + 1.23033935479799725e3
  local bottom = (((((((y + 1.57449261107098347e1) * y + 1.17693950891312499e2) * y + 5.37181101862009858e2) * y
    + 1.62138957456669019e3) * y + 3.29079923573345963e3) * y + 4.36261909014324716e3) * y
    + 3.43936767414372164e3) * y + 1.23033935480374942e3
  return exp(-y * y) * top / bottom
end

local function erfc_large(y)
  local t = 1 / (y * y)
  local top = ((((1.63153871373020978e-2 * t + 3.05326634961232344e-1) * t + 3.60344899949804439e-1) * t
    + 1.25781726111229246e-1) * t + 1.60837851487422766e-2) * t + 6.58749161529837803e-4
  local bottom = ((((t + 2.56852019228982242) * t + 1.87295284992346725) * t + 5.27905102951428412e-1) * t
    + 6.05183413124413191e-2) * t + 2.33520497626869185e-3
  return exp(-y * y) / y * (5.6418958354775628695e-1 - t * top / bottom)
end

local function erfc(y) return y < 4 and erfc_middle(y) or erfc_large(y) end

--- The part of the distribution below x.
---@param x number
---@return number
function normal.cdf(x)
  local y = abs(x) * root_half
  if y <= 0.46875 then return 0.5 + 0.5 * erf_small(x * root_half) end
  local tail = 0.5 * erfc(y)
  return x < 0 and tail or 1 - tail
end

local cdf = normal.cdf

--- The part between a and b, which is right in the tails too.
---@param a number
---@param b number at least a
---@return number
function normal.mass(a, b)
  if a > 0 then return cdf(-a) - cdf(-b) end
  return cdf(b) - cdf(a)
end

--- The p-quantile x of the normal distribution.
---@param p number above 0 and below 1
---@return number
function normal.quantile(p)
  if p > 0.5 then return -normal.quantile(1 - p) end
  -- Hastings' rational function is right to 5e-4 (Abramowitz and Stegun 26.2.23); Halley's steps triple the digits.
  local t = sqrt(-2 * log(p))
  local x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
  for _ = 1, 2 do
    local step = (cdf(x) - p) * root_two_pi * exp(0.5 * x * x)
    x = x - step / (1 + 0.5 * x * step)
  end
  return x
end

--- A number of the normal distribution truncated to [low, high].
---@param mean number
---@param deviation number
---@param u number from 0 to 1: which one
function normal.truncated(mean, deviation, low, high, u)
  local below, above = cdf((low - mean) / deviation), cdf((high - mean) / deviation)
  local p = below + u * (above - below)
  if not (p > 0 and p < 1) then return p > 0 and high or low end
  return math.max(low, math.min(high, mean + deviation * normal.quantile(p)))
end

return normal
