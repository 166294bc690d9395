--- What every pruner is: it is told what trials report and says which shall go on.
--
-- Its state is made by the calls alone: a study that is read from its file makes them again, in the order in which they
-- were recorded. Losses are better when they are lower. By itself a pruner lets everything go on.
local class = require "accelhost.util.class"
local options = require "accelhost.sweep.options"

local Pruner = class.new "Pruner"

--- Make one from a table of options: `seed` and those of the class's `option_rows`.
---@param given? table<string, any>
function Pruner:init(given)
  options.read(self, given)
end

--- Tell it about the study, once, before anything else.
---@param study? {direction: string} "maximize" where losses are negated metrics
---@return table self
function Pruner:setup(study)
  self.direction = study and study.direction or "minimize"
  return self
end

--- The bracket of a new trial, for pruners that have such; called once for each trial before it runs.
---@param trial table {number}
---@return integer? # from 0
function Pruner:assign(trial) return nil end

--- What a trial shall do that has reported a loss.
---@param trial table {number, bracket}
---@param step number
---@param loss number
---@return string # "continue", "stop" or "pause"; a paused trial goes on when promote gives it back
function Pruner:report(trial, step, loss)
  self:record(trial, step, loss)
  return self:judge(trial, step, loss)
end

--- The part of report that remembers.
---@param trial table
---@param step number
---@param loss number
function Pruner:record(trial, step, loss) end

--- The part of report that decides. Another pruner that wraps this one may record without asking it.
---@param trial table
---@param step number
---@param loss number
---@return string
function Pruner:judge(trial, step, loss) return "continue" end

--- Tell it that a trial has ended.
---@param trial table {number, state = "complete" | "pruned" | "failed"}
---@param loss? number nil when it failed
function Pruner:finish(trial, loss) end

--- A paused trial that shall go on now, nil when there is none. To be asked whenever a trial could be started.
---@return table? trial
function Pruner:promote() return nil end

return Pruner
