--- The tree-structured Parzen estimator, for most studies the sampler to take: it models the density of the good trials
--- and that of all others, draws candidates from the first and takes the one that is likeliest among the good ones. It
--- knows nothing else of the loss, so numbers, choices and parameters that depend on others are all the same to it.
--
-- Parameters are modelled together (multivariate), those that depend on others in groups of their own. Trials that run
-- count as bad (the constant liar), so that those that run at the same time lie apart. Trials that failed do not count.
-- Defaults are Optuna's; the estimator's file names the papers. NaN is the worst of losses.
local History = require "accelhost.sweep.samplers.history"
local Sampler = require "accelhost.sweep.samplers.sampler"
local domain = require "accelhost.sweep.samplers.domain"
local parzen = require "accelhost.sweep.samplers.parzen"

local TPESampler = Sampler:extend "TPESampler"

TPESampler.option_rows = {
  -- So many trials are random before the first one is modelled.
  {"n_startup_trials", "size", 10},
  -- So many points are drawn from the density of good trials.
  {"n_ei_candidates", "count", 24},
  -- A tenth of the trials is good, but at most so many.
  {"n_good_trials", "count", 25},
  -- What the prior weighs, where a recent trial weighs 1.
  {"prior_weight", "positive", 1},
}

function TPESampler:setup(space)
  Sampler.setup(self, space)
  self.history = History(self.space)
  return self
end

function TPESampler:observe(trial, loss)
  if loss then self.history:add(trial, loss) end
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
