--- Shared by schedules that cycle the momentum. Adam's momentum is betas[1].
local arguments = require "accelhost.util.arguments"

local momentum = {}

--- Set the momentum of a group.
---@param group table
---@param value number
function momentum.set(group, value)
  if group.betas then
    group.betas = {value, group.betas[2]}
  else
    group.momentum = value
  end
end

--- Read base_momentum and max_momentum of a scheduler, one per group, and set the momenta to start from.
---@param starts boolean
---@return number[] bases
---@return number[] highs
function momentum.start(scheduler, starts)
  local defaults = scheduler.optimizer.defaults
  if defaults.momentum == nil and defaults.betas == nil then
    arguments.fail("%s: cycle_momentum needs an optimizer with momentum or betas; pass cycle_momentum = false",
      scheduler._name)
  end
  local bases = scheduler:per_group("base_momentum", scheduler.base_momentum)
  local highs = scheduler:per_group("max_momentum", scheduler.max_momentum)
  for i, group in ipairs(starts and scheduler.optimizer.param_groups or {}) do
    momentum.set(group, highs[i])
    group.base_momentum, group.max_momentum = bases[i], highs[i]
  end
  return bases, highs
end

return momentum
