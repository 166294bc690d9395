--- accelhost.sweep: the words of a search space, for the files that `accelhost sweep` reads.
--
--   local sweep = accelhost.sweep
--   local space = {
--     lr = sweep.log_uniform(1e-4, 1e-1),
--     layers = sweep.int(1, 4),
--     optimizer = {name = sweep.choice{"adamw", "sgd"}, momentum = sweep.uniform(0, 0.99, {when = {name = "sgd"}})},
--     epochs = 5,
--   }
local distributions = require "accelhost.sweep.distributions"
local namespace = require "accelhost.util.namespace"

local names = {
  "uniform", "log_uniform", "int", "int_uniform", "log_int", "quniform", "qlog_uniform", "choice", "categorical",
}
local sweep = {}
for _, name in ipairs(names) do sweep[name] = distributions[name] end

-- Classes of samplers and pruners, whose objects a study accepts in place of a name, and their base classes.
local lazy = {
  run = {"accelhost.sweep.session", "run"},
  BaseSampler = {"accelhost.sweep.samplers.sampler"}, UniformSampler = {"accelhost.sweep.samplers.random"},
  GridSampler = {"accelhost.sweep.samplers.grid"}, QuasiRandomSampler = {"accelhost.sweep.samplers.quasi_random"},
  TPESampler = {"accelhost.sweep.samplers.tpe"}, CmaEsSampler = {"accelhost.sweep.samplers.cmaes"},
  NSGAIISampler = {"accelhost.sweep.samplers.nsga2"},
  BasePruner = {"accelhost.sweep.pruners.pruner"}, MedianPruner = {"accelhost.sweep.pruners.median"},
  PercentilePruner = {"accelhost.sweep.pruners.percentile"}, AshaPruner = {"accelhost.sweep.pruners.asha"},
  HyperbandPruner = {"accelhost.sweep.pruners.hyperband"}, ThresholdPruner = {"accelhost.sweep.pruners.threshold"},
  PatiencePruner = {"accelhost.sweep.pruners.patience"},
}

return namespace.new("accelhost.sweep", sweep, lazy, {refused = {
  normal = "samplers learn the location of good values from a range: sweep.uniform(mean - 2 * sd, mean + 2 * sd)",
  log_normal = "samplers learn the location of good values from a range: sweep.log_uniform(low, high)",
  suggest_float = "sweep.uniform(low, high), or sweep.log_uniform", suggest_int = "sweep.int(low, high)",
  suggest_categorical = "sweep.choice{...}", loguniform = "sweep.log_uniform(low, high)",
  randint = "sweep.int(low, high), the upper bound included",
}})
