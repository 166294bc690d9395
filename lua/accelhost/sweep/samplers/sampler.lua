--- The base class of samplers.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local domain = require "accelhost.sweep.samplers.domain"
local stream = require "accelhost.sweep.stream"

---@field space table parameters, parents first, and groups of those with the same condition
---@field seed integer
local BaseSampler = class.new "BaseSampler"

local read = arguments.signature("BaseSampler", {{"seed: integer", 0}})
--- The base class of custom samplers: it receives the trials' results and suggests the next trial's parameters. By
--- default it draws them at random.
--
--   local Middle = accelhost.sweep.BaseSampler:extend "Middle"
--   function Middle:suggest(number, running, attempt)
--     local params = self:draw(self:stream(number, attempt))
--     params.lr = 0.01
--     return params
--   end
--   local sampler = Middle{seed = 3}:setup{{name = "lr", kind = "float", low = 1e-4, high = 1, log = true}}
--   sampler:suggest(0).lr  --> 0.01
--
-- A suggestion is a function of the seed, the trial's number, the observed and the running trials, and of nothing else:
-- a study that is read from its file continues as if it had never stopped. Losses are better when they are lower.
---@param seed? integer default 0; a study passes its own
function BaseSampler:init(...) self.seed = read(...) end

--- Pass it the space, once, before any other call.
---@param space table[] parameters {name, kind, low, high, log, step, choices, when}
---@return table self
function BaseSampler:setup(space)
  self.space = domain.read(space)
  return self
end

--- Report a trial's result. Called once for each trial, in the order in which they ended.
---@param trial table {number, state, params, reports}
---@param loss? number its loss, for a pruned trial the last one that it reported; nil when it failed
---@param losses? number[] of a complete trial of a study with several metrics: the loss of each
function BaseSampler:observe(trial, loss, losses) end

--- The parameters of a trial.
---@param number integer of the trial, from 0
---@param running? table[] all trials that were given parameters and have not ended: running, paused and waiting ones;
--- a paused one has `loss`, the last one that it reported
---@param attempt? integer asks again, for other parameters, when those of the attempts before were known; default 0
---@return table<string, any>? # by name, those that are there; nil when the space is exhausted
function BaseSampler:suggest(number, running, attempt)
  return self:draw(self:stream(number, attempt))
end

--- Learn that suggested parameters break a constraint of the definition.
---@param params table<string, any>
---@return boolean # true when they will not be suggested again, however often it is asked
function BaseSampler:skip(params) return false end

--- The random numbers of a trial.
---@param attempt? integer
---@return table
function BaseSampler:stream(number, attempt) return stream.new(self.seed, number, attempt) end

--- Parameters by chance: uniform on their scales, each independent of the others.
---@param draws table a stream
---@return table<string, any>
function BaseSampler:draw(draws)
  return domain.fill(self.space, function() return draws:uniform() end)
end

return BaseSampler
