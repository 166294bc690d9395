--- Pruning by the median of other trials' reports.
local PercentilePruner = require "accelhost.sweep.pruners.percentile"
local arguments = require "accelhost.util.arguments"

local MedianPruner = PercentilePruner:extend "MedianPruner"

local read = arguments.signature("MedianPruner", {
  {"n_startup_trials: size", 5}, {"n_warmup_steps: size", 0}, {"interval_steps: count", 1}, {"n_min_trials: count", 1},
})
--- Stops a trial whose best loss so far is worse than the median of complete trials' reports at the same step.
--
--   local pruner = accelhost.sweep.MedianPruner{n_warmup_steps = 3}   -- pruner = {"median", n_warmup_steps = 3}
--
-- Golovin and others, Google Vizier: A Service for Black-Box Optimization, 2017:
-- https://doi.org/10.1145/3097983.3098043
---@param n_startup_trials? integer default 5: number of trials that must be complete first
---@param n_warmup_steps? integer default 0: the first step at which trials are judged
---@param interval_steps? integer default 1: number of steps between two judgements from there on
---@param n_min_trials? integer default 1: number of complete ones that must have reported at the step
function MedianPruner:init(...)
  self.percentile = 50
  self.n_startup_trials, self.n_warmup_steps, self.interval_steps, self.n_min_trials = read(...)
  self:_begin()
end

return MedianPruner
