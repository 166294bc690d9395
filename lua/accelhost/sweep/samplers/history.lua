--- A sampler's observations: the positions of every trial's parameters, by parameter, and how the trials ended. Trials
--- are kept by their numbers, so that the order in which they ended does not matter. A trial that runs has not ended
--- and is never good.
local class = require "accelhost.util.class"
local domain = require "accelhost.sweep.samplers.domain"
local new_table = require "table.new"
local outcome = require "accelhost.sweep.outcome"
local pareto = require "accelhost.sweep.pareto"

local ceil, floor, min = math.ceil, math.floor, math.min
local nan = 0 / 0

local History = class.new "History"

--- Empty.
---@param space table from domain.read
function History:init(space)
  self.space, self.count, self.ended = space, 0, 0
  -- By trial, in the order of arrival: its number, its outcome (false while it runs) and, for each parameter, its
  -- position.
  self.numbers, self.outcomes, self.columns = {}, {}, {}
  self.losses = {} -- of trials with several
  -- Trials by number; by parameter those that are sorted by place, and the number of trials from which they were made.
  self.by_number, self.sorted = {}, {}
  self.ranking = {upto = 0, most = 0}
  for _, parameter in ipairs(space.parameters) do
    self.columns[parameter.name], self.sorted[parameter.name] = {}, {upto = 0}
  end
end

local function place_in(list, count, is_after)
  local low, high = 1, count + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if is_after(list[middle]) then high = middle else low = middle + 1 end
  end
  return low
end

local function set_trial(self, trial, loss, losses)
  self.count = self.count + 1
  local id = self.count
  self.numbers[id], self.outcomes[id] = trial.number, loss and outcome.of(trial, loss) or false
  self.losses[id] = losses
  if loss then self.ended = self.ended + 1 end
  for _, parameter in ipairs(self.space.parameters) do
    local value = trial.params[parameter.name]
    local place = value ~= nil and (parameter.choices and domain.index_of(parameter, value)
      or not parameter.choices and domain.place_of(parameter, value))
    self.columns[parameter.name][id] = place or nan
  end
  local numbers = self.numbers
  local at = place_in(self.by_number, id - 1, function(other) return numbers[other] > trial.number end)
  table.insert(self.by_number, at, id)
end

--- Add a trial that has ended with a loss.
---@param loss number
---@param losses? number[] of several metrics
function History:add(trial, loss, losses)
  set_trial(self, trial, loss, losses)
end

--- Run fn while trials that have not ended count too. A paused one counts as a pruned one by the `loss` that it
--- reported last.
---@param running? table[]
---@param fn fun(): any
---@return any # the results of fn
function History:with(running, fn)
  local count, ended = self.count, self.ended
  for _, trial in ipairs(running or {}) do
    set_trial(self, trial, trial.state == "paused" and trial.loss)
  end
  local fine, result = pcall(fn)
  for i = #self.by_number, 1, -1 do
    if self.by_number[i] > count then table.remove(self.by_number, i) end
  end
  self.count, self.ended = count, ended
  if not fine then error(result, 0) end
  return result
end

-- Return the best `most` trials, the best first; `ranking` has the best of the first `upto` trials.
local function ranked(self, ranking, most)
  local list, outcomes = {upto = self.count, most = most}, self.outcomes
  for i = 1, #ranking do list[i] = ranking[i] end
  local function is_better(a, b) return outcome.is_better(outcomes[a], outcomes[b]) end
  for id = ranking.upto + 1, self.count do
    if outcomes[id] and most > 0 and (#list < most or is_better(id, list[#list])) then
      table.insert(list, place_in(list, #list, function(other) return is_better(id, other) end), id)
      list[most + 1] = nil
    end
  end
  return list
end

-- The same by several losses: the trials of the lowest fronts.
local function best_by_fronts(self, most)
  local points, ids, best = {}, {}, {}
  for id = 1, self.count do
    if self.losses[id] then points[#points + 1], ids[#ids + 1] = self.losses[id], id end
  end
  for _, i in ipairs(pareto.best(points, min(most, ceil(0.1 * self.ended)))) do best[ids[i]] = true end
  return best
end

--- The best tenth of the trials that have ended, at most `most` of them.
---@return table<integer, boolean> # trial -> true
function History:best(most)
  if next(self.losses) then return best_by_fronts(self, most) end
  if self.ranking.most ~= most then self.ranking = {upto = 0, most = most} end
  local best, list = {}, ranked(self, self.ranking, most)
  for i = 1, min(ceil(0.1 * self.ended), #list) do best[list[i]] = true end
  return best
end

-- Trials sorted by their position in a column. Those added since the last call are sorted and merged, since sorting all
-- would be most of the time of a suggestion.
local function sorted_by(self, name)
  local column, sorted = self.columns[name], self.sorted[name]
  local function before(a, b)
    if column[a] ~= column[b] then return column[a] < column[b] end
    return a < b
  end
  local fresh, merged = {}, {upto = sorted.upto}
  for id = sorted.upto + 1, self.count do
    if column[id] == column[id] then fresh[#fresh + 1] = id end
  end
  if #fresh == 0 then return sorted end
  table.sort(fresh, before)
  local i, k = 1, 1
  for at = 1, #sorted + #fresh do
    if k > #fresh or sorted[i] and before(sorted[i], fresh[k]) then
      merged[at], i = sorted[i], i + 1
    else
      merged[at], k = fresh[k], k + 1
    end
  end
  return merged
end

--- Sort the ended trials for good; to be called while only trials that have ended count.
function History:settle()
  self.ranking = ranked(self, self.ranking, self.ranking.most)
  for _, parameter in ipairs(self.space.parameters) do
    if not parameter.choices and self.sorted[parameter.name].upto < self.count then
      self.sorted[parameter.name] = sorted_by(self, parameter.name)
      self.sorted[parameter.name].upto = self.count
    end
  end
end

-- The kernels of a part by place: a small part is sorted, a large one picked from all trials.
local function order_of(self, name, places, kernel_of, n)
  local order, count = new_table(n, 0), 0
  if n < 100 then
    for k = 1, n do order[k] = k end
    table.sort(order, function(a, b) return places[a] < places[b] or places[a] == places[b] and a < b end)
    return order
  end
  local sorted = sorted_by(self, name)
  for i = 1, #sorted do
    local k = kernel_of[sorted[i]]
    if k then
      count = count + 1
      order[count] = k
    end
  end
  return order
end

--- The trials that have all of some parameters and are among the best, or are not, by number: the input of a Parzen
--- estimator.
---@param parameters table[]
---@param best table<integer, boolean>
---@param wanted boolean the best ones?
---@return (number[])[] places for each parameter
---@return (integer[])[] orders for each number
---@return integer n
function History:part(parameters, best, wanted)
  local places, orders, kernel_of, n = {}, {}, new_table(self.count, 0), 0
  for i in ipairs(parameters) do places[i] = new_table(wanted and 0 or self.count + 1, 0) end
  for _, id in ipairs(self.by_number) do
    local whole = (best[id] or false) == wanted
    for i = 1, whole and #parameters or 0 do
      local place = self.columns[parameters[i].name][id]
      whole = whole and place == place
      places[i][n + 1] = place
    end
    if whole then
      n = n + 1
      kernel_of[id] = n
    end
  end
  for i, parameter in ipairs(parameters) do
    places[i][n + 1] = nil
    if not parameter.choices then orders[i] = order_of(self, parameter.name, places[i], kernel_of, n) end
  end
  return places, orders, n
end

return History
