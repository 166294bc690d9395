--- ASGD and Rprop.
local C = require "accelhost._C"
local Optimizer = require "accelhost.optim.optimizer"

--- Averaged stochastic gradient descent (Polyak and Juditsky, 1992): p = (1 - lambd eta) p - eta g, with
-- eta = lr / (1 + lambd lr t)^alpha. state[p].ax is p until step t0 and from there the mean of the p since.
--
--   optim.ASGD(net:parameters(), {lr = 1e-2, t0 = 1000})
local ASGD = Optimizer:define_fused("ASGD", {
  {"lr: nonnegative|tensor", 1e-2}, {"lambd: nonnegative", 1e-4}, {"alpha: nonnegative", 0.75}, {"t0: number", 1e6},
  {"weight_decay: nonnegative", 0}, {"maximize: flag", false},
})

function ASGD:init_state(state, param, group)
  Optimizer.init_state(self, state, param, group)
  state.eta = state.eta or self._new_scalar(C.is_tensor(group.lr) and group.lr:item() or group.lr)
  state.mu = state.mu or self._new_scalar(1)
end

--- Resilient propagation (Riedmiller and Braun, 1993), for whole-batch gradients: only their signs count. A weight's
-- step size starts at lr, grows by etas[2] while the sign stays and shrinks by etas[1] when it changes (then the weight
-- rests), within step_sizes.
--
--   optim.Rprop(net:parameters(), {lr = 1e-2, etas = {0.5, 1.2}, step_sizes = {1e-6, 50}})
local Rprop = Optimizer:define_fused("Rprop", {
  {"lr: nonnegative|tensor", 1e-2}, {"etas: any", {0.5, 1.2}}, {"step_sizes: any", {1e-6, 50}},
  {"maximize: flag", false},
})

function Rprop:init_state(state, param, group)
  if not state.step_size then
    local lr = C.is_tensor(group.lr) and group.lr:item() or group.lr
    state.step_size = self:_zeros_like(param):fill_(lr)
  end
  Optimizer.init_state(self, state, param, group)
end

return {ASGD = ASGD, Rprop = Rprop}
