--- Pruners by name: the values of `pruner` of a study.
--
--   pruners.new "median"
--   pruners.new {"median", n_warmup_steps = 3}
local choose = require "accelhost.sweep.choose"

return choose.new("pruner", "accelhost.sweep.pruners.pruner", {
  none = "accelhost.sweep.pruners.pruner",
  asha = "accelhost.sweep.pruners.asha",
  hyperband = "accelhost.sweep.pruners.hyperband",
  median = "accelhost.sweep.pruners.median",
  patience = "accelhost.sweep.pruners.patience",
  percentile = "accelhost.sweep.pruners.percentile",
  threshold = "accelhost.sweep.pruners.threshold",
})
