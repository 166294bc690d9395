--- Pruners by name: what `pruner` of a study may say.
--
--   pruners.new "median"
--   pruners.new {"median", n_warmup_steps = 3}
local choose = require "accelhost.sweep.choose"

return choose.new("pruner", "accelhost.sweep.pruners.pruner", {
  none = "accelhost.sweep.pruners.pruner",
  median = "accelhost.sweep.pruners.median",
  percentile = "accelhost.sweep.pruners.percentile",
})
