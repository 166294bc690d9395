--- CMA-ES as a sampler.
local Cma = require "accelhost.sweep.samplers.cma"
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local TPESampler = require "accelhost.sweep.samplers.tpe"
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"
local normal = require "accelhost.sweep.samplers.normal"
local outcome = require "accelhost.sweep.outcome"
local stream = require "accelhost.sweep.stream"

local max, min = math.max, math.min

local CmaEsSampler = BaseSampler:extend "CmaEsSampler"

local read = arguments.signature("CmaEsSampler", {
  {"popsize: count"}, {"sigma0: positive", 1 / 6}, {"restarts: flag", true}, {"seed: integer", 0},
})
--- The covariance matrix adaptation evolution strategy, for numbers and many trials: hundreds to thousands, of losses
--- that are smooth but badly scaled or whose parameters depend on each other.
--
--   local sampler = accelhost.sweep.CmaEsSampler{popsize = 12}   -- sampler = {"cmaes", popsize = 12}
--
-- A generation is learnt from when `popsize` trials have ended since the last one, whichever they are: those that run
-- at the same time, or were queued, are as good as others. Points outside of the space are drawn again. A number with
-- steps leaves the step at which the mean is in at least one of (dimensions * popsize) draws, so that it never gets
-- stuck there: the margin of Hamano and others, CMA-ES with Margin, 2022 (https://arxiv.org/abs/2205.13482). Choices,
-- parameters that depend on others and those that others depend on are left to TPE. Pruned trials rank after complete
-- ones; those that failed do not count.
---@param popsize? integer trials of a generation, default 4 + 3 ln(dimensions)
---@param sigma0? number how wide the search begins, as a part of every range; default 1 / 6
---@param restarts? boolean default true: when nothing more can be learnt it begins at another place with twice as many
--- trials in a generation (IPOP, Auger and Hansen, 2005)
function CmaEsSampler:init(...) self.popsize, self.sigma0, self.restarts, self.seed = read(...) end

-- Divide the space into the parameters of CMA and the others.
local function divide(self, space)
  local is_parent = {}
  for _, given in ipairs(space) do
    if given.when then is_parent[given.when.name] = true end
  end
  self.numbers, self.others = {}, {}
  for _, given in ipairs(space) do
    local parameter = self.space.by_name[given.name]
    if parameter.choices or parameter.when or is_parent[given.name] or parameter.count == 1 then
      self.others[#self.others + 1] = given
    else
      self.numbers[#self.numbers + 1] = parameter
    end
  end
end

-- Begin at the middle of the space, or, later, anywhere.
local function begin(self, population)
  local mean, draws = {}, stream.new(self.seed, self.begun, 3)
  for i = 1, #self.numbers do mean[i] = self.begun == 0 and 0.5 or draws:uniform() end
  self.begun = self.begun + 1
  self.cma, self.ended = Cma(mean, self.sigma0, population), {}
end

function CmaEsSampler:setup(space)
  BaseSampler.setup(self, space)
  divide(self, space)
  self.rest = #self.others > 0 and TPESampler {seed = self.seed}:setup(self.others)
  self.begun = 0
  if #self.numbers > 0 then begin(self, self.popsize and max(4, self.popsize)) end
  return self
end

local function point_of(self, params)
  local point = {}
  for i, parameter in ipairs(self.numbers) do
    local place = domain.place_of(parameter, params[parameter.name])
    if not place then return nil end
    point[i] = (place - parameter.from) / (parameter.to - parameter.from)
  end
  return point
end

local function learn(self)
  table.sort(self.ended, outcome.is_better)
  local points = {}
  for k, entry in ipairs(self.ended) do points[k] = entry.point end
  self.cma:tell(points, self.ended[1].loss, self.ended[#self.ended].loss)
  self.ended = {}
  if self.restarts and self.cma:has_converged() then begin(self, 2 * self.cma.population) end
end

function CmaEsSampler:observe(trial, loss)
  if self.rest then self.rest:observe(trial, loss) end
  local point = loss and self.cma and point_of(self, trial.params)
  if not point then return end
  local entry = outcome.of(trial, loss)
  entry.point = point
  self.ended[#self.ended + 1] = entry
  if #self.ended == self.cma.population then learn(self) end
end

-- Return the factor by which a number with steps is drawn wider than the distribution, for it to leave the mean's step
-- often enough.
local function widening(self, i, parameter)
  if not parameter.count then return 1 end
  local mean = max(0, min(1 - 1e-9, self.cma.mean[i]))
  local index = domain.index_of(parameter, domain.from_unit(parameter, mean))
  local function edge(side)
    local value = parameter.low + (index + side) * parameter.step
    local place = parameter.log and math.log(max(value, math.exp(parameter.from))) or value
    return (place - parameter.from) / (parameter.to - parameter.from)
  end
  -- The way out: for a step at an end of the range there is only one.
  local ways = {}
  if index > 0 then ways[#ways + 1] = mean - edge(-0.5) end
  if index < parameter.count - 1 then ways[#ways + 1] = edge(0.5) - mean end
  local way = #ways == 2 and min(ways[1], ways[2]) or ways[1]
  local margin = 1 / (self.cma.n * self.cma.population)
  local needed = way / -normal.quantile(min(0.4, margin))
  return max(1, needed / max(self.cma:deviation(i), 1e-300))
end

local function draw_point(self, draws)
  local cma, wider, point = self.cma, {}, {}
  for i, parameter in ipairs(self.numbers) do wider[i] = widening(self, i, parameter) end
  for _ = 1, 100 do
    local normals, inside = {}, true
    for i = 1, cma.n do normals[i] = draws:normal() end
    local step = cma:step(normals)
    for i = 1, cma.n do
      point[i] = cma.mean[i] + step[i] * wider[i]
      inside = inside and point[i] >= 0 and point[i] <= 1
    end
    if inside then return point end
  end
  for i = 1, cma.n do point[i] = max(0, min(1, point[i])) end
  return point
end

function CmaEsSampler:suggest(number, running, attempt)
  local params = self.rest and self.rest:suggest(number, running, attempt) or {}
  if self.cma then
    local point = draw_point(self, stream.new(self.seed, number, 4 + (attempt or 0)))
    for i, parameter in ipairs(self.numbers) do
      params[parameter.name] = domain.from_unit(parameter, point[i])
    end
  end
  return params
end

return CmaEsSampler
