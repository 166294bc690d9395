--- A Parzen estimator: the density of good or of bad trials, as a mixture with a kernel for each of them and one, the
--- prior, as wide as the space. A kernel is a product over parameters: a normal distribution cut to the range, on a
--- logarithmic scale where the parameter has one; for values with a step its mass between half steps; for choices the
--- trial's own one, smoothed.
--
-- A kernel is as wide as the way to its farther neighbour, and at least 1 / min(100, n + 2) of the range (the magic
-- clip); trials weigh less the older they are, but for the last 25. Rules and defaults are those of Bergstra and
-- others, Algorithms for Hyper-Parameter Optimization, 2011 (https://papers.nips.cc/paper/4443) as Optuna has them;
-- Watanabe, Tree-Structured Parzen Estimator, 2023 (https://arxiv.org/abs/2304.11127) explains each.
--
-- The loops over kernels are written to be compiled: one plain array for each parameter, no calls within.
local class = require "accelhost.util.class"
local domain = require "accelhost.sweep.samplers.domain"
local new_table = require "table.new"
local normal = require "accelhost.sweep.samplers.normal"

local exp, floor, log, max, min = math.exp, math.floor, math.log, math.max, math.min
local log_root_two_pi = 0.5 * log(2 * math.pi)

-- For the logs of a point's densities under each kernel: growing a table for each point is slower than filling it.
local sums = {}

local parzen = {}

--- Weights of n trials, oldest first, and of the prior; their sum is 1.
---@param prior_weight number in units of the weight of a recent trial
---@return number[] # n + 1
function parzen.weights(n, prior_weight)
  local weights, sum, ramp = new_table(n + 1, 0), 0, n - 25
  for k = 1, n do
    weights[k] = 1
    if k <= ramp then weights[k] = ramp == 1 and 1 / n or 1 / n + (1 - 1 / n) * (k - 1) / (ramp - 1) end
    sum = sum + weights[k]
  end
  weights[n + 1] = n == 0 and 1 or prior_weight
  sum = sum + weights[n + 1]
  for k = 1, n + 1 do weights[k] = weights[k] / sum end
  return weights
end

-- Return the widths of a number's kernels: in `order` (kernels by place) each reaches its farther neighbour; the
-- outermost two reach their only neighbour.
local function widths(parameter, places, order, n)
  local range = parameter.to - parameter.from
  local least, sigmas = range / min(100, n + 2), new_table(n + 1, 0)
  local before, at = parameter.from, places[order[1] or 1]
  for i = 1, n do
    local after = i < n and places[order[i + 1]] or parameter.to
    local width = max(at - before, after - at)
    if n > 1 and i == 1 then width = after - at end
    if n > 1 and i == n then width = at - before end
    sigmas[order[i]] = max(least, min(range, width))
    before, at = at, after
  end
  return sigmas
end

-- Each kernel of a continuous number: -log of its height, added to `base`.
local function add_heights(dim, base, n)
  local from, to, mus, sigmas, inverse = dim.from, dim.to, dim.mus, dim.sigmas, dim.inverse
  local cdf = normal.cdf
  for k = 1, n do
    local mu, scale = mus[k], 1 / sigmas[k]
    inverse[k] = scale
    base[k] = base[k] + log(scale / (cdf((to - mu) * scale) - cdf((from - mu) * scale))) - log_root_two_pi
  end
end

-- Equal kernels of a number with steps are one class, since trials repeat values. They have the same position, so the
-- few widths of a position are compared one by one.
local function add_classes(dim, base, order, n)
  local mus, sigmas, class_of = dim.mus, dim.sigmas, new_table(n, 0)
  local class_mus, class_sigmas, log_masses, first, count = {}, {}, {}, 1, 0
  for i = 1, n do
    local k = order[i] or n
    local mu, sigma, at = mus[k], sigmas[k], first
    if class_mus[first] ~= mu then first, at = count + 1, count + 1 end
    while at <= count and class_sigmas[at] ~= sigma do at = at + 1 end
    if at > count then
      count = at
      class_mus[at], class_sigmas[at] = mu, sigma
      log_masses[at] = log(normal.mass((dim.from - mu) / sigma, (dim.to - mu) / sigma))
    end
    class_of[k] = at
    base[k] = base[k] - log_masses[at]
  end
  dim.class_mus, dim.class_sigmas, dim.class_of, dim.masses = class_mus, class_sigmas, class_of, {}
end

local function number_dim(parameter, places, order, base, n)
  local dim = {parameter = parameter, from = parameter.from, to = parameter.to, mus = places}
  dim.sigmas, dim.inverse = widths(parameter, places, order, n), new_table(n + 1, 0)
  dim.mus[n + 1], dim.sigmas[n + 1] = 0.5 * (dim.from + dim.to), dim.to - dim.from
  if parameter.step then add_classes(dim, base, order, n + 1) else add_heights(dim, base, n + 1) end
  return dim
end

local function choice_dim(parameter, places, n, prior_weight)
  local prior = prior_weight / (n + 1)
  local whole = parameter.count * prior + 1
  local dim = {parameter = parameter, places = places, hit = (prior + 1) / whole, miss = prior / whole}
  dim.log_hit, dim.log_miss, dim.log_prior = log(dim.hit), log(dim.miss), -log(parameter.count)
  return dim
end

local Estimator = class.new "Estimator"

--- Make one.
---@param parameters table[] those of domain.read that all trials have
---@param places (number[])[] for each parameter and each trial, oldest first, its position: the place of a number on
--- its scale, the index of a choice from 0. The estimator keeps these tables and adds the prior
---@param orders (integer[])[] for each number the trials (from 1) sorted by place
---@param n integer number of trials
---@param prior_weight? number default 1
---@return table
function parzen.new(parameters, places, orders, n, prior_weight)
  local self = Estimator()
  prior_weight = prior_weight or 1
  self.count, self.weights, self.base, self.dims = n + 1, parzen.weights(n, prior_weight), new_table(n + 1, 0), {}
  for k = 1, n + 1 do self.base[k] = log(self.weights[k]) end
  for i, parameter in ipairs(parameters) do
    self.dims[i] = parameter.choices and choice_dim(parameter, places[i], n, prior_weight)
      or number_dim(parameter, places[i], orders[i], self.base, n)
  end
  return self
end

-- A point of one kernel.
local function draw_from(dim, k, count, draws)
  local u = draws:uniform()
  if not dim.places then return normal.truncated(dim.mus[k], dim.sigmas[k], dim.from, dim.to, u) end
  local choices, own = dim.parameter.count, k < count and dim.places[k]
  if not own then return min(choices - 1, floor(u * choices)) end
  if u < dim.hit then return own end
  local other = min(choices - 2, floor((u - dim.hit) / dim.miss))
  return max(0, other >= own and other + 1 or other)
end

--- Draw a point.
---@param draws table a stream
---@return any[] # for each parameter its value
function Estimator:sample(draws)
  local u, k, sum = draws:uniform(), 1, self.weights[1]
  while k < self.count and u >= sum do
    k = k + 1
    sum = sum + self.weights[k]
  end
  local values = {}
  for i, dim in ipairs(self.dims) do
    local place = draw_from(dim, k, self.count, draws)
    if dim.places then
      values[i] = domain.value_at(dim.parameter, place)
    else
      values[i] = domain.at_place(dim.parameter, place)
    end
  end
  return values
end

local function add_continuous(dim, value, n)
  local mus, inverse, x = dim.mus, dim.inverse, domain.place_of(dim.parameter, value)
  for k = 1, n do
    local distance = (x - mus[k]) * inverse[k]
    sums[k] = sums[k] - 0.5 * distance * distance
  end
end

-- The log of a kernel's mass from a to b, in units of its width. Where that is narrow the height in the middle, with
-- the term of second order, is as good as the difference, and much faster.
local function log_mass(a, b)
  local width, middle = b - a, 0.5 * (a + b)
  if width >= 0.1 then return log(normal.mass(a, b)) end
  local square = middle * middle
  return log(width * (1 + width * width * (square - 1) / 24)) - 0.5 * square - log_root_two_pi
end

-- The logs of each class's mass at a value; candidates meet the same values too.
local function masses_at(dim, value)
  local parameter, masses = dim.parameter, dim.masses[value]
  if masses then return masses end
  local left, right = value - parameter.step / 2, value + parameter.step / 2
  if parameter.log then
    left, right = left > 0 and log(left) or parameter.from, log(right)
  end
  local mus, sigmas = dim.class_mus, dim.class_sigmas
  masses = new_table(#mus, 0)
  for i = 1, #mus do masses[i] = log_mass((left - mus[i]) / sigmas[i], (right - mus[i]) / sigmas[i]) end
  dim.masses[value] = masses
  return masses
end

local function add_steps(dim, value, n)
  local masses, class_of = masses_at(dim, value), dim.class_of
  for k = 1, n do sums[k] = sums[k] + masses[class_of[k]] end
end

local function add_choice(dim, value, n)
  local places, hit, miss = dim.places, dim.log_hit, dim.log_miss
  local index = domain.index_of(dim.parameter, value)
  for k = 1, n - 1 do sums[k] = sums[k] + (places[k] == index and hit or miss) end
  sums[n] = sums[n] + dim.log_prior
end

--- The log of the density at a point; continuous logarithmic parameters count by their logarithm.
---@param values any[] for each parameter its value
---@return number
function Estimator:log_density(values)
  local n, base = self.count, self.base
  for k = 1, n do sums[k] = base[k] end
  for i, dim in ipairs(self.dims) do
    local add = dim.places and add_choice or dim.class_of and add_steps or add_continuous
    add(dim, values[i], n)
  end
  local most = -math.huge
  for k = 1, n do most = max(most, sums[k]) end
  if most == -math.huge then return most end
  local sum, least = 0, most - 45
  for k = 1, n do
    if sums[k] > least then sum = sum + exp(sums[k] - most) end
  end
  return log(sum) + most
end

return parzen
