--- Random search.
-- Bergstra and Bengio, Random Search for Hyper-Parameter Optimization, 2012:
-- https://jmlr.org/papers/v13/bergstra12a.html
local BaseSampler = require "accelhost.sweep.samplers.sampler"
local arguments = require "accelhost.util.arguments"

local UniformSampler = BaseSampler:extend "UniformSampler"

local read = arguments.signature("UniformSampler", {{"seed: integer", 0}})
--- Random search: every trial is drawn from the space, independently of the results of others. A hard baseline, the
--- right choice where all trials run at once, and the start of other samplers.
--
--   local sampler = accelhost.sweep.UniformSampler{seed = 1}   -- sampler = "random"
function UniformSampler:init(...) self.seed = read(...) end

return UniformSampler
