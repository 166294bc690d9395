--- The statistics of a study, the only place where the numbers of all reports are computed.
local kinds = require "accelhost.util.kinds"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local pareto = require "accelhost.sweep.pareto"
local ranking = require "accelhost.sweep.ranking"

local summary = {}

--- The states of a trial, in the order in which they are printed.
summary.states = {"complete", "pruned", "running", "paused", "waiting", "failed"}

local is_finite = kinds.is_finite
summary.is_finite = is_finite

--- The last value that a trial reported, and its step; nil without one.
---@return number?, integer?
function summary.last_report(trial)
  local reports = trial.reports
  local last = reports and reports[#reports]
  if last then return last.value, last.step end
end

--- 1 when less is better, -1 when more is.
---@return integer
function summary.sign(study) return study.direction == "maximize" and -1 or 1 end

--- The trials that ended with a finite value, the best first; of equal ones the earlier.
function summary.ranked(study)
  if study.metrics then return (pareto.ranked(study.trials, study.directions)) end
  local list, sign = {}, summary.sign(study)
  for _, trial in ipairs(study.trials) do
    if ranking.is_ranked(trial) and is_finite(trial.value) then list[#list + 1] = trial end
  end
  table.sort(list, function(a, b)
    if a.value ~= b.value then return sign * a.value < sign * b.value end
    return a.number < b.number
  end)
  return list
end

--- The best value so far at each trial that has one, by number: {trial, value, best}.
function summary.history(study)
  local list, sign, best = {}, summary.sign(study), nil
  for _, trial in ipairs(study.trials) do
    if ranking.is_ranked(trial) and is_finite(trial.value) then
      if not best or sign * trial.value < sign * best then best = trial.value end
      list[#list + 1] = {trial = trial, value = trial.value, best = best}
    end
  end
  return list
end

--- The stretches of time in which a trial ran, each {started, ended, state}; the last one is still running where
--- `ended` is nil.
---@return table[]
function summary.spans(trial)
  if trial.spans then return trial.spans end
  return trial.started and {{started = trial.started, ended = trial.ended, state = trial.state}} or {}
end

-- Return a trial's running time until now, and the time when it ran last; nil when that is not known.
local function seconds_of(trial, now)
  local seconds, last
  for _, span in ipairs(summary.spans(trial)) do
    local till = span.ended or (trial.state == "running" and now) or nil
    if till then seconds, last = (seconds or 0) + math.max(0, till - span.started), till end
  end
  return seconds, last
end
summary.seconds = seconds_of

--- Return the metrics of a trial as text: "loss 0.1, seconds 3".
function summary.values_text(study, trial)
  local parts = {}
  for i, name in ipairs(study.metrics) do
    parts[i] = ("%s %s"):format(printable.text(name), show.number(trial.values[i]))
  end
  return table.concat(parts, ", ")
end

--- Return the goals: "minimize loss, maximize accuracy".
function summary.goals(study)
  local parts = {}
  for i, name in ipairs(study.metrics or {study.metric}) do
    parts[i] = ("%s %s"):format(study.metrics and study.directions[i] or study.direction, printable.text(name))
  end
  return table.concat(parts, ", ")
end

--- Return the parameters of a trial as its script gets them, by dotted names.
---@return table<string, any>
function summary.settings(study, trial)
  return study.settings and study.settings(trial.params) or trial.params
end

-- Configurations that were run with several seeds, the best first; none when no configuration was.
local function replicates(study)
  local groups, order, list, repeated = {}, {}, {}, false
  for _, trial in ipairs(study.trials) do
    repeated = repeated or (trial.replicate or 0) > 0
    local group = groups[trial.group or trial.number]
    if not group then
      group = {leader = trial, trials = {}}
      groups[trial.group or trial.number], order[#order + 1] = group, group
    end
    group.trials[#group.trials + 1] = trial
    group.is_open = group.is_open or not ranking.has_ended(trial)
  end
  if not repeated then return {} end
  for _, group in ipairs(order) do
    local found = not group.is_open and not group.leader.violation and ranking.of_group(group, summary.sign(study))
    if found and is_finite(found.bound) then list[#list + 1] = found end
  end
  table.sort(list, function(one, other)
    if one.bound ~= other.bound then return one.bound < other.bound end
    return one.leader.number < other.leader.number
  end)
  return list
end

--- Count the trials in one pass, fast enough to be called repeatedly: {counts, total, ended, sign, best (of the single
--- trials), first, last, elapsed, busy, mean_seconds}; of several metrics no best, but `front`, the trials of the
--- Pareto front; `infeasible`, the complete trials that break a constraint (added after they began): they are not
--- ranked.
---@param study table see accelhost.sweep.report
---@param now? number seconds since 1970, for trials that run
function summary.count(study, now)
  local found = {counts = {}, total = #study.trials, busy = 0, sign = summary.sign(study), infeasible = {}}
  for _, state in ipairs(summary.states) do found.counts[state] = 0 end
  local ended_seconds, ended_count = 0, 0
  for _, trial in ipairs(study.trials) do
    found.counts[trial.state] = (found.counts[trial.state] or 0) + 1
    if trial.violation and trial.state == "complete" then found.infeasible[#found.infeasible + 1] = trial end
    if trial.started then found.first = math.min(found.first or trial.started, trial.started) end
    local seconds, last = seconds_of(trial, now)
    if last then found.last = math.max(found.last or last, last) end
    found.busy = found.busy + (seconds or 0)
    if seconds and trial.ended then ended_seconds, ended_count = ended_seconds + seconds, ended_count + 1 end
    if ranking.is_ranked(trial) and is_finite(trial.value)
      and not (found.best and found.sign * trial.value >= found.sign * found.best.value) then
      found.best = trial
    end
  end
  if study.metrics then
    local ranked, count = pareto.ranked(study.trials, study.directions)
    found.best, found.front = nil, {unpack(ranked, 1, count)}
  end
  local counts = found.counts
  found.ended = counts.complete + counts.pruned + counts.failed
  found.last = found.last or found.first and now
  found.elapsed = found.first and found.last and math.max(0, found.last - found.first)
  found.mean_seconds = ended_count > 0 and ended_seconds / ended_count or nil
  return found
end

--- The fields of `count`, and {ranked, groups}: the trials in order, and the configurations with several seeds in
--- order; the best configuration then has the best trial.
---@param now? number
---@return table
function summary.of(study, now)
  local found = summary.count(study, now)
  found.ranked = summary.ranked(study)
  found.groups = replicates(study)
  if found.groups[1] then found.best = found.groups[1].leader end
  return found
end

--- Count the configurations that a study has tried; replicates are of the same one.
function summary.configurations(study)
  local count = 0
  for _, trial in ipairs(study.trials) do
    if (trial.replicate or 0) == 0 then count = count + 1 end
  end
  return count
end

--- Does the study's command have nothing left to run? False for one without a number of trials, such as a grid.
---@param found table the result of `count`
function summary.is_over(study, found)
  return found.counts.running + found.counts.waiting == 0 and study.total ~= nil
    and summary.configurations(study) >= study.total
end

--- Return the reason why there is no best trial.
---@param found table the result of `count`
function summary.why_none(found)
  local counts = found.counts
  if counts.failed > 0 and found.ended == counts.failed then return "none, every trial that ended has failed" end
  if counts.complete > 0 and #found.infeasible == counts.complete then
    return "none, no complete trial satisfies the constraints"
  end
  if counts.complete > 0 then return "none, no trial has ended with a finite value" end
  return "none, no trial has ended with a value yet"
end

--- Return the trials that are not ranked in words, nil without one: "not ranked, as they break a constraint: trials 3,
--- 7 and 12 more".
---@param found table the result of `count`
---@param most? integer the largest number of trials that are named, default all
function summary.infeasible_words(found, most)
  local numbers, trials = {}, found.infeasible
  if #trials == 0 then return nil end
  for i = 1, math.min(most or #trials, #trials) do numbers[i] = tostring(trials[i].number) end
  local further = #trials > #numbers and (" and %d more"):format(#trials - #numbers) or ""
  return ("not ranked, as %s a constraint: %s %s%s"):format(#trials == 1 and "it breaks" or "they break",
    #trials == 1 and "trial" or "trials", table.concat(numbers, ", "), further)
end

--- Counts by state in words, those that are not 0: "25 complete, 2 failed".
---@param counts table<string, integer>
function summary.words(counts)
  local parts = {}
  for _, state in ipairs(summary.states) do
    if counts[state] > 0 then parts[#parts + 1] = ("%d %s"):format(counts[state], state) end
  end
  return #parts > 0 and table.concat(parts, ", ") or "none yet"
end

-- Values far on the worse side would squeeze all others into a line, so those beyond three times the distance of the
-- quartiles are left outside, if the rest has less than half of the range.
local function robust_bounds(values, sign)
  local sorted = {}
  for i, value in ipairs(values) do sorted[i] = sign * value end
  table.sort(sorted)
  local count = #sorted
  local low, high = sorted[1], sorted[count]
  local quarter, three = sorted[math.ceil(count / 4)], sorted[math.ceil(count * 3 / 4)]
  local limit, outside = three + 3 * (three - quarter), 0
  if three > quarter and high - low > 2 * (limit - low) then
    while sorted[count - outside] > limit do outside = outside + 1 end
    high = sorted[count - outside]
  end
  if sign < 0 then low, high = -high, -low end
  return low, high, outside
end

--- Bounds between which values are drawn, and whether by their logarithms: losses of several powers of ten are, since
--- the interesting ones are near the least.
---@param values number[] finite
---@param sign integer 1 when less is better
---@return number? low
---@return number? high
---@return integer outside number of values beyond on the worse side
---@return boolean log
function summary.bounds(values, sign)
  if #values == 0 then return nil, nil, 0, false end
  local least, most, logs = math.huge, -math.huge, {}
  for _, value in ipairs(values) do least, most = math.min(least, value), math.max(most, value) end
  if sign < 0 or least <= 0 or most < 100 * least then
    local low, high, outside = robust_bounds(values, sign)
    return low, high, outside, false
  end
  for i, value in ipairs(values) do logs[i] = math.log10(value) end
  local low, high, outside = robust_bounds(logs, sign)
  return 10 ^ low, 10 ^ high, outside, true
end

return summary
