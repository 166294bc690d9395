--- A genetic algorithm for several metrics.
-- Deb and others, A fast and elitist multiobjective genetic algorithm: NSGA-II, 2002:
-- https://doi.org/10.1109/4235.996017
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"
local kinds = require "accelhost.util.kinds"
local pareto = require "accelhost.sweep.pareto"

---@class NSGAIISampler: BaseSampler
local NSGAIISampler = BaseSampler:extend "NSGAIISampler"

local read = arguments.signature("NSGAIISampler", {
  {"population_size: count", 50}, {"mutation_prob: probability"}, {"crossover_prob: probability", 0.9},
  {"swapping_prob: probability", 0.5}, {"seed: integer", 0},
})
--- NSGA-II: generations of trials, each bred from the best of all earlier ones. For studies of several metrics with
--- some hundred trials; sampler = "tpe" has better results with fewer.
--
--   local sampler = accelhost.sweep.NSGAIISampler{population_size = 20}   -- sampler = {"nsga2", population_size = 20}
--
-- The first generation is random. Parents are selected by tournaments of two, a child's parameters are each from one of
-- them, and mutated ones are drawn at random. Defaults are Optuna's.
---@param population_size? integer default 50: trials of a generation
---@param mutation_prob? number default 1 / number of parameters: probability that a parameter is drawn at random
---@param crossover_prob? number default 0.9: probability that a child has two parents
---@param swapping_prob? number default 0.5: probability that a parameter is from the second parent
function NSGAIISampler:init(...)
  self.population_size, self.mutation_prob, self.crossover_prob, self.swapping_prob, self.seed = read(...)
  self._points, self._params, self._generation = {}, {}, 0
end

function NSGAIISampler:observe(trial, loss, losses)
  local point = losses or {loss}
  if trial.state ~= "complete" or #point == 0 then return end
  for _, value in ipairs(point) do
    if not kinds.is_finite(value) then return end
  end
  self._points[#self._points + 1], self._params[#self._params + 1] = point, trial.params
end

-- Select the parents of a generation: the best of all trials before it.
local function select_parents(self, generation)
  if self._generation == generation then return end
  self._generation = generation
  local points = {unpack(self._points, 1, generation * self.population_size)}
  self._parents, self._fronts = pareto.best(points, self.population_size), pareto.fronts(points)
end

local function parent_of(self, draws)
  local one, other = self._parents[1 + draws:below(#self._parents)], self._parents[1 + draws:below(#self._parents)]
  return self._params[self._fronts[other] < self._fronts[one] and other or one]
end

function NSGAIISampler:suggest(number, _, attempt)
  local draws = self:stream(number, attempt)
  local generation = math.floor(#self._points / self.population_size)
  if generation == 0 then return self:draw(draws) end
  select_parents(self, generation)
  local mother, father = parent_of(self, draws), nil
  if draws:uniform() < self.crossover_prob then father = parent_of(self, draws) end
  local mutation = self.mutation_prob or 1 / math.max(1, #self.space.parameters)
  local params = {}
  for _, parameter in ipairs(self.space.parameters) do
    if domain.is_active(parameter, params) then
      local name = parameter.name
      local value = mother[name]
      if father and (value == nil or father[name] ~= nil and draws:uniform() < self.swapping_prob) then
        value = father[name]
      end
      if value == nil or draws:uniform() < mutation then value = domain.from_unit(parameter, draws:uniform()) end
      params[name] = value
    end
  end
  return params
end

return NSGAIISampler
