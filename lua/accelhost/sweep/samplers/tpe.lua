--- The tree-structured Parzen estimator.
local History = require "accelhost.sweep.samplers.history"
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local arguments = require "accelhost.util.arguments"
local domain = require "accelhost.sweep.samplers.domain"
local parzen = require "accelhost.sweep.samplers.parzen"

local TPESampler = BaseSampler:extend "TPESampler"

local read = arguments.signature("TPESampler", {
  {"n_startup_trials: size", 10}, {"n_ei_candidates: count", 24}, {"n_good_trials: count", 25},
  {"prior_weight: positive", 1}, {"seed: integer", 0},
})
--- The tree-structured Parzen estimator, the recommended sampler for most studies: it models the density of the good
--- trials and that of all others, draws candidates from the first and returns the one with the highest ratio of the two
--- densities. It handles numbers, choices and parameters that depend on others alike.
--
--   local sampler = accelhost.sweep.TPESampler{n_startup_trials = 20}   -- sampler = {"tpe", n_startup_trials = 20}
--
-- Parameters are modelled together (multivariate), those that depend on others in separate groups. Trials that run
-- count as bad (the constant liar), so that those that run at the same time differ. A pruned trial ranks by its number
-- of steps, after the complete ones; those that failed do not count. Defaults are Optuna's. Bergstra and others,
-- Algorithms for Hyper-Parameter Optimization, 2011: https://papers.nips.cc/paper/4443
---@param n_startup_trials? integer default 10: number of random trials before one is modelled
---@param n_ei_candidates? integer default 24: number of points drawn from the density of good trials
---@param n_good_trials? integer default 25: largest number of good trials, a tenth of all
---@param prior_weight? number default 1: weight of the space as a whole, where a recent trial has weight 1
function TPESampler:init(...)
  self.n_startup_trials, self.n_ei_candidates, self.n_good_trials, self.prior_weight, self.seed = read(...)
end

function TPESampler:setup(space)
  BaseSampler.setup(self, space)
  self.history = History(self.space)
  return self
end

function TPESampler:observe(trial, loss, losses)
  if loss then self.history:add(trial, loss, losses) end
end

-- The parameters of a group that can be one thing only are set; the others are returned.
local function varying(group, params)
  local list = {}
  for _, parameter in ipairs(group) do
    if parameter.count == 1 then
      params[parameter.name] = domain.value_at(parameter, 0)
    else
      list[#list + 1] = parameter
    end
  end
  return list
end

local function estimator(self, parameters, best, wanted)
  local places, orders, n = self.history:part(parameters, best, wanted)
  return parzen.new(parameters, places, orders, n, self.prior_weight)
end

local function choose(self, parameters, best, draws)
  local good, other = estimator(self, parameters, best, true), estimator(self, parameters, best, false)
  local chosen, most
  for _ = 1, self.n_ei_candidates do
    local values = good:sample(draws)
    local score = good:log_density(values) - other:log_density(values)
    if not chosen or score > most then chosen, most = values, score end
  end
  return chosen
end

function TPESampler:suggest(number, running, attempt)
  local draws, history = self:stream(number, attempt), self.history
  history:settle()
  return history:with(running, function()
    if history.ended < self.n_startup_trials then return self:draw(draws) end
    local best, params = history:best(self.n_good_trials), {}
    for _, group in ipairs(self.space.groups) do
      if domain.is_active(group[1], params) then
        local parameters = varying(group, params)
        local values = #parameters > 0 and choose(self, parameters, best, draws) or {}
        for i, parameter in ipairs(parameters) do params[parameter.name] = values[i] end
      end
    end
    return params
  end)
end

return TPESampler
