--- Samplers by name: the values of `sampler` of a study.
--
--   samplers.new("tpe", 3)                               -- with seed 3
--   samplers.new({"tpe", n_startup_trials = 20}, 3)
local choose = require "accelhost.sweep.choose"

return choose.new("sampler", "accelhost.sweep.samplers.sampler", {
  halton = "accelhost.sweep.samplers.quasi_random",
  quasi_random = "accelhost.sweep.samplers.quasi_random",
  random = "accelhost.sweep.samplers.random",
  sobol = "accelhost.sweep.samplers.quasi_random",
  cmaes = "accelhost.sweep.samplers.cmaes",
  nsga2 = "accelhost.sweep.samplers.nsga2",
  grid = "accelhost.sweep.samplers.grid",
  tpe = "accelhost.sweep.samplers.tpe",
}, {halton = {sequence = "halton"}, sobol = {sequence = "sobol"}})
