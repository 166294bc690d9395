--- Random search: every trial is drawn from the space, whatever the others gave. A hard baseline, the right choice
--- where all trials run at once, and what other samplers begin with.
-- Bergstra and Bengio, Random Search for Hyper-Parameter Optimization, 2012:
-- https://jmlr.org/papers/v13/bergstra12a.html
local Sampler = require "accelhost.sweep.samplers.sampler"

return Sampler:extend "RandomSampler"
