--- Adagrad and Adadelta.
local Optimizer = require "accelhost.optim.optimizer"

--- sum += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps).
---@class Adagrad: Optimizer
local Adagrad = Optimizer:extend "Adagrad"
Adagrad._kind = "Adagrad"

local spec = {{"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0}, {"eps", 1e-10},
  {"maximize", false}}

function Adagrad:init(params, ...)
  self:setup(params, self:read_options(spec, ...))
  -- As in PyTorch the state exists before the first gradient.
  for _, group in ipairs(self.param_groups) do
    for _, param in ipairs(group.params) do
      self.state[param] = {}
      self:init_state(self.state[param], param, group)
    end
  end
end

function Adagrad:init_state(state, param, group)
  state.step = state.step or self._new_step()
  state.sum = state.sum or self._zeros_like(param):fill_(group.initial_accumulator_value)
end

--- v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u = rho u + (1 - rho) d^2; p -= lr d.
---@class Adadelta: Optimizer
local Adadelta = Optimizer:extend "Adadelta"
Adadelta._kind = "Adadelta"

local delta_spec = {{"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", false}}

function Adadelta:init(params, ...)
  self:setup(params, self:read_options(delta_spec, ...))
end

function Adadelta:init_state(state, param)
  state.step = state.step or self._new_step()
  state.square_avg = state.square_avg or self._zeros_like(param)
  state.acc_delta = state.acc_delta or self._zeros_like(param)
end

return {Adagrad = Adagrad, Adadelta = Adadelta}
