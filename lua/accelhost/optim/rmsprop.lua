--- RMSprop.
local Optimizer = require "accelhost.optim.optimizer"

--- RMSprop (Hinton, 2012): the gradient over the root of its mean square.
--- v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) + eps); centered subtracts the squared mean gradient from v;
-- with momentum the quotient goes through a buffer.
--
--   optim.RMSprop(net:parameters(), {lr = 0.01, momentum = 0.9}):step()
---@class RMSprop: Optimizer
local RMSprop = Optimizer:define_fused("RMSprop", {
  {"lr: nonnegative|tensor", 1e-2}, {"alpha: nonnegative", 0.99}, {"eps: nonnegative", 1e-8},
  {"weight_decay: nonnegative", 0}, {"momentum: nonnegative", 0}, {"centered: flag", false}, {"maximize: flag", false},
})

function RMSprop:init_state(state, param, group)
  state.step = state.step or self._new_scalar(0)
  state.square_avg = state.square_avg or self._zeros_like(param)
  if group.momentum > 0 then state.momentum_buffer = state.momentum_buffer or self._zeros_like(param) end
  if group.centered then state.grad_avg = state.grad_avg or self._zeros_like(param) end
end

return RMSprop
