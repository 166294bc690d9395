--- The importance of parameters: for each the difference between the distributions of the best tenth of the trials and
--- of all trials over its range.
--
-- PED-ANOVA: both densities are estimated on a grid of at most 50 places, and the Pearson divergence of the one from
-- the other is the importance, weighted, for a parameter that depends on others, by the share of the best trials that
-- have it. Watanabe, Bansal and Hutter, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
-- Subspaces, 2023: https://arxiv.org/abs/2304.10255. Kernel widths follow Scott's rule; numbers are Optuna's.
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"
local kinds = require "accelhost.util.kinds"
local normal = require "accelhost.sweep.samplers.normal"
local outcome = require "accelhost.sweep.outcome"

local ceil, floor, log, max, min, sqrt = math.ceil, math.floor, math.log, math.max, math.min, math.sqrt

local importance = {}

local most_places, target, fewest = 50, 0.1, 20

--- The reason why a study has no importances; %d: its complete trials.
importance.NEEDS = ("needs %d different results (%%d complete so far)"):format(fewest)

local is_finite = kinds.is_finite

-- Trials with a result, best first: how they ended and their params.
local function ranked(trials, direction)
  local list, sign = {}, direction == "maximize" and -1 or 1
  for _, trial in ipairs(trials) do
    local last = trial.reports and trial.reports[#trial.reports]
    local left = trial.state == "pruned" or trial.state == "paused"
    local value = trial.value or left and last and last.value
    if (left or trial.state == "complete") and is_finite(value) then
      local entry = outcome.of(trial, sign * value)
      entry.params = trial.params
      list[#list + 1] = entry
    end
  end
  table.sort(list, outcome.is_better)
  return list
end

-- The best tenth, with all that are as good as its last.
local function best_of(list)
  local best, last = {}, list[ceil(target * #list)]
  for _, entry in ipairs(list) do
    local as_good = entry.loss == last.loss and entry.step == last.step
    if #best >= ceil(target * #list) and not as_good then break end
    best[#best + 1] = entry
  end
  return best
end

-- Return the number of places of a parameter's grid.
local function places_of(parameter)
  if parameter.choices then return parameter.count end
  if parameter.kind == "int" and parameter.log then
    return min(ceil(log(parameter.high - parameter.low + 1) / log(2)) + 1, most_places)
  end
  return min(parameter.count or most_places, most_places)
end

-- Count the entries at each place, from 0.
local function counts_of(parameter, entries, size)
  local counts = {}
  for k = 0, size - 1 do counts[k] = 0 end
  local low, high = parameter.low, parameter.high
  if parameter.log then low, high = log(low), log(high) end
  for _, entry in ipairs(entries) do
    local value = entry.params[parameter.name]
    local place
    if parameter.choices then
      place = domain.index_of(parameter, value)
    else
      place = ceil((domain.place_of(parameter, value) - low) / ((high - low) / (size - 1)) - 0.5)
      place = max(0, min(size - 1, place))
    end
    counts[place] = counts[place] + 1
  end
  return counts
end

-- The width of kernels at these places.
local function width_of(places, counts)
  local total, mean, square = 0, 0, 0
  for _, k in ipairs(places) do total, mean = total + counts[k], mean + k * counts[k] end
  mean = mean / total
  for _, k in ipairs(places) do square = square + (k - mean) ^ 2 * counts[k] end
  local before, quarter, three = 0, nil, nil
  for _, k in ipairs(places) do
    before = before + counts[k]
    if not quarter and before >= floor(total / 4) then quarter = k end
    if not three and before > floor(total * 3 / 4) then three = k end
  end
  local spread = ((three or places[#places]) - quarter) / 1.34
  return max(0.5 / 1.64, 1.059 * min(spread, sqrt(square / max(1, total - 1))) * total ^ -0.2)
end

local function number_density(places, counts, size)
  local density, weight, width = {}, 1, width_of(places, counts)
  local function add(middle, deviation, fraction)
    local whole = normal.mass((-0.5 - middle) / deviation, (size - 0.5 - middle) / deviation)
    for k = 0, size - 1 do
      local mass = normal.mass((k - 0.5 - middle) / deviation, (k + 0.5 - middle) / deviation)
      density[k] = (density[k] or 0) + fraction * mass / whole
    end
  end
  for _, k in ipairs(places) do
    add(k, width, counts[k])
    weight = weight + counts[k]
  end
  -- The prior weighs as much as one trial.
  add((size - 1) / 2, size, 1)
  for k = 0, size - 1 do density[k] = density[k] / weight end
  return density
end

local function choice_density(places, counts, size)
  local density, total = {}, 0
  local fraction = 1 / (#places + 1)
  for _, k in ipairs(places) do total = total + counts[k] end
  for k = 0, size - 1 do
    local smoothed = (counts[k] + total * fraction) / (1 + size * fraction)
    density[k] = (smoothed + 1 / size) / (total + 1)
  end
  return density
end

local function density_of(parameter, entries, size)
  local counts, places = counts_of(parameter, entries, size), {}
  for k = 0, size - 1 do
    if counts[k] > 0 then places[#places + 1] = k end
  end
  return (parameter.choices and choice_density or number_density)(places, counts, size)
end

local function with_parameter(parameter, entries)
  local list = {}
  for _, entry in ipairs(entries) do
    local value = entry.params[parameter.name]
    local known = value ~= nil and (parameter.choices and domain.index_of(parameter, value)
      or not parameter.choices and domain.place_of(parameter, value))
    if known then list[#list + 1] = entry end
  end
  return list
end

local function divergence_of(parameter, best, all)
  local own_best, own_all = with_parameter(parameter, best), with_parameter(parameter, all)
  if parameter.count == 1 or #own_best == 0 or #own_all < 2 then return 0 end
  local size, sum = places_of(parameter), 0
  local top, whole = density_of(parameter, own_best, size), density_of(parameter, own_all, size)
  for k = 0, size - 1 do
    local base = whole[k] + 1e-12
    sum = sum + base * ((top[k] + 1e-12) / base - 1) ^ 2
  end
  return (#own_best / #best) ^ 2 / (#own_all / #all) * sum
end

-- Ranks of numbers from 1, those that are equal sharing theirs.
local function ranks_of(values)
  local order, ranks = {}, {}
  for i = 1, #values do order[i] = i end
  table.sort(order, function(a, b) return values[a] < values[b] end)
  local first = 1
  while first <= #order do
    local last = first
    while last < #order and values[order[last + 1]] == values[order[first]] do last = last + 1 end
    for i = first, last do ranks[order[i]] = (first + last) / 2 end
    first = last + 1
  end
  return ranks
end

--- Spearman's rank correlation: 1 where one grows with the other, -1 where it falls, whatever the curve.
---@param x number[]
---@param y number[] as many
---@return number? # nil for fewer than 3, or when all of one are equal
function importance.rank_correlation(x, y)
  local n, a, b = #x, ranks_of(x), ranks_of(y)
  local middle, product, square_a, square_b = (n + 1) / 2, 0, 0, 0
  for i = 1, n do
    product = product + (a[i] - middle) * (b[i] - middle)
    square_a, square_b = square_a + (a[i] - middle) ^ 2, square_b + (b[i] - middle) ^ 2
  end
  if n < 3 or square_a == 0 or square_b == 0 then return nil end
  return product / sqrt(square_a * square_b)
end

-- Return the correlation of a number with the metric, over complete trials; nil for few of them, where it would be
-- chance.
local function correlation_of(parameter, all, direction)
  if parameter.choices then return nil end
  local x, y, sign = {}, {}, direction == "maximize" and -1 or 1
  for _, entry in ipairs(with_parameter(parameter, all)) do
    if not entry.step then
      x[#x + 1], y[#y + 1] = entry.params[parameter.name], sign * entry.loss
    end
  end
  return #x >= 10 and importance.rank_correlation(x, y) or nil
end

--- The parameters of a space by importance, the first one first. Complete trials count, and pruned and paused ones as
--- worse than those.
---@param space table[] parameters {name, kind, low, high, log, step, choices, when}
---@param trials table[] {number, state, params, value, reports}
---@param direction? "minimize"|"maximize" of the values; default "minimize"
---@return {name: string, importance: number, correlation: number?}[]? # importances sum to 1; correlation: Spearman's
--- of the number and the metric, of 10 complete trials or more. nil for fewer than 20 trials, or without any importance
function importance.of(space, trials, direction)
  direction = direction or "minimize"
  arguments.check("importance", "direction", "'minimize'|'maximize'", direction)
  local all = ranked(trials, direction)
  if #all < fewest then return nil end
  local best, list, sum = best_of(all), {}, 0
  if #best == #all then return nil end
  for _, parameter in ipairs(domain.read(space).parameters) do
    local found = divergence_of(parameter, best, all)
    list[#list + 1] = {
      name = parameter.name, importance = found, correlation = correlation_of(parameter, all, direction),
    }
    sum = sum + found
  end
  if sum == 0 then return nil end
  for _, entry in ipairs(list) do entry.importance = entry.importance / sum end
  table.sort(list, function(a, b)
    if a.importance ~= b.importance then return a.importance > b.importance end
    return a.name < b.name
  end)
  return list
end

return importance
