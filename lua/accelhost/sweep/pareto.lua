--- Orders of trials with several losses: domination, fronts, crowding.
--
-- A point is a list of losses, lower is better. One dominates another if no loss is higher and one is lower.
-- Deb and others, A fast and elitist multiobjective genetic algorithm: NSGA-II, 2002:
-- https://doi.org/10.1109/4235.996017
---@param points number[][]
local ranking = require "accelhost.sweep.ranking"

local pareto = {}

--- Does a point dominate another?
---@param a number[]
---@param b number[]
function pareto.dominates(a, b)
  local lower = false
  for i = 1, #a do
    if a[i] > b[i] then return false end
    lower = lower or a[i] < b[i]
  end
  return lower
end

--- Return the front of each point: 1 if none dominates it, 2 if only points of front 1 do, and so on.
---@return integer[] fronts
function pareto.fronts(points)
  local count, dominators, dominated = #points, {}, {}
  for i = 1, count do dominators[i], dominated[i] = 0, {} end
  for i = 1, count do
    for k = i + 1, count do
      if pareto.dominates(points[i], points[k]) then
        dominators[k] = dominators[k] + 1
        table.insert(dominated[i], k)
      elseif pareto.dominates(points[k], points[i]) then
        dominators[i] = dominators[i] + 1
        table.insert(dominated[k], i)
      end
    end
  end
  local fronts, front, current = {}, 1, {}
  for i = 1, count do
    if dominators[i] == 0 then current[#current + 1] = i end
  end
  while #current > 0 do
    local following = {}
    for _, i in ipairs(current) do
      fronts[i] = front
      for _, k in ipairs(dominated[i]) do
        dominators[k] = dominators[k] - 1
        if dominators[k] == 0 then following[#following + 1] = k end
      end
    end
    front, current = front + 1, following
  end
  return fronts
end

--- Return the crowding distance of some points: the sum over the losses of the distance between both neighbours, in
--- parts of the range. The ends of each loss are infinitely far.
---@param members integer[] places in `points`
---@return table<integer, number> # by place
function pareto.crowding(points, members)
  local distance = {}
  for _, i in ipairs(members) do distance[i] = 0 end
  for loss = 1, #members > 0 and #points[members[1]] or 0 do
    local order = {unpack(members)}
    table.sort(order, function(a, b)
      if points[a][loss] ~= points[b][loss] then return points[a][loss] < points[b][loss] end
      return a < b
    end)
    local first, last = order[1], order[#order]
    local range = points[last][loss] - points[first][loss]
    distance[first], distance[last] = math.huge, math.huge
    for at = 2, #order - 1 do
      local span = points[order[at + 1]][loss] - points[order[at - 1]][loss]
      if range > 0 then distance[order[at]] = distance[order[at]] + span / range end
    end
  end
  return distance
end

--- Return the places of the best points: of lower fronts first, in a front the least crowded first, then the earlier.
function pareto.best(points, most)
  local fronts, members, order = pareto.fronts(points), {}, {}
  for i, front in ipairs(fronts) do
    members[front] = members[front] or {}
    table.insert(members[front], i)
  end
  for _, list in ipairs(members) do
    if #order >= most then break end
    local distance = pareto.crowding(points, list)
    table.sort(list, function(a, b)
      if distance[a] ~= distance[b] then return distance[a] > distance[b] end
      return a < b
    end)
    for _, i in ipairs(list) do
      if #order < most then order[#order + 1] = i end
    end
  end
  return order
end

--- Return the losses of a trial's values.
---@param values number[]
---@param directions string[] "minimize" or "maximize" for each
function pareto.losses(values, directions)
  local losses = {}
  for i, value in ipairs(values) do losses[i] = directions[i] == "maximize" and -value or value end
  return losses
end

--- Return the trials that have values, best first, and the number of those of the Pareto front, with which they begin:
--- by front, in a front by the first metric.
---@param trials table[] {number, state, values}
---@param directions string[]
---@return table[] ranked
---@return integer count of the front
function pareto.ranked(trials, directions)
  local list, points, front, count = {}, {}, {}, 0
  for _, trial in ipairs(trials) do
    if ranking.is_ranked(trial) and trial.values then
      list[#list + 1], points[#points + 1] = trial, pareto.losses(trial.values, directions)
    end
  end
  local first = {}
  for i, rank in ipairs(pareto.fronts(points)) do
    front[list[i]], first[list[i]] = rank, points[i][1]
    if rank == 1 then count = count + 1 end
  end
  table.sort(list, function(a, b)
    if front[a] ~= front[b] then return front[a] < front[b] end
    if first[a] ~= first[b] then return first[a] < first[b] end
    return a.number < b.number
  end)
  return list, count
end

return pareto
