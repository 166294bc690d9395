--- Stops a trial whose best loss so far is worse than the median of what complete trials reported at the same step: the
--- percentile pruner with 50.
local PercentilePruner = require "accelhost.sweep.pruners.percentile"

local MedianPruner = PercentilePruner:extend "MedianPruner"

MedianPruner.option_rows = {unpack(PercentilePruner.option_rows, 2)}
MedianPruner.percentile = 50

return MedianPruner
