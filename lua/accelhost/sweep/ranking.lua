--- The ranking of configurations: by the value of a single run, or for several runs by the bound mean + s / sqrt(n) of
--- the losses (s: their standard deviation), which another run is unlikely to exceed.
local ranking = {}

local ended = {complete = true, pruned = true, failed = true}

--- Will a trial run no more?
function ranking.has_ended(trial) return ended[trial.state] == true end

--- Does a trial take part in the ranking: complete, with parameters that satisfy the constraints?
function ranking.is_ranked(trial) return trial.state == "complete" and not trial.violation end

--- Return the mean and spread of the complete trials of a configuration.
---@param group table {leader, trials}
---@param sign integer 1 when lower values are better, else -1
---@return table? # {leader, trials, count, mean, spread, bound}: of values, bound of losses; nil without a complete one
function ranking.of_group(group, sign)
  local sum, count = 0, 0
  for _, trial in ipairs(group.trials) do
    if trial.state == "complete" then sum, count = sum + trial.value, count + 1 end
  end
  if count == 0 then return nil end
  local mean, squares = sum / count, 0
  for _, trial in ipairs(group.trials) do
    if trial.state == "complete" then squares = squares + (trial.value - mean) ^ 2 end
  end
  local spread = count > 1 and math.sqrt(squares / (count - 1)) or 0
  return {leader = group.leader, trials = group.trials, count = count, mean = mean, spread = spread,
    bound = sign * mean + spread / math.sqrt(count)}
end

--- Is one configuration better than another? Of equal ones the earlier is.
---@param one table of ranking.of_group
---@param other table?
function ranking.is_better(one, other)
  if not other or one.bound ~= other.bound then return not other or one.bound < other.bound end
  return one.leader.number < other.leader.number
end

return ranking
