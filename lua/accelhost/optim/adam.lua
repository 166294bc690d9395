--- Adam and AdamW.
local Optimizer = require "accelhost.optim.optimizer"

--- m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps), with
-- g += weight_decay p first. With amsgrad the largest v so far takes v's place.
---@class Adam: Optimizer
local Adam = Optimizer:extend "Adam"
Adam._kind = "Adam"

local function spec(weight_decay)
  return {{"lr", 1e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", weight_decay}, {"amsgrad", false},
    {"maximize", false}}
end

local adam_spec, adamw_spec = spec(0), spec(0.01)

function Adam:init(params, ...)
  self:setup(params, self:read_options(adam_spec, ...))
end

function Adam:init_state(state, param, group)
  state.step = state.step or self._new_step()
  state.exp_avg = state.exp_avg or self._zeros_like(param)
  state.exp_avg_sq = state.exp_avg_sq or self._zeros_like(param)
  if group.amsgrad then state.max_exp_avg_sq = state.max_exp_avg_sq or self._zeros_like(param) end
end

--- Adam with decoupled weight decay: p *= 1 - lr weight_decay before the update.
--
--   optim.AdamW(net:parameters(), {lr = 1e-3})        -- weight_decay 0.01
---@class AdamW: Optimizer
local AdamW = Adam:extend "AdamW"
AdamW._kind = "AdamW"

function AdamW:init(params, ...)
  self:setup(params, self:read_options(adamw_spec, ...))
end

return {Adam = Adam, AdamW = AdamW}
