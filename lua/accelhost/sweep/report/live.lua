--- A sweep while it runs: on a terminal a table that redraws itself in place, piped a line for each event. It is the
--- observer that a runner reports events to.
--
--   local live = require("accelhost.sweep.report.live").new {study = source.of(study, ...), stream = io.stdout,
--     is_terminal = true, columns = function() return (C.terminal.size()) end,
--     rows = function() return (select(2, C.terminal.size())) end}
--   live:event("start", trial)         -- see Live:event
--   live:update(study, now)            -- as often as one likes: draws at most ten times a second
--   live:print(text)                   -- lines above the table; nothing else may write to the terminal meanwhile
--   live:finish(study, now)            -- removes the table, prints the result
--
-- The table is written in one piece, each line over its old self, and lines are cut to the width, so that nothing
-- flickers or wraps; when the terminal was made narrower its lines are found again where the terminal has wrapped them.
local class = require "accelhost.util.class"
local columns = require "accelhost.util.columns"
local grid = require "accelhost.util.grid"
local printable = require "accelhost.util.printable"
local ranking = require "accelhost.sweep.ranking"
local ranks = require "accelhost.sweep.report.ranks"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"
local text = require "accelhost.sweep.report.text"

local Live = class.new "Live"

local INTERVAL = 0.1

local function value_of(option, default)
  if type(option) == "function" then option = option() end
  return option and option > 0 and option or default
end

function Live:init(options)
  self.study, self.stream, self.is_terminal = options.study, options.stream or io.stdout, options.is_terminal or false
  self._columns, self._rows = options.columns, options.rows
  self._total, self._parallel = options.total, options.parallel
  self._frame, self._drawn, self._ranks = {}, -math.huge, ranks.new()
end

local function width_of(self) return math.max(10, value_of(self._columns, 80)) end

-- The parameters of a trial in a line: "lr=0.1 layers=3".
local function params_text(study, params)
  local parts = {}
  for _, parameter in ipairs(study.space) do
    local value = params[parameter.name]
    if value ~= nil then parts[#parts + 1] = printable.text(parameter.name) .. "=" .. show.value(value) end
  end
  return table.concat(parts, " ")
end

-- Estimated seconds until all trials have ended, from the mean duration of the ended trials; nil before the first end.
-- If trials pause, the rate of ends and pauses counts.
local function seconds_left(self, study, found, now)
  local total = self._total or study.total
  if not total then return nil end
  local counts, needed = found.counts, 0
  local to_start = math.max(0, total - found.ended - counts.running - counts.paused)
  if counts.paused > 0 then
    local done = found.ended + counts.paused - self._done_before
    if done <= 0 then return nil end
    return (to_start + counts.running / 2) * (now - self._began) / done
  end
  if not found.mean_seconds then return nil end
  for _, trial in ipairs(study.trials) do
    if trial.state == "running" and trial.started then
      needed = needed + math.max(0, found.mean_seconds - summary.seconds(trial, now))
    end
  end
  local slots = math.max(1, self._parallel or study.parallel or 1)
  return (needed + to_start * found.mean_seconds) / math.min(slots, math.max(1, to_start + counts.running))
end

local function head_line(self, study, found, now)
  local total = self._total or study.total
  local left = seconds_left(self, study, found, now)
  local parallel = self._parallel or study.parallel
  return ("%s: %d%s ended, %s%s (%s)%s"):format(printable.text(study.name), found.ended,
    total and (" of %d"):format(total) or "", show.duration(now - self._began),
    left and left > 0 and ", about " .. show.rough_duration(left) .. " left" or "",
    summary.words(found.counts), parallel and (", -j %d"):format(parallel) or "")
end

local function best_line(study, found)
  if found.front then return ("Pareto front: %s"):format(show.count(#found.front, "trial")) end
  if not found.best then return "best: none yet" end
  return ("best: %s %s in trial %d: %s"):format(printable.text(study.metric), show.number(found.best.value),
    found.best.number, params_text(study, found.best.params))
end

local function running_lines(self, study, now, width, most)
  local rows, hidden = {{"  trial", "step", printable.text(study.metric), "rank", "time", "parameters"}}, 0
  for _, trial in ipairs(study.trials) do
    if trial.state == "running" then
      if #rows > most then
        hidden = hidden + 1
      else
        local value, step = summary.last_report(trial)
        local rank, of = self._ranks:of(trial)
        rows[#rows + 1] = {
          tostring(trial.number), show.number(step), show.number(value), rank and ("%d of %d"):format(rank, of) or "-",
          show.duration(summary.seconds(trial, now)), params_text(study, trial.params),
        }
      end
    end
  end
  if #rows == 1 then return {} end
  local lines = grid.lines(rows, {width = width, right = {true, true, true, true, true}, cut = true})
  if hidden > 0 then lines[#lines + 1] = ("  and %d more"):format(hidden) end
  return lines
end

local function frame_of(self, study, now, width)
  local found = summary.count(study, now)
  if not self._began then self._began, self._done_before = now, found.ended + found.counts.paused end
  local height = value_of(self._rows, 24)
  local lines = {head_line(self, study, found, now), best_line(study, found)}
  local running = running_lines(self, study, now, width - 1, math.max(1, height - 5))
  for _, line in ipairs(running) do lines[#lines + 1] = line end
  while #lines > math.max(1, height - 1) do lines[#lines] = nil end
  for i, line in ipairs(lines) do lines[i] = columns.cut(line, width - 1) end
  return lines
end

-- Back to where the frame begins: its lines may have been wrapped since.
local function rewind(self, width)
  local up = 0
  for _, line in ipairs(self._frame) do up = up + math.max(1, math.ceil(columns.of(line) / width)) end
  return up > 0 and ("\27[%dA\r"):format(up) or ""
end

local function put(self, above, lines)
  local width = width_of(self)
  local parts = {rewind(self, width)}
  if above ~= "" then parts[#parts + 1] = above:gsub("\n", "\27[K\n") end
  for _, line in ipairs(lines) do parts[#parts + 1] = line .. "\27[K\n" end
  parts[#parts + 1] = "\27[J"
  self._frame = lines
  self.stream:write(table.concat(parts))
  self.stream:flush()
end

--- Draw the state of the study, if the last drawing is old enough; nothing if the output is a pipe.
---@param study table whatever has its trials
---@param now number seconds since 1970
function Live:update(study, now)
  self.study.trials, self._now = study.trials, now
  if not self.is_terminal or (now - self._drawn < INTERVAL and now >= self._drawn) then return end
  self._drawn = now
  self._ranks:read(self.study)
  put(self, "", frame_of(self, self.study, now, width_of(self)))
end

--- Print lines, above the table where there is one.
---@param lines string
function Live:print(lines)
  local clean = {}
  for line in (lines:gsub("\n+$", "") .. "\n"):gmatch "(.-)\r?\n" do
    clean[#clean + 1] = printable.text(line) .. "\n"
  end
  if self.is_terminal then return put(self, table.concat(clean), self._frame) end
  self.stream:write(table.concat(clean))
  self.stream:flush()
end

local function is_on_front(self, trial)
  for _, other in ipairs(summary.count(self.study).front) do
    if other == trial then return true end
  end
  return false
end

local function is_best(self, trial)
  if self.study.metrics then return is_on_front(self, trial) end
  if trial.violation then return false end
  local value, best, sign = trial.value, self._best, summary.sign(self.study)
  if best == nil then
    for _, other in ipairs(self.study.trials) do
      if other ~= trial and ranking.is_ranked(other) and summary.is_finite(other.value)
        and not (best and sign * other.value >= sign * best) then
        best = other.value
      end
    end
  end
  local better = summary.is_finite(value) and not (best and sign * value >= sign * best)
  self._best = better and value or best
  return better
end

local function last_words(study, trial)
  local value, step = summary.last_report(trial)
  if not value then return "" end
  return (" at step %s with %s %s"):format(show.number(step), printable.text(study.metric), show.number(value))
end

-- The text of an event's line, and whether a terminal, which shows the table, prints the line too.
local event_text = {}

event_text.start = function(study, trial) return "started: " .. params_text(study, trial.params), false end

event_text.complete = function(study, trial, better)
  local seconds = summary.seconds(trial)
  local values = study.metrics and summary.values_text(study, trial)
    or ("%s %s"):format(printable.text(study.metric), show.number(trial.value))
  return ("complete: %s%s%s"):format(values, seconds and " after " .. show.duration(seconds) or "",
    better and (study.metrics and ", on the Pareto front" or ", the best so far") or ""), false
end

event_text.pruned = function(study, trial) return "pruned" .. last_words(study, trial), false end

event_text.paused = function(study, trial) return "paused" .. last_words(study, trial), false end

event_text.failed = function(_, trial) return "failed: " .. show.first_line(trial.error), true end

event_text.waiting = function(study, trial, _, how)
  if how == "failed" then return "failed and is tried again: " .. show.first_line(trial.error), true end
  return "interrupted" .. last_words(study, trial), false
end

event_text.note = function(_, _, _, words) return words, true end

--- Report an event of a trial: "start", "complete", "pruned", "paused", "failed"; "waiting" with how it left
--- ("failed": it is tried again, "interrupted"); "note" with a text about it; "report" prints nothing. "interrupt",
--- without a trial, has the number of trials that are to end.
---@param trial? table
---@param detail? any
function Live:event(kind, trial, detail)
  if kind == "report" then return end
  if kind == "interrupt" then
    return self:print(("interrupted: %s will end at the next report (once more: at once)"):format(
      show.count(detail, "trial")))
  end
  local text_of = event_text[kind]
  if not text_of then error(("live: there is no event '%s'"):format(tostring(kind)), 2) end
  local better = kind == "complete" and is_best(self, trial)
  local words, loud = text_of(self.study, trial, better, detail)
  if self.is_terminal and not loud then return end
  self:print(("trial %d %s"):format(trial.number, words))
end

--- Print how the study ended, in the place of the table.
---@param study table whatever has its trials
---@param now? number seconds since 1970
function Live:finish(study, now)
  self.study.trials = study.trials
  if self.is_terminal then put(self, "", {}) end
  self.stream:write(text.brief(self.study, {
    now = now or self._now, width = width_of(self), until_now = true,
  }))
  self.stream:flush()
end

return {new = Live}
