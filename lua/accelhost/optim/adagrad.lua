--- Adagrad and Adadelta.
local Optimizer = require "accelhost.optim.optimizer"

--- Adagrad (Duchi et al., 2011): rates that fall with the sum of squared gradients.
--- sum += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps).
--
--   optim.Adagrad(net:parameters(), {lr = 0.01}):step()
local Adagrad = Optimizer:define_fused("Adagrad", {
  {"lr: nonnegative|tensor", 1e-2}, {"lr_decay: nonnegative", 0}, {"weight_decay: nonnegative", 0},
  {"initial_accumulator_value: nonnegative", 0}, {"eps: nonnegative", 1e-10}, {"maximize: flag", false},
})

function Adagrad:setup(...)
  Optimizer.setup(self, ...)
  -- As in PyTorch the state exists before the first gradient.
  for _, group in ipairs(self.param_groups) do
    for _, param in ipairs(group.params) do
      self.state[param] = {}
      self:init_state(self.state[param], param, group)
    end
  end
end

function Adagrad:init_state(state, param, group)
  state.step = state.step or self._new_scalar(0)
  state.sum = state.sum or self:_zeros_like(param):fill_(group.initial_accumulator_value)
end

--- Adadelta (Zeiler, 2012): steps as large as the mean of the last ones.
--- v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2; p -= lr d.
--
--   optim.Adadelta(net:parameters(), {lr = 1.0, rho = 0.9}):step()
local Adadelta = Optimizer:define_fused("Adadelta", {
  {"lr: nonnegative|tensor", 1}, {"rho: probability", 0.9}, {"eps: nonnegative", 1e-6},
  {"weight_decay: nonnegative", 0}, {"maximize: flag", false},
})

return {Adagrad = Adagrad, Adadelta = Adadelta}
