--- Lion, which PyTorch does not have.
local Optimizer = require "accelhost.optim.optimizer"

--- The sign of a mean gradient as the step (Chen et al., 2023): p *= 1 - lr weight_decay; p -= lr sign(b1 m +
-- (1 - b1) g); m = b2 m + (1 - b2) g. Rates are 3 to 10 times smaller than AdamW's, decays as much larger.
--
--   optim.Lion(net:parameters(), {lr = 1e-4, weight_decay = 0.1})
local Lion = Optimizer:define_fused("Lion", {
  {"lr: nonnegative|tensor", 1e-4}, {"betas: any", {0.9, 0.99}}, {"weight_decay: nonnegative", 0},
  {"maximize: flag", false},
})

return Lion
