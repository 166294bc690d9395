--- One bracket of successive halving: rungs at `least`, `least` * `factor`, ... of the resource, at each of which a
--- trial continues when it is among the best 1 / factor of all that reached it.
--
-- Asynchronous: a trial is judged when it arrives, against those that arrived before. One that is not good enough yet
-- waits, and continues when enough worse ones have arrived. Or, where trials do not wait, it is stopped; then the best
-- of the first ones continues, since none could otherwise.
local class = require "accelhost.util.class"

local floor = math.floor
local Rungs = class.new "Rungs"

--- Make one.
---@param options {least: number, factor: number, most: number?, bootstrap: integer?, stops: boolean?} `most`: trials
--- that reach it are not judged any more; `bootstrap`: number of trials that must reach a rung before one continues
function Rungs:init(options)
  self.least, self.factor, self.most = options.least, options.factor, options.most or math.huge
  self.bootstrap, self.stops = options.bootstrap or 0, options.stops or false
  -- By rung, from 0, the losses reported there, best first: {loss, trial = the one that waits for more}. By number the
  -- next rung of a trial, and its entry while it waits.
  self.lists, self.next, self.waiting = {}, {}, {}
end

-- The place of an entry after all that are as good.
local function insert(list, entry)
  local low, high = 1, #list + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if list[middle].loss <= entry.loss then low = middle + 1 else high = middle end
  end
  table.insert(list, low, entry)
  return low
end

-- May the entry at a place continue to the next rung?
local function is_good(self, list, place)
  if #list <= self.bootstrap then return false end
  local count = floor(#list / self.factor)
  if self.stops then return list[place].loss <= list[math.max(1, count)].loss end
  return place <= count
end

--- Decide about a trial that reports: "continue", "pause" or "stop".
---@param trial table {number}
---@param step number
---@param loss number
function Rungs:report(trial, step, loss)
  local number = trial.number
  while true do
    local rung = self.next[number] or 0
    local resource = self.least * self.factor ^ rung
    if step < resource or resource >= self.most then return "continue" end
    if loss ~= loss then return "stop" end
    local list, entry = self.lists[rung] or {}, {loss = loss}
    self.lists[rung], self.next[number] = list, rung + 1
    if not is_good(self, list, insert(list, entry)) then
      if self.stops then return "stop" end
      entry.trial, self.waiting[number] = trial, entry
      return "pause"
    end
  end
end

--- A trial has ended: it waits no longer.
function Rungs:finish(number)
  local entry = self.waiting[number]
  if entry then entry.trial, self.waiting[number] = nil, nil end
end

--- Return a waiting trial that may continue: of the highest rung that has one, the best.
---@return table? trial
function Rungs:promote()
  for rung = #self.lists, 0, -1 do
    local list = self.lists[rung] or {}
    for i = 1, #list > self.bootstrap and floor(#list / self.factor) or 0 do
      local trial = list[i].trial
      if trial then
        self:finish(trial.number)
        return trial
      end
    end
  end
  return nil
end

return Rungs
