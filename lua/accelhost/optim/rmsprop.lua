--- RMSprop.
local Optimizer = require "accelhost.optim.optimizer"

--- v = alpha v + (1 - alpha) g^2; p -= lr g / (sqrt(v) + eps); centered subtracts the squared mean gradient from v;
-- with momentum the quotient goes through a buffer.
---@class RMSprop: Optimizer
local RMSprop = Optimizer:extend "RMSprop"
RMSprop._kind = "RMSprop"

local spec = {{"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}, {"centered", false},
  {"maximize", false}}

function RMSprop:init(params, ...)
  self:setup(params, self:read_options(spec, ...))
end

function RMSprop:init_state(state, param, group)
  state.step = state.step or self._new_step()
  state.square_avg = state.square_avg or self._zeros_like(param)
  if group.momentum > 0 then state.momentum_buffer = state.momentum_buffer or self._zeros_like(param) end
  if group.centered then state.grad_avg = state.grad_avg or self._zeros_like(param) end
end

return RMSprop
