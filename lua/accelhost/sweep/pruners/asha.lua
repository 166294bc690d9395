--- Asynchronous successive halving, in one bracket or several.
local BasePruner = require "accelhost.sweep.pruners.pruner"
local Rungs = require "accelhost.sweep.pruners.rungs"
local arguments = require "accelhost.util.arguments"
local stream = require "accelhost.sweep.stream"

local ceil, floor, max = math.ceil, math.floor, math.max

local AshaPruner = BasePruner:extend "AshaPruner"
AshaPruner.takes_seed = true

local read = arguments.signature("AshaPruner", {
  {"min_resource: count|'auto'", 1}, {"max_resource: count"}, {"reduction_factor: count", 4},
  {"min_early_stopping_rate: size", 0}, {"brackets: count", 1}, {"bootstrap_count: size", 0},
  {"stop_instead_of_pause: flag", false}, {"seed: integer", 0},
})
--- Asynchronous successive halving: trials train up to rungs of `min_resource`, `min_resource` * `reduction_factor`,
--- ... steps, and of those that reach a rung the best 1 / `reduction_factor` continue. The others are paused; one of
--- them resumes from its checkpoint as soon as it is among the best, because worse ones have arrived, and those that
--- are paused in the end were not good enough; when no trial at all is complete, the best of them runs to its end.
--
--   local pruner = accelhost.sweep.AshaPruner{max_resource = 27}   -- pruner = {"asha", max_resource = 27}
--
-- A loss that is NaN stops a trial at its next rung. Li and others, A System for Massively Parallel Hyperparameter
-- Tuning, 2018: https://arxiv.org/abs/1810.05934
---@param min_resource? integer|string the first rung, default 1; "auto": a hundredth of the longest of the first
--- trials, which run to their ends
---@param max_resource? integer from here on trials are left alone
---@param min_early_stopping_rate? integer default 0: number of rungs that are left out
---@param brackets? integer default 1; of several, each begins a rung later and gets its part of the trials
---@param bootstrap_count? integer default 0: number of trials that must reach a rung before one continues
---@param stop_instead_of_pause? boolean default false; true: a trial that does not continue at once is stopped for
--- good. Nothing has to be kept, but good trials among the first are lost or bad ones kept
---@param seed? integer for brackets
function AshaPruner:init(...)
  self.min_resource, self.max_resource, self.reduction_factor, self.min_early_stopping_rate, self.brackets,
    self.bootstrap_count, self.stop_instead_of_pause, self.seed = read(...)
  if self.min_resource == "auto" and self.bootstrap_count > 0 then
    arguments.fail("%s: bootstrap_count needs a min_resource that is a number", self._name)
  end
  self:_begin()
end

-- Check the common options, and begin: no trial has reported.
function AshaPruner:_begin()
  if self.reduction_factor < 2 then
    arguments.fail("%s: reduction_factor: expected at least 2, got %s", self._name, self.reduction_factor)
  end
  if type(self.max_resource) == "number" and type(self.min_resource) == "number"
    and self.max_resource < self.min_resource then
    arguments.fail("%s: max_resource %s is below min_resource %s", self._name, self.max_resource, self.min_resource)
  end
  -- By number: the bracket of each trial, the last step of those that run; and the last step of the longest one.
  self.bracket_of, self.last, self.longest = {}, {}, nil
end

-- Return a bracket's number of trials in relation to others: many where they stop early. Li and others, Hyperband,
-- 2018: https://www.jmlr.org/papers/v18/16-558.html
local function budget_of(bracket, brackets, factor)
  local s = brackets - 1 - bracket
  return ceil(brackets * factor ^ s / (s + 1))
end

-- Return the number of brackets, once it is known.
function AshaPruner:_count_brackets() return self.brackets end

-- The brackets, made when the resources are known: from the start, or with the first complete trial.
local function brackets_of(self)
  if self.made then return self.made end
  if self.min_resource == "auto" then
    if not self.longest then return nil end
    self.min_resource = max(1, floor(self.longest / 100))
  end
  local count = self:_count_brackets()
  if not count then return nil end
  self.made = {budget = 0}
  for bracket = 0, count - 1 do
    local budget = budget_of(bracket, count, self.reduction_factor)
    self.made.budget = self.made.budget + budget
    self.made[bracket] = {budget = budget, rungs = Rungs {
      least = self.min_resource * self.reduction_factor ^ (self.min_early_stopping_rate + bracket),
      factor = self.reduction_factor, most = self.max_resource, bootstrap = self.bootstrap_count,
      stops = self.stop_instead_of_pause,
    }}
  end
  self.made.count = count
  return self.made
end

function AshaPruner:assign(trial)
  local made = brackets_of(self)
  if not made then return nil end
  local left, bracket = stream.new(self.seed, trial.number, 1):below(made.budget), 0
  while left >= made[bracket].budget do
    left, bracket = left - made[bracket].budget, bracket + 1
  end
  return bracket
end

-- The rungs of a trial: those of the bracket that it was given, for one that began before there were brackets those
-- that it would get now.
local function rungs_of(self, trial)
  local made = brackets_of(self)
  if not made then return nil end
  local bracket = self.bracket_of[trial.number]
  if not bracket then
    bracket = trial.bracket or self:assign(trial)
    self.bracket_of[trial.number] = bracket
  end
  return made[bracket].rungs
end

function AshaPruner:record(trial, step, loss)
  self.last[trial.number] = max(self.last[trial.number] or 0, step)
end

function AshaPruner:judge(trial, step, loss)
  local rungs = rungs_of(self, trial)
  return rungs and rungs:report(trial, step, loss) or "continue"
end

function AshaPruner:finish(trial, loss)
  local last = self.last[trial.number]
  if last and trial.state == "complete" then self.longest = max(self.longest or 0, last) end
  self.last[trial.number] = nil
  if self.made then rungs_of(self, trial):finish(trial.number) end
end

function AshaPruner:promote()
  for bracket = 0, self.made and self.made.count - 1 or -1 do
    local trial = self.made[bracket].rungs:promote()
    if trial then return trial end
  end
  return nil
end

return AshaPruner
