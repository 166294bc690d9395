--- Quasi-random search by Sobol's or Halton's sequence.
-- Halton, On the Efficiency of Certain Quasi-Random Sequences of Points, 1960; its scrambling by random permutations of
-- digits is that of Owen, A Randomized Halton Algorithm, 2017: https://arxiv.org/abs/1706.02808
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"
local sobol = require "accelhost.sweep.samplers.sobol"
local stream = require "accelhost.sweep.stream"

local floor = math.floor

local QuasiRandomSampler = BaseSampler:extend "QuasiRandomSampler"

local read = arguments.signature("QuasiRandomSampler", {
  {"sequence: 'sobol'|'halton'", "sobol"}, {"scramble: flag", true}, {"seed: integer", 0},
})
--- Quasi-random search: like random search, but the points fill the space evenly, so that no region is left out by
--- chance. Better than random ones for a first overview, or where all trials run at once.
--
--   local sampler = accelhost.sweep.QuasiRandomSampler "halton"   -- sampler = "halton"
--
-- A choice has its part of [0, 1]; a parameter that depends on another has its own dimension and is there or not.
---@param sequence? string "sobol" (default), for up to 64 parameters, or "halton", for any number of them
---@param scramble? boolean default true: points are random, by the seed, and as even; else point 0 is the lowest corner
function QuasiRandomSampler:init(...) self.sequence, self.scramble, self.seed = read(...) end

local function primes(count)
  local list, candidate = {}, 2
  while #list < count do
    local is_prime = true
    for _, prime in ipairs(list) do
      if prime * prime > candidate then break end
      is_prime = is_prime and candidate % prime ~= 0
    end
    if is_prime then list[#list + 1] = candidate end
    candidate = candidate + 1
  end
  return list
end

function QuasiRandomSampler:setup(space)
  BaseSampler.setup(self, space)
  local count = #self.space.parameters
  if self.sequence == "sobol" and count > sobol.most then
    arguments.fail("sobol: expected at most %d parameters, the space has %d; the sequence \"halton\" has no limit",
      sobol.most, count)
  end
  self.bases, self.permutations = primes(count), {}
  local low, high = stream.words(self.seed)
  self.key = stream.hash(low, high)
  return self
end

local function sobol_place(self, number, dimension)
  local x = sobol.bits(number, dimension)
  if self.scramble then x = sobol.scramble(x, stream.hash(self.key, dimension)) end
  return x % 2 ^ 32 / 2 ^ 32
end

-- The permutation of the values of a dimension's digit.
local function permutation(self, dimension, digit)
  local key = dimension * 64 + digit
  local order = self.permutations[key]
  if not order then
    local draws = stream.new(self.seed, key, 2)
    order = {}
    for i = 0, self.bases[dimension] - 1 do order[i] = i end
    for i = self.bases[dimension] - 1, 1, -1 do
      local k = draws:below(i + 1)
      order[i], order[k] = order[k], order[i]
    end
    self.permutations[key] = order
  end
  return order
end

-- The digits of the number in the dimension's base, mirrored at the point: as many as 32 bits resolve.
local function halton_place(self, number, dimension)
  local base = self.bases[dimension]
  local place, value, digit = 0, 1, 0
  while value > 2 ^ -32 do
    value, digit = value / base, digit + 1
    local at = number % base
    place = place + value * (self.scramble and permutation(self, dimension, digit)[at] or at)
    number = floor(number / base)
  end
  return math.min(place, 1 - 2 ^ -53)
end

function QuasiRandomSampler:suggest(number, running, attempt)
  if attempt and attempt > 0 then return self:draw(self:stream(number, attempt)) end
  local place = self.sequence == "sobol" and sobol_place or halton_place
  return domain.fill(self.space, function(dimension) return place(self, number, dimension) end)
end

return QuasiRandomSampler
