--- A study: the next trial to run, the trials' reports and outcomes; saved in its store and restored from it.
--
-- Every report to samplers and pruners is an event of the store, and reading a study replays the same reports in
-- the same order: a suggestion is a function of the seed and of the events before it. Nothing here starts a process.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local json = require "accelhost.util.json"
local pareto = require "accelhost.sweep.pareto"
local pruners = require "accelhost.sweep.pruners"
local ranking = require "accelhost.sweep.ranking"
local reports = require "accelhost.sweep.reports"
local samplers = require "accelhost.sweep.samplers"
local spans = require "accelhost.sweep.spans"

local NAN = 0 / 0
-- The number of times that a sampler is asked again when it suggests parameters that were already tried.
local ATTEMPTS = 8
-- The number of times that a sampler is asked for parameters that satisfy the constraints, and the number of times that
-- they are drawn at random after that.
local REJECTIONS, DRAWS = 100, 10000

---@field trials table[] by number + 1
local Study = class.new "Study"

--- Continue the study of a store.
function Study:init(definition, store)
  self.definition, self.store, self.space = definition, store, definition.space
  self.sampler = samplers.new(definition.sampler, definition.seed):setup(self.space.parameters)
  self.pruner = pruners.new(definition.pruner or "none", definition.seed)
    :setup {direction = definition.direction}
  self.has_pruner = definition.pruner ~= nil
  self.sign = definition.direction == "maximize" and -1 or 1
  self.metrics = definition.metrics
  self.trials, self.groups, self.tried, self.seen = {}, {}, {}, {}
  self.endings, self.failures = 0, {}
  self:_read()
end

-- A value as samplers and pruners see it.
function Study:_loss(value) return value and self.sign * value end

-- The values of several metrics as samplers see them; nil for a trial without them.
function Study:_losses(trial)
  if not self.metrics or trial.state ~= "complete" then return nil end
  return pareto.losses(trial.values, self.definition.directions)
end

-- Keep the last value of each of several metrics that a trial reports, at whichever step.
function Study:_keep_values(trial, metrics)
  for _, name in ipairs(self.metrics or {}) do
    if metrics[name] ~= nil then
      trial.last = trial.last or {}
      trial.last[name] = metrics[name]
    end
  end
end

local function last_value(trial)
  local last = trial.reports[#trial.reports]
  return last and last.value
end

-- Updates of samplers and pruners by an event, when it happens or when it is read.

function Study:_enter(trial)
  self.trials[trial.number + 1] = trial
  trial.violation = self.space:violation(trial.params)
  local group = self.groups[trial.group + 1]
  if not group then
    group = {number = trial.group, leader = trial, trials = {}}
    self.groups[trial.group + 1] = group
    self.tried[self.space:key(trial.params)] = true
  end
  group.trials[#group.trials + 1] = trial
  self.seen[trial] = {}
end

function Study:_apply_report(trial, step, value)
  if reports.add(trial, step, value) then
    self.seen[trial] = {}
    for _, kept in ipairs(trial.reports) do self.seen[trial][kept.step] = true end
  end
  trial.loss = self:_loss(value) -- the value that samplers read of a paused one
  self.seen[trial][step] = true
  if trial.replicate > 0 or trial.released then return "continue" end
  return self.pruner:report(trial, step, self:_loss(value))
end

-- Report a group to the sampler when all its trials have ended.
function Study:_observe(group)
  local leader = group.leader
  if #group.trials < self.definition.replicates and leader.state == "complete" then return end
  for _, trial in ipairs(group.trials) do
    if not ranking.has_ended(trial) then return end
  end
  local value = leader.value
  if leader.state == "complete" then value = ranking.of_group(group, 1).mean end
  group.observed = true
  local found = ranking.of_group(group, self.sign)
  if found and not leader.violation and ranking.is_better(found, self._best) then self._best = found end
  if not group.valued then self.sampler:observe(leader, self:_loss(value), self:_losses(leader)) end
  group.valued = group.valued or value ~= nil
end

function Study:_apply_end(trial, state, value)
  trial.state, trial.value = state, value
  if trial.replicate == 0 then self.pruner:finish(trial, self:_loss(value)) end
  self:_observe(self.groups[trial.group + 1])
end

local function apply_promotion(self, trial)
  local promoted = self.pruner:promote()
  if promoted ~= trial then
    arguments.fail("'%s': trial %d was promoted, and now it would be %s: the pruner is another one", self.store.path,
      trial.number, promoted and promoted.number or "none")
  end
end

-- A paused trial is the pruner's no longer.
local function apply_release(self, trial)
  trial.released = true
  self.pruner:finish(trial, trial.loss)
end

-- Kind of event -> function that applies it when the store is read.
local apply = {}

apply.start = function(self, trial)
  if not trial.begun and trial.replicate == 0 then trial.bracket = self.pruner:assign(trial) end
  trial.begun, trial.state = true, "running"
end

local function read_metrics(self, trial, event)
  if self.metrics and event.detail then self:_keep_values(trial, json.decode(event.detail)) end
end

apply.report = function(self, trial, event)
  read_metrics(self, trial, event)
  local answer = self:_apply_report(trial, event.step, event.value or NAN)
  if event.answer ~= "continue" then trial.decision = answer end
end

apply.pause = function(_, trial) trial.state, trial.decision = "paused", nil end

apply.promote, apply.release = apply_promotion, apply_release

apply.interrupt = function(_, trial) trial.state = "waiting" end

apply.retry = function(self, trial)
  if trial.state == "failed" then -- by `accelhost sweep retry`
    self.groups[trial.group + 1].observed = nil
    reports.reopen(trial)
  end
  trial.state, trial.attempt = "waiting", trial.attempt + 1
end

apply["end"] = function(self, trial, event)
  self:_apply_end(trial, event.detail, event.value or event.detail ~= "failed" and NAN or nil)
end

apply.log = read_metrics

apply.values = function(_, trial, event) trial.values = json.decode(event.detail) end

-- Recover from the end of the process that ran the sweep before.
function Study:_recover()
  for _, trial in ipairs(self.trials) do
    if trial.state == "running" then
      local decision = trial.decision
      self:leave(trial, decision == "stop" and "stopped" or decision == "pause" and "paused" or "interrupted",
        C.system.time())
    end
  end
end

function Study:_read()
  local rows, entered = self.store:trials(), {}
  for _, trial in ipairs(rows) do trial.state, trial.value, trial.attempt = "waiting", nil, 0 end
  for _, event in ipairs(self.store:events()) do
    local trial = rows[event.trial + 1]
    if not entered[trial] then
      self:_enter(trial)
      entered[trial] = true
    end
    apply[event.kind](self, trial, event)
    spans.apply(trial, event)
  end
  for _, trial in ipairs(rows) do
    if not entered[trial] then self:_enter(trial) end
  end
  self:_recover()
end

-- Select the next trial.

local function open_leaders(self)
  local list = {}
  for _, group in ipairs(self.groups) do
    if not group.observed then list[#list + 1] = group.leader end
  end
  return list
end

-- Return a combination that was not tried, of a finite space; nil when there is none left, or the space is infinite.
local function find_untried(self, number, running)
  if self.space:size() == math.huge then return nil end
  if not self._grid then
    self._grid = samplers.new("grid", 0):setup(self.space.parameters)
    for _, group in ipairs(self.groups) do self._grid:observe(group.leader, 0) end
  end
  for _ = 1, self.space:size() do
    local params = self._grid:suggest(number, running)
    if not params or not self.tried[self.space:key(params)] and not self.space:violation(params) then return params end
    self._grid:skip(params)
  end
end

-- Draw parameters at random until they satisfy the constraints; fail when none do.
local function draw_allowed(self, number, given)
  local params
  for attempt = 0, DRAWS - 1 do
    params = self.space:complete(given or {}, self.sampler:draw(self.sampler:stream(number, REJECTIONS + attempt)))
    if not self.space:violation(params) then return params end
  end
  arguments.fail("constraints: none of %d random configurations satisfies '%s'", DRAWS, self.space:violation(params))
end

local function suggest(self, number, given)
  local running, params = open_leaders(self), nil
  local attempt = 0
  while attempt < (params and ATTEMPTS or REJECTIONS) do
    local suggested = self.sampler:suggest(number, running, attempt)
    if not suggested then
      self.exhausted = true
      return nil
    end
    local candidate = self.space:complete(given or {}, suggested)
    local is_allowed = not self.space:violation(candidate)
    if is_allowed and (given or not self.tried[self.space:key(candidate)]) then return candidate end
    params = is_allowed and candidate or params
    if is_allowed or given or not self.sampler:skip(suggested) then attempt = attempt + 1 end
  end
  return not given and find_untried(self, number, running) or params or draw_allowed(self, number, given)
end

-- Return the parameters of a new trial. Queued configurations are first, by their place in the definition.
local function new_params(self, number)
  local given = self.definition.enqueue[number + 1]
  local params = suggest(self, number, given)
  if not params and given then params = self.space:complete(given, {}) end
  return params, given ~= nil
end

local function first_waiting(self)
  for number = self._first_waiting or 1, #self.trials do
    if self.trials[number].state == "waiting" then return self.trials[number] end
  end
end

-- Is one paused trial preferred to another? It ran more steps, or as many with a lower loss.
local function is_ahead(one, other)
  local step, other_step = one.reports[#one.reports].step, other.reports[#other.reports].step
  if step ~= other_step then return step > other_step end
  return one.loss < other.loss
end

-- Return the best paused trial when all have begun and none is complete, so that a sweep has a result.
local function last_hope(self)
  local best
  for _, trial in ipairs(self.trials) do
    if trial.state == "running" or trial.state == "complete" then return nil end
    if trial.state == "paused" and #trial.reports > 0 and not (best and not is_ahead(trial, best)) then best = trial end
  end
  return best
end

-- A trial of a configuration that was not tried, which enters the study; nil when there are no more.
local function new_trial(self)
  local number = #self.groups
  if self.exhausted or self.limit and number >= self.limit then return nil end
  local params, queued = new_params(self, number)
  if not params then return nil end
  local trial = {number = #self.trials, state = "waiting", group = number, replicate = 0, attempt = 0, queued = queued,
    params = params, reports = {}}
  self:_enter(trial)
  return trial
end

-- The next trial, and why it runs: "start", "promote", "new" or "release".
local function choose(self)
  local trial = first_waiting(self)
  if trial then return trial, "start" end
  trial = self.pruner:promote()
  if trial then return trial, "promote" end
  trial = new_trial(self)
  if trial then return trial, "new" end
  trial = last_hope(self)
  if trial then apply_release(self, trial) end
  return trial, "release"
end

--- Set the largest number of configurations; nil: as many as the sampler has.
---@param count integer?
function Study:set_limit(count) self.limit = count end

--- The trial that is to run now: one that was interrupted, one that is promoted, a new one, or the best of those that
--- are paused when none is complete; nil when there is none at the moment.
---@param now number seconds since 1970
---@param slot integer from 0
---@return table? trial {number, params, attempt, replicate, reports, ...}
function Study:next(now, slot)
  if self.stopping then return nil end
  local trial, kind = choose(self)
  if not trial then return nil end
  if not trial.begun and trial.replicate == 0 then trial.bracket = self.pruner:assign(trial) end
  trial.started, trial.slot, trial.error = trial.started or now, slot, nil
  spans.begin(trial, now)
  self.store:transaction(function()
    if kind == "new" then self.store:add(trial) end
    if kind == "promote" or kind == "release" then self.store:event(trial, kind, now) end
    self.store:event(trial, "start", now)
    trial.begun, trial.state, trial.decision = true, "running", nil
    self.store:update(trial)
  end)
  return trial
end

--- Store the report of a running trial. A step that it reports a second time, because it resumed from an older
--- checkpoint, is ignored.
---@param metrics table<string, any>
---@return "continue"|"stop"|"pause" answer
---@return boolean is_new
function Study:report(trial, step, metrics, now)
  local value = metrics[self.definition.metric]
  self:_keep_values(trial, metrics)
  if self.seen[trial][step] and value ~= nil and not trial.reopened then return "continue", false end
  local fine, encoded = pcall(json.encode, metrics)
  local text = fine and encoded or nil
  if value == nil then
    self.store:event(trial, "log", now, {step = step, detail = text})
    return "continue", true
  end
  local answer = self:_apply_report(trial, step, value)
  if not self.has_pruner then answer = "continue" end
  self.store:event(trial, "report", now, {step = step, value = value, answer = answer, detail = text})
  if answer ~= "continue" then trial.decision = answer end
  return answer, true
end

local function add_replicates(self, leader)
  local group = self.groups[leader.group + 1]
  for replicate = #group.trials, self.definition.replicates - 1 do
    local trial = {number = #self.trials, state = "waiting", group = leader.group, replicate = replicate, attempt = 0,
      queued = leader.queued, params = leader.params, reports = {}}
    self:_enter(trial)
    self.store:add(trial)
  end
end

local function finish(self, trial, state, value, now)
  trial.ended, trial.state = now, state
  spans.close(trial, now, state)
  self.store:transaction(function()
    if trial.values then self.store:event(trial, "values", now, {detail = json.encode(trial.values)}) end
    self.store:event(trial, "end", now, {value = value, detail = state})
    if state == "complete" and trial.replicate == 0 then add_replicates(self, trial) end
    self:_apply_end(trial, state, value)
    self.store:update(trial)
  end)
  local target = self.definition.target
  if target and state == "complete" and self.sign * value <= self.sign * target then
    self.stopping = ("trial %d reached the target"):format(trial.number)
  end
end

-- A trial that fails may have another go. The first ones that all fail alike are the definition's fault.
local function fail_trial(self, trial, text, now)
  trial.error = text
  local reason, before = text:match "^[^\n]*", self.failures
  before[#before + 1] = reason
  if #before == 3 and self.endings == 0 and before[1] == reason and before[2] == reason then
    self.stopping = ("the first 3 runs failed alike: %s"):format(reason)
  end
  if trial.attempt < self.definition.retries and not self.stopping then
    trial.attempt, trial.state = trial.attempt + 1, "waiting"
    spans.close(trial, now, "failed")
    self.store:transaction(function()
      self.store:event(trial, "retry", now, {detail = text})
      self.store:update(trial)
    end)
    return
  end
  finish(self, trial, "failed", nil, now)
end

-- Return the values of several metrics of a trial that has ended well; nil and the reason where one is missing or
-- not finite.
local function values_of(self, trial, result)
  local values = {}
  for i, name in ipairs(self.metrics) do
    local value = type(result) == "table" and result[i]
    if type(result) ~= "table" then value = (trial.last or {})[name] end
    if type(value) ~= "number" then return nil, ("it never reported '%s'"):format(name) end
    if value - value ~= 0 then return nil, ("its %s is not finite"):format(name) end
    values[i] = value
  end
  return values
end

--- A trial runs no more.
---@param how "complete"|"stopped"|"paused"|"interrupted"|"failed" stopped by the pruner; interrupted: resumes later
---@param detail? number|number[]|string complete: its value, or those of several metrics; failed: the reason
function Study:leave(trial, how, now, detail)
  if how == "failed" then return fail_trial(self, trial, detail, now) end
  if how == "complete" and self.metrics then
    local values, reason = values_of(self, trial, detail)
    if not values then return fail_trial(self, trial, reason, now) end
    trial.values, detail = values, values[1]
  end
  if how == "complete" and detail ~= detail then
    trial.error = ("its %s is NaN"):format(self.definition.metric)
    return finish(self, trial, "failed", nil, now)
  end
  if how == "complete" or how == "stopped" then
    self.endings = self.endings + 1
    return finish(self, trial, how == "complete" and "complete" or "pruned", detail or last_value(trial), now)
  end
  trial.state, trial.decision = how == "paused" and "paused" or "waiting", nil
  spans.close(trial, now, trial.state)
  self.store:transaction(function()
    self.store:event(trial, how == "paused" and "pause" or "interrupt", now)
    self.store:update(trial)
  end)
end

--- The definition does not fit its script: forget trials without a result, so that a corrected one starts again.
---@param reason string
function Study:refuse(reason)
  self.stopping, self.refused = reason, true
  for _, trial in ipairs(self.trials) do
    if #trial.reports > 0 or ranking.has_ended(trial) then return end
  end
  for i = #self.trials, 1, -1 do self.store:remove(self.trials[i].number) end
  self.trials, self.groups, self.tried = {}, {}, {}
end

--- Is there nothing left to start, and nothing that runs?
function Study:is_over()
  for _, trial in ipairs(self.trials) do
    if trial.state == "running" or trial.state == "waiting" then return false end
  end
  return self.exhausted or self.limit ~= nil and #self.groups >= self.limit
end

--- Return the trials of the Pareto front of several metrics, by the first one: those than which none is better in one
--- metric and not worse in the others.
---@return table[] trials
function Study:front()
  local ranked, count = pareto.ranked(self.trials, self.definition.directions)
  return {unpack(ranked, 1, count)}
end

--- The best configuration: of the lowest bound (accelhost.sweep.ranking).
---@return table? {leader, trials, mean, spread, bound}
function Study:best() return self._best end

return Study
