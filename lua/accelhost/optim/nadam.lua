--- NAdam, RAdam and Adamax: Adam's kin.
local Optimizer = require "accelhost.optim.optimizer"

local function options(lr, more)
  local rows = {
    {"lr: nonnegative|tensor", lr}, {"betas: any", {0.9, 0.999}}, {"eps: nonnegative", 1e-8},
    {"weight_decay: nonnegative", 0},
  }
  for _, row in ipairs(more) do rows[#rows + 1] = row end
  rows[#rows + 1] = {"maximize: flag", false}
  return rows
end

--- Adam with Nesterov momentum (Dozat, 2016): mu_t = b1 (1 - 0.96^(t momentum_decay) / 2), and with M the product of
-- all mu so far, p -= lr ((1 - mu_t) / (1 - M_t) g + mu_{t+1} / (1 - M_{t+1}) m) / (sqrt(v / (1 - b2^t)) + eps).
--
--   optim.NAdam(net:parameters(), {lr = 2e-3, weight_decay = 0.01, decoupled_weight_decay = true})
local NAdam = Optimizer:define_fused("NAdam", options(2e-3, {
  {"momentum_decay: nonnegative", 4e-3}, {"decoupled_weight_decay: flag", false},
}))

function NAdam:init_state(state, param, group)
  Optimizer.init_state(self, state, param, group)
  state.mu_product = state.mu_product or self._new_scalar(1)
end

--- Adam that waits with the division by sqrt(v) until its variance is known (Liu et al., 2020): with
-- n = 2 / (1 - b2) - 1 and l = n - 2 t b2^t / (1 - b2^t), while l <= 5: p -= lr m / (1 - b1^t), and afterwards that
-- times sqrt(1 - b2^t) / (sqrt(v) + eps) sqrt((l - 4) (l - 2) n / ((n - 4) (n - 2) l)).
--
--   optim.RAdam(net:parameters(), {lr = 1e-3})
local RAdam = Optimizer:define_fused("RAdam", options(1e-3, {{"decoupled_weight_decay: flag", false}}))

--- Adam with the largest gradient in place of the mean square (Kingma and Ba, 2014): u = max(b2 u, |g| + eps);
-- p -= lr / (1 - b1^t) m / u.
--
--   optim.Adamax(net:parameters())                    -- lr 2e-3
local Adamax = Optimizer:define_fused("Adamax", options(2e-3, {}))

return {NAdam = NAdam, RAdam = RAdam, Adamax = Adamax}
