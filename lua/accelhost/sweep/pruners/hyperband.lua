--- Hyperband: successive halving from several first rungs.
local AshaPruner = require "accelhost.sweep.pruners.asha"
local arguments = require "accelhost.util.arguments"

local HyperbandPruner = AshaPruner:extend "HyperbandPruner"

local read = arguments.signature("HyperbandPruner", {
  {"min_resource: count", 1}, {"max_resource: count|'auto'", "auto"}, {"reduction_factor: count", 3},
  {"bootstrap_count: size", 0}, {"stop_instead_of_pause: flag", false}, {"seed: integer", 0},
})
--- As many brackets of asynchronous successive halving as there are powers of `reduction_factor` between `min_resource`
--- and `max_resource`, from one that stops most trials after `min_resource` to one that stops none: for losses of which
--- it is unknown how early they predict the final loss of a trial.
--
--   local pruner = accelhost.sweep.HyperbandPruner{max_resource = 81}   -- pruner = {"hyperband", max_resource = 81}
--
-- Brackets get trials in the parts of the paper. Li and others, Hyperband: A Novel Bandit-Based Approach to
-- Hyperparameter Optimization, 2018: https://www.jmlr.org/papers/v18/16-558.html
---@param max_resource? integer|string "auto" (default): one more than the last step of the first complete trial; until
--- then all continue
---@param bootstrap_count? integer as AshaPruner's
---@param stop_instead_of_pause? boolean as AshaPruner's
---@param seed? integer for brackets
function HyperbandPruner:init(...)
  self.min_resource, self.max_resource, self.reduction_factor, self.bootstrap_count, self.stop_instead_of_pause,
    self.seed = read(...)
  self.min_early_stopping_rate = 0
  self:_begin()
end

function HyperbandPruner:_count_brackets()
  if self.max_resource == "auto" then
    if not self.longest then return nil end
    self.max_resource = self.longest + 1
  end
  local count, resource = 1, self.min_resource * self.reduction_factor
  while resource <= self.max_resource do
    count, resource = count + 1, resource * self.reduction_factor
  end
  return count
end

return HyperbandPruner
