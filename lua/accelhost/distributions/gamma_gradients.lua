--- The derivatives of gamma and Dirichlet samples with respect to their concentrations, at fixed quantiles: PyTorch's
--- approximations (good to about 3 digits), computed in float64.
local C = require "accelhost._C"

local gradients = {}

-- A Taylor series for small x.
local function gamma_small(alpha, x)
  local numer, denom = C.ones_like(x), alpha
  local series1, series2 = numer / denom, numer / (denom * denom)
  for i = 1, 5 do
    numer, denom = numer * (-x / i), denom + 1
    series1, series2 = series1 + numer / denom, series2 + numer / (denom * denom)
  end
  local power = x ^ alpha
  local by_alpha = (x:log() - alpha:digamma()) * power * series1 - power * series2
  local result = -by_alpha / (x ^ (alpha - 1) * (-x):exp())
  return C.where(result:isnan(), C.zeros_like(result), result)
end

-- Rice's saddle point expansion for large alpha, near and away from the mean.
local function gamma_large(alpha, x)
  local square = alpha * alpha
  local first = (alpha * 12 + 1) * alpha * 24 + 1
  local second = square * 1440 + x * 6 * (53 - x * 120) - x * x * 65 / alpha + alpha * (x * 3600 + 107)
  local near = first * second / (square * square * 1244160)
  local denom = (alpha * 8):sqrt()
  local ratio = (x / alpha):log()
  local term3 = (x - alpha - alpha * ratio) ^ -1.5
  local term23 = denom / (alpha - x) + C.where(x:lt(alpha), -term3, term3)
  local term1 = ratio * term23 - (2 / alpha):sqrt() * (alpha + x) / (alpha - x) ^ 2
  local stirling = (1 / (alpha * 24) + 1) / (alpha * 12) + 1
  local is_near = (alpha * 0.9):le(x):logical_and(x:le(alpha * 1.1))
  return C.where(is_near, near, -stirling * x * term1 / denom)
end

local RATIONAL = {
  {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
  {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
  {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367,
    -1.5247877e-07},
}

local function cubic(c, x)
  return ((c[4] * x + c[3]) * x + c[2]) * x + c[1]
end

local function gamma_middle(alpha, x)
  local u, v, c = (x / alpha):log(), alpha:log(), {}
  for i = 1, 8 do c[i] = (u * RATIONAL[3][i] + RATIONAL[2][i]) * u + RATIONAL[1][i] end
  return (cubic(c, v) / cubic({c[5], c[6], c[7], c[8]}, v)):exp()
end

--- d x / d alpha of a sample x of the gamma distribution with concentration alpha and rate 1.
---@param alpha Tensor
---@return Tensor
function gradients.standard_gamma(alpha, x)
  local dtype = x.dtype
  alpha, x = alpha:double(), x:double()
  local result = C.where(alpha:gt(8), gamma_large(alpha, x), gamma_middle(alpha, x))
  return C.where(x:lt(0.8), gamma_small(alpha, x), result):to(dtype)
end

-- Beta(alpha, beta) near 0: with respect to alpha, and to beta.
local function beta_alpha_small(x, alpha, beta)
  local factor = alpha:digamma() - (alpha + beta):digamma() - x:log()
  local numer = C.ones_like(x)
  local series = numer / alpha * (factor + 1 / alpha)
  for i = 1, 10 do
    numer = numer * ((i - beta) * x / i)
    local denom = alpha + i
    series = series + numer / denom * (factor + 1 / denom)
  end
  local result = x * (1 - x) ^ -beta * series
  return C.where(result:isnan(), C.zeros_like(result), result)
end

local function beta_beta_small(x, alpha, beta)
  local factor = (alpha + beta):digamma() - beta:digamma()
  local numer, betas, dbetas = C.ones_like(x), C.ones_like(x), C.zeros_like(x)
  local series = factor / alpha
  for i = 1, 8 do
    numer = numer * (-x / i)
    dbetas = dbetas * (beta - i) + betas
    betas = betas * (beta - i)
    series = series + numer / (alpha + i) * (dbetas + factor * betas)
  end
  local result = -((1 - x) ^ (1 - beta)) * series
  return C.where(result:isnan(), C.zeros_like(result), result)
end

-- Rice's saddle point expansion where both are large.
local function beta_alpha_middle(x, alpha, beta)
  local total = alpha + beta
  local mean = alpha / total
  local std = (alpha * beta / (total + 1)):sqrt() / total
  local b2 = beta * beta
  local poly = x * 47 * b2 * b2 + alpha * (((beta * 27 + 16) * 20 * x + 43) * b2 * beta + alpha * (
    (beta * 180 - x * 90 + 59) * 3 * b2 + alpha * (((1 - x) * beta * 1620 - x * 455 + 453) * beta + alpha * (
    (1 - x) * 8 * (beta * 135 - 11)))))
  local numer = (alpha * 12 + 1) * (beta * 12 + 1) / (total * total)
  local denom = alpha * alpha * alpha * b2 * 12960 * (total * 12 + 1)
  local near = numer / (1 - x) * poly / denom
  local function stirling(a) return 1 / (a * 12) + 1 / (a * a * 288) + 1 end
  local prefactor = -x / (alpha * beta * 2 / total):sqrt()
  local axbx = alpha * (x - 1) + beta * x
  local term1 = (alpha * alpha * 2 * (x - 1) + alpha * beta * (x - 1) - x * b2)
    / ((alpha * 2 / beta):sqrt() * total ^ 1.5 * axbx * axbx)
  local term2 = (alpha / (total * x)):log() * 0.5
  local term3 = (alpha * beta * 8 / total):sqrt() / axbx
  local term4 = (beta * (beta / (total * (1 - x))):log() + alpha * (alpha / (total * x)):log()) ^ -1.5
  local sum = term1 + term2 * (term3 + C.where(x:lt(mean), term4, -term4))
  local away = stirling(alpha) * stirling(beta) / stirling(total) * prefactor * sum
  return C.where((x - mean):abs():le(std * 0.1), near, away)
end

local CORRECTION = {
  {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
    {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
    {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
   {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
    {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
    {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
   {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
    {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
    {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
  {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
    {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
    {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
   {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
    {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
    {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
   {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
    {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
    {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}},
}

-- A rational correction of x (digamma(total) - digamma(alpha)) / beta.
local function beta_corrected(x, alpha, total)
  local u = x:log()
  local a = alpha:log() - u
  local b, sums = total:log() - a, {}
  local pow_u, pow_a = {1, u, u * u}, {1, a, a * a}
  for k = 1, 2 do
    sums[k] = 0
    for i = 1, 3 do
      for j = 1, 3 do sums[k] = sums[k] + pow_u[i] * pow_a[j] * cubic(CORRECTION[k][i][j], b) end
    end
  end
  return sums[1] / sums[2] * x * (total:digamma() - alpha:digamma()) / (total - alpha)
end

--- The part of d x / d alpha of Dirichlet samples that each element has by itself.
---@param alpha Tensor the concentrations
---@param total Tensor their sum, of the same shape
---@return Tensor
function gradients.dirichlet(x, alpha, total)
  local dtype = x.dtype
  x, alpha, total = x:double(), alpha:double(), total:double()
  local beta, boundary = total - alpha, total * x * (1 - x)
  local large = alpha:gt(6):logical_and(beta:gt(6))
  local result = C.where(large, beta_alpha_middle(x, alpha, beta), beta_corrected(x, alpha, total))
  local near_one = x:ge(0.5):logical_and(boundary:lt(0.75))
  result = C.where(near_one, -beta_beta_small(1 - x, beta, alpha), result)
  local near_zero = x:le(0.5):logical_and(boundary:lt(2.5))
  return C.where(near_zero, beta_alpha_small(x, alpha, beta), result):to(dtype)
end

return gradients
