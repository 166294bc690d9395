--- What every sampler is: it is told how trials ended and says which parameters the next one shall have.
--
-- A suggestion is a function of the seed, the trial's number, what was observed and what runs now, and of nothing else:
-- a study that is read from its file goes on as if it had never stopped. Losses are better when they are lower.
local class = require "accelhost.util.class"
local domain = require "accelhost.sweep.samplers.domain"
local options = require "accelhost.sweep.options"
local stream = require "accelhost.sweep.stream"

local Sampler = class.new "Sampler"

--- Make one from a table of options: `seed` and those of the class's `option_rows`.
---@param given? table<string, any>
function Sampler:init(given)
  options.read(self, given)
end

--- Tell it the space, once, before anything else.
---@param space table[] parameters {name, kind, low, high, log, step, choices, when}
---@return table self
function Sampler:setup(space)
  self.space = domain.read(space)
  return self
end

--- Tell it how a trial ended. Called once for each trial, in the order in which they ended.
---@param trial table {number, state, params, reports}
---@param loss? number what it reached, for a pruned trial what it reported last; nil when it failed
function Sampler:observe(trial, loss) end

--- The parameters of a trial.
---@param number integer of the trial, from 0
---@param running? table[] all trials that were given parameters and have not ended: running, paused and waiting ones;
--- a paused one has `loss`, what it reported last
---@param attempt? integer asks again, for other parameters, when those of the attempts before were known; default 0
---@return table<string, any>? # by name, those that are there; nil when the space is exhausted
function Sampler:suggest(number, running, attempt)
  return self:draw(self:stream(number, attempt))
end

--- The random numbers of a trial.
---@param number integer
---@param attempt? integer
---@return table
function Sampler:stream(number, attempt) return stream.new(self.seed, number, attempt) end

--- Parameters by chance: uniform on their scales, each independent of the others.
---@param draws table a stream
---@return table<string, any>
function Sampler:draw(draws)
  return domain.fill(self.space, function() return draws:uniform() end)
end

--- A loss as samplers compare them: NaN is as bad as can be.
---@param loss number
---@return number
function Sampler.comparable(loss) return loss == loss and loss or math.huge end

--- The last step that a trial reported, -1 when it reported none.
---@param trial table
---@return number
function Sampler.last_step(trial)
  local last = -1
  for _, report in ipairs(trial.reports or {}) do last = math.max(last, report.step) end
  return last
end

return Sampler
