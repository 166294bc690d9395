--- accelhost.optim.lr_scheduler: PyTorch's schedulers, in their chainable forms.
--
--   local scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 10})
--   for epoch = 1, 10 do
--     optimizer:step()
--     scheduler:step()
--   end
--
-- Milestones and epochs count from 0, as in PyTorch.
local LRScheduler = require "accelhost.optim.lr_scheduler.scheduler"
local namespace = require "accelhost.util.namespace"

local files = {
  LambdaLR = "lambda", MultiplicativeLR = "multiplicative", StepLR = "step", MultiStepLR = "multi_step",
  ConstantLR = "constant", LinearLR = "linear", ExponentialLR = "exponential", PolynomialLR = "polynomial",
  CosineAnnealingLR = "cosine_annealing", CosineAnnealingWarmRestarts = "cosine_annealing_warm_restarts",
  OneCycleLR = "one_cycle", CyclicLR = "cyclic", SequentialLR = "sequential", ChainedScheduler = "chained",
  ReduceLROnPlateau = "reduce_on_plateau",
}

local lazy = {}
for name, file in pairs(files) do lazy[name] = {"accelhost.optim.lr_scheduler." .. file} end

return namespace.new("optim.lr_scheduler", {LRScheduler = LRScheduler, is_scheduler = LRScheduler.is_scheduler}, lazy)
