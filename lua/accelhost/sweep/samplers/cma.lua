--- The covariance matrix adaptation evolution strategy: a normal distribution of points that moves to where losses were
--- low and adapts to the shape of their valley. It learns from ranks alone.
--
-- Names and numbers of equations are those of Hansen, The CMA Evolution Strategy: A Tutorial, 2016
-- (https://arxiv.org/abs/1604.00772): full covariance, weights for bad points too (active), step size by its path.
-- Points may have any source; those far outside of the distribution are clipped, as in Hansen, Injecting
-- External Solutions Into CMA-ES, 2011 (https://arxiv.org/abs/1110.4181).
local class = require "accelhost.util.class"
local eigen = require "accelhost.sweep.samplers.eigen"

local abs, ceil, exp, floor, log, max, min, sqrt =
  math.abs, math.ceil, math.exp, math.floor, math.log, math.max, math.min, math.sqrt

local Cma = class.new "Cma"

local function vector(n, value)
  local made = {}
  for i = 1, n do made[i] = value end
  return made
end

local function sum_of(list, power, from, to)
  local sum = 0
  for i = from, to do sum = sum + list[i] ^ power end
  return sum
end

-- Weights of ranks and the rates that follow from them (49 to 56).
local function set_rates(self)
  local n, count = self.n, self.population
  local raw, mu = {}, floor(count / 2)
  for i = 1, count do raw[i] = log((count + 1) / 2) - log(i) end
  local mu_eff = sum_of(raw, 1, 1, mu) ^ 2 / sum_of(raw, 2, 1, mu)
  local mu_eff_minus = sum_of(raw, 1, mu + 1, count) ^ 2 / sum_of(raw, 2, mu + 1, count)
  local c1 = 2 / ((n + 1.3) ^ 2 + mu_eff)
  local cmu = min(1 - c1 - 1e-8, 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ^ 2 + mu_eff))
  local negative = min(1 + c1 / cmu, 1 + 2 * mu_eff_minus / (mu_eff + 2), (1 - c1 - cmu) / (n * cmu))
  local positive_sum, negative_sum = 0, 0
  for _, weight in ipairs(raw) do
    if weight > 0 then positive_sum = positive_sum + weight else negative_sum = negative_sum - weight end
  end
  self.weights, self.weight_sum = {}, 0
  for i, weight in ipairs(raw) do
    self.weights[i] = weight >= 0 and weight / positive_sum or negative / negative_sum * weight
    self.weight_sum = self.weight_sum + self.weights[i]
  end
  self.mu, self.mu_eff, self.c1, self.cmu = mu, mu_eff, c1, cmu
  self.c_sigma = (mu_eff + 2) / (n + mu_eff + 5)
  self.d_sigma = 1 + 2 * max(0, sqrt((mu_eff - 1) / (n + 1)) - 1) + self.c_sigma
  self.cc = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)
  self.chi_n = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
end

--- Return the usual number of points of a generation in n dimensions.
---@return integer
function Cma.usual_population(n) return 4 + floor(3 * log(n)) end

--- Make one.
---@param mean number[]
---@param sigma number the deviation in every direction
---@param population? integer default 4 + 3 ln n
function Cma:init(mean, sigma, population)
  local n = #mean
  self.n, self.mean, self.sigma = n, {unpack(mean)}, sigma
  self.population, self.generation = population or Cma.usual_population(n), 0
  set_rates(self)
  self.p_sigma, self.pc, self.covariance = vector(n, 0), vector(n, 0), {}
  for i = 1, n do
    self.covariance[i] = vector(n, 0)
    self.covariance[i][i] = 1
  end
  self.first_sigma, self.best, self.worst = sigma, {}, {}
end

-- The square roots of the covariance's eigenvalues and its eigenvectors, when they are asked for.
local function axes(self)
  if not self.lengths then
    local values, vectors = eigen.decompose(self.covariance)
    for i = 1, self.n do values[i] = sqrt(max(values[i], 1e-300)) end
    self.lengths, self.vectors = values, vectors
  end
  return self.lengths, self.vectors
end

--- The deviation of a coordinate.
---@return number
function Cma:deviation(i) return self.sigma * sqrt(max(self.covariance[i][i], 0)) end

--- A step from the mean.
---@param normals number[] n normal numbers
function Cma:step(normals)
  local lengths, vectors = axes(self)
  local step = {}
  for i = 1, self.n do
    local sum = 0
    for k = 1, self.n do sum = sum + vectors[i][k] * lengths[k] * normals[k] end
    step[i] = self.sigma * sum
  end
  return step
end

-- C^(-1/2) times a vector.
local function whiten(self, y)
  local lengths, vectors = axes(self)
  local turned, white = {}, {}
  for k = 1, self.n do
    local sum = 0
    for i = 1, self.n do sum = sum + vectors[i][k] * y[i] end
    turned[k] = sum / lengths[k]
  end
  for i = 1, self.n do
    local sum = 0
    for k = 1, self.n do sum = sum + vectors[i][k] * turned[k] end
    white[i] = sum
  end
  return white
end

-- Steps of the points in units of sigma, drawn in where they are far out, and the squares of their whitened lengths.
local function steps_of(self, points)
  local steps, squares = {}, {}
  local most = sqrt(self.n) + 2 * self.n / (self.n + 2) + 1
  for k, point in ipairs(points) do
    local y = {}
    for i = 1, self.n do y[i] = (point[i] - self.mean[i]) / self.sigma end
    local length = sqrt(sum_of(whiten(self, y), 2, 1, self.n))
    local scale = min(1, most / max(length, 1e-300))
    for i = 1, self.n do y[i] = y[i] * scale end
    steps[k], squares[k] = y, (length * scale) ^ 2
  end
  return steps, squares
end

-- The step-size path and step size (43, 44); whether the path is short enough for the other one to grow (p. 28).
local function update_sigma(self, mean_step)
  local n, c = self.n, self.c_sigma
  local white, rate = whiten(self, mean_step), sqrt(c * (2 - c) * self.mu_eff)
  for i = 1, n do self.p_sigma[i] = (1 - c) * self.p_sigma[i] + rate * white[i] end
  local length = sqrt(sum_of(self.p_sigma, 2, 1, n))
  self.sigma = min(self.sigma * exp(c / self.d_sigma * (length / self.chi_n - 1)), 1e32)
  return length / sqrt(1 - (1 - c) ^ (2 * (self.generation + 1))) < (1.4 + 2 / (n + 1)) * self.chi_n
end

-- The path and the covariance (45 to 47).
local function update_covariance(self, mean_step, steps, squares, grows)
  local n, cc, c1, cmu = self.n, self.cc, self.c1, self.cmu
  local rate = grows and sqrt(cc * (2 - cc) * self.mu_eff) or 0
  for i = 1, n do self.pc[i] = (1 - cc) * self.pc[i] + rate * mean_step[i] end
  local lost = grows and 0 or cc * (2 - cc)
  local keep, weights = 1 + c1 * lost - c1 - cmu * self.weight_sum, {}
  for k, weight in ipairs(self.weights) do
    weights[k] = weight >= 0 and weight or weight * n / (squares[k] + 1e-8)
  end
  for i = 1, n do
    for j = 1, i do
      local sum = 0
      for k = 1, self.population do sum = sum + weights[k] * steps[k][i] * steps[k][j] end
      local value = keep * self.covariance[i][j] + c1 * self.pc[i] * self.pc[j] + cmu * sum
      self.covariance[i][j], self.covariance[j][i] = value, value
    end
  end
  self.lengths, self.vectors = nil, nil
end

--- Learn from a generation.
---@param points number[][] `population` points, best first
---@param best number the least loss of them
---@param worst number the greatest
function Cma:tell(points, best, worst)
  self.generation = self.generation + 1
  local kept = 10 + ceil(30 * self.n / self.population)
  self.best[self.generation % kept], self.worst[self.generation % kept] = best, worst
  local steps, squares = steps_of(self, points)
  local mean_step = vector(self.n, 0)
  for k = 1, self.mu do
    for i = 1, self.n do mean_step[i] = mean_step[i] + self.weights[k] * steps[k][i] end
  end
  for i = 1, self.n do self.mean[i] = self.mean[i] + self.sigma * mean_step[i] end
  local grows = update_sigma(self, mean_step)
  update_covariance(self, mean_step, steps, squares, grows)
end

-- Have the losses of the last generations been the same?
local function is_flat(self)
  local kept = 10 + ceil(30 * self.n / self.population)
  if self.generation <= kept then return false end
  local least, most = math.huge, -math.huge
  for k = 0, kept - 1 do
    least, most = min(least, self.best[k]), max(most, self.worst[k])
  end
  return most - least < 1e-12 or most == least
end

-- Would a step along a coordinate or an axis change the mean, as numbers go?
local function is_stuck(self)
  local lengths, vectors = axes(self)
  local axis, moves = self.generation % self.n + 1, false
  for i = 1, self.n do
    if self.mean[i] == self.mean[i] + 0.2 * self:deviation(i) then return true end
    local step = 0.1 * self.sigma * lengths[axis] * vectors[i][axis]
    moves = moves or self.mean[i] ~= self.mean[i] + step
  end
  return not moves
end

--- Is there nothing more to be learnt from here: losses that no longer differ, a distribution that has become a point,
--- flew apart or is flat as a needle?
function Cma:has_converged()
  local lengths = axes(self)
  local least, most, small = math.huge, 0, true
  for i = 1, self.n do
    least, most = min(least, lengths[i]), max(most, lengths[i])
    local tolerance = 1e-12 * self.first_sigma
    small = small and self:deviation(i) < tolerance and abs(self.sigma * self.pc[i]) < tolerance
  end
  return small or self.sigma * most > 1e4 or most / least > 1e7 or is_flat(self) or is_stuck(self)
end

return Cma
