--- Stochastic gradient descent with momentum.
local C = require "accelhost._C"
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"

--- Stochastic gradient descent, with momentum if wanted.
--- g += weight_decay p; buf = momentum buf + (1 - dampening) g (the first time: g); p -= lr buf (nesterov:
-- lr (g + momentum buf)).
--
--   optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local SGD = Optimizer:define_fused("SGD", {
  {"lr: nonnegative|tensor", 1e-3}, {"momentum: nonnegative", 0}, {"dampening: number", 0},
  {"weight_decay: nonnegative", 0}, {"nesterov: flag", false}, {"maximize: flag", false},
})

function SGD:check_group(group)
  Optimizer.check_group(self, group)
  if group.nesterov and (group.momentum <= 0 or group.dampening ~= 0) then
    arguments.fail("SGD: nesterov needs a momentum and no dampening")
  end
end

--- The buffer is filled by the first step.
function SGD.init_state(_, state, param)
  if state.momentum_buffer then return false end
  state.momentum_buffer = C.empty_like(param)
  return true
end

return SGD
