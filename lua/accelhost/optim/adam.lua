--- Adam and AdamW.
local Optimizer = require "accelhost.optim.optimizer"

local function options(weight_decay, more)
  return {
    {"lr: nonnegative|tensor", 1e-3}, {"betas: any", {0.9, 0.999}}, {"eps: nonnegative", 1e-8},
    {"weight_decay: nonnegative", weight_decay}, {"amsgrad: flag", false}, {"maximize: flag", false}, more,
  }
end

--- Adam (Kingma and Ba, 2015): steps by the mean of the gradient over the root of its mean square.
--- m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps), with
-- g += weight_decay p first (decoupled_weight_decay: as AdamW). With amsgrad the largest v so far replaces v.
--
--   optim.Adam(net:parameters(), {lr = 1e-3}):step()
local Adam = Optimizer:define_fused("Adam", options(0, {"decoupled_weight_decay: flag", false}))

Adam._lr_without_foreach = true -- a tensor as lr: as in PyTorch

--- Adam with decoupled weight decay: p *= 1 - lr weight_decay before the update.
--
--   optim.AdamW(net:parameters(), {lr = 1e-3})        -- weight_decay 0.01
local AdamW = Adam:define_fused("AdamW", options(0.01))

return {Adam = Adam, AdamW = AdamW}
