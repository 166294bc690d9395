--- RMSprop.
local Optimizer = require "accelhost.optim.optimizer"

--- RMSprop (Hinton, 2012): the gradient over the root of its mean square.
--- v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) + eps); centered subtracts the squared mean gradient from v;
-- with momentum the quotient is averaged in a buffer.
--
--   optim.RMSprop(net:parameters(), {lr = 0.01, momentum = 0.9}):step()
local RMSprop = Optimizer:define_fused("RMSprop", {
  {"lr: nonnegative|tensor", 1e-2}, {"alpha: nonnegative", 0.99}, {"eps: nonnegative", 1e-8},
  {"weight_decay: nonnegative", 0}, {"momentum: nonnegative", 0}, {"centered: flag", false}, {"maximize: flag", false},
})

return RMSprop
