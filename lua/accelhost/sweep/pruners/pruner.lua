--- The base class of pruners.
---@param step number
---@param loss number
local class = require "accelhost.util.class"

---@field direction string "minimize" or "maximize": of the metric; losses are always minimised
local BasePruner = class.new "BasePruner"
BasePruner.takes_seed = false

--- The base class of custom pruners: it receives the trials' reports and decides which trials continue. By default all
--- continue.
--
--   local Impatient = accelhost.sweep.BasePruner:extend "Impatient"
--   function Impatient:judge(trial, step, loss) return step >= 3 and loss > 1 and "stop" or "continue" end
--   Impatient():setup():report({number = 0}, 3, 1.5)  --> stop
--
-- Its state is made by the calls alone: a study that is read from its file makes them again, in the order in which they
-- were recorded. Losses are better when they are lower.
function BasePruner:init() end

--- Pass it the study's settings, once, before any other call.
---@param study? {direction: string} "maximize" where losses are negated metrics
---@return table self
function BasePruner:setup(study)
  self.direction = study and study.direction or "minimize"
  return self
end

--- The bracket of a new trial, for pruners that have such; called once for each trial before it runs.
---@param trial table {number}
---@return integer? # from 0
function BasePruner:assign(trial) return nil end

--- Decide about a trial that has reported a loss.
---@param trial table {number, bracket}
---@return string # "continue", "stop" or "pause"; a paused trial continues when promote returns it
function BasePruner:report(trial, step, loss)
  self:record(trial, step, loss)
  return self:judge(trial, step, loss)
end

--- The part of report that remembers.
function BasePruner:record(trial, step, loss) end

--- The part of report that decides. Another pruner that wraps this one may record without asking it.
---@return string
function BasePruner:judge(trial, step, loss) return "continue" end

--- Report that a trial has ended.
---@param trial table {number, state = "complete" | "pruned" | "failed"}
---@param loss? number nil when it failed
function BasePruner:finish(trial, loss) end

--- Return a paused trial that shall resume now, nil when there is none. Called whenever a trial could be started.
---@return table? trial
function BasePruner:promote() return nil end

return BasePruner
