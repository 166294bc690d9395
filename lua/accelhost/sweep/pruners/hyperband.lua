--- Hyperband: as many brackets of asynchronous successive halving as there are powers of `reduction_factor` between
--- `min_resource` and `max_resource`, from one that stops most trials after `min_resource` to one that stops none. It
--- is for losses of which nobody knows how early they tell what a trial will be worth. Brackets get trials in the
--- parts of the paper. A max_resource of "auto" is one more than the last step of the first complete trial; until then
--- all go on.
-- Li and others, Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, 2018:
-- https://www.jmlr.org/papers/v18/16-558.html
local AshaPruner = require "accelhost.sweep.pruners.asha"

local HyperbandPruner = AshaPruner:extend "HyperbandPruner"

HyperbandPruner.option_rows = {
  {"min_resource", "count", 1}, {"max_resource", "count|'auto'", "auto"}, {"reduction_factor", "count", 3},
  {"bootstrap_count", "size", 0}, {"stop_instead_of_pause", "flag", false},
}
HyperbandPruner.min_early_stopping_rate = 0

function HyperbandPruner:count_brackets()
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
