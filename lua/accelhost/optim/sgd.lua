--- Stochastic gradient descent with momentum.
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"
local C = require "accelhost._C"

--- g += weight_decay p; buf = momentum buf + (1 - dampening) g (the first time: g); p -= lr buf (nesterov:
-- lr (g + momentum buf)).
--
--   optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
---@class SGD: Optimizer
local SGD = Optimizer:extend "SGD"
SGD._kind = "SGD"

local spec = {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", false},
  {"maximize", false}}

function SGD:init(params, ...)
  self:setup(params, self:read_options(spec, ...))
end

function SGD:check_group(group)
  Optimizer.check_group(self, group)
  if group.nesterov and (group.momentum <= 0 or group.dampening ~= 0) then
    arguments.fail("SGD: nesterov needs a momentum and no dampening")
  end
end

--- The buffer is filled by the first step; true says that it is fresh.
function SGD.init_state(_, state, param)
  if state.momentum_buffer then return false end
  state.momentum_buffer = C.empty_like(param)
  return true
end

return SGD
