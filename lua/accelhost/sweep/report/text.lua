--- The report of a study as text.
local columns = require "accelhost.util.columns"
local grid = require "accelhost.util.grid"
local importances = require "accelhost.sweep.importance"
local layout = require "accelhost.plot.layout"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local styles = require "accelhost.plot.styles"
local summary = require "accelhost.sweep.report.summary"
local terminal = require "accelhost.plot.terminal"

local TOP, FRONT, FAILURES, HEIGHT = 10, 20, 5, 14

local function head(self, put)
  local study, found = self.study, self.found
  put(("%s: %s%s%s"):format(printable.text(study.name), summary.goals(study),
    study.sampler and ", sampler " .. printable.text(study.sampler) or "",
    study.pruner and ", pruner " .. printable.text(study.pruner) or ""))
  put(show.count(found.total, "trial") .. (found.total > 0 and ": " .. summary.words(found.counts) or ""))
  if study.constraints then
    put("constraints: " .. printable.text(table.concat(study.constraints, "; ")))
  end
  local infeasible = summary.infeasible_words(found, FRONT)
  if infeasible then put(infeasible) end
  if found.first then
    put(("began %s, ran for %s; mean per trial %s"):format(show.date(found.first), show.duration(found.elapsed),
      show.duration(found.mean_seconds)))
  end
  if found.counts.paused > 0 and summary.is_over(study, found) then
    put(("finished: the %d paused were behind the others and do not run again"):format(found.counts.paused))
  end
end

-- The trials of the Pareto front, as many as fit.
local function front(self, put)
  local study, trials = self.study, self.found.front
  put ""
  if #trials == 0 then return put("Pareto front: " .. summary.why_none(self.found)) end
  put(("Pareto front: %s, by %s"):format(show.count(#trials, "trial"), printable.text(study.metrics[1])))
  local rows, right = {{"  trial"}}, {true}
  for i, name in ipairs(study.metrics) do rows[1][i + 1], right[i + 1] = printable.text(name), true end
  for _, parameter in ipairs(study.space) do
    rows[1][#rows[1] + 1], right[#right + 1] = printable.text(parameter.name), parameter.kind ~= "categorical"
  end
  for i = 1, math.min(FRONT, #trials) do
    local trial, row = trials[i], {tostring(trials[i].number)}
    for k, value in ipairs(trial.values) do row[k + 1] = show.number(value) end
    for _, parameter in ipairs(study.space) do row[#row + 1] = show.value(trial.params[parameter.name]) end
    rows[#rows + 1] = row
  end
  local lines, left_out = grid.lines(rows, {width = self.width, right = right})
  for _, line in ipairs(lines) do put(line) end
  if #trials > FRONT then put(("  and %d more"):format(#trials - FRONT)) end
  if left_out > 0 then put(columns.cut(("  (%s more)"):format(show.count(left_out, "column")), self.width)) end
end

local function best(self, put)
  if self.found.front then return front(self, put) end
  local study, trial = self.study, self.found.best
  put ""
  if not trial then return put("best: " .. summary.why_none(self.found)) end
  put(("best: %s %s in trial %d%s"):format(printable.text(study.metric), show.number(trial.value), trial.number,
    trial.directory and ", " .. printable.text(trial.directory) or ""))
  local group = self.found.groups[1]
  if group then
    put(("  mean of %d: %s, standard deviation %s"):format(group.count, show.number(group.mean),
      show.number(group.spread)))
  end
  local rows = {}
  for _, parameter in ipairs(study.space) do
    local value = trial.params[parameter.name]
    if value ~= nil then rows[#rows + 1] = {"  " .. printable.text(parameter.name), show.value(value)} end
  end
  for _, line in ipairs(grid.lines(rows, {width = math.huge})) do put(line) end
end

local function importance(self, put)
  local list = self.importance
  if not list or #list == 0 then
    if self.found.total == 0 or #self.study.space < 2 then return end
    put ""
    return put(columns.cut(("importance: " .. importances.NEEDS):format(#self.found.ranked), self.width))
  end
  put ""
  put(columns.cut("importance (PED-ANOVA, and rank correlation with " .. printable.text(self.study.metric) .. ")",
    self.width))
  local widest, most = 0, 1e-12
  for _, one in ipairs(list) do
    widest, most = math.max(widest, columns.of(one.name)), math.max(most, one.importance)
  end
  widest = math.min(widest, math.floor(self.width / 2))
  local room = math.max(4, math.min(40, self.width - widest - 19))
  for _, one in ipairs(list) do
    local name = columns.cut(printable.text(one.name), widest)
    put(("  %s%s  %s %.3f%s"):format(name, (" "):rep(widest - columns.of(name)),
      ("█"):rep(math.floor(one.importance / most * room + 0.5)), one.importance,
      one.correlation and (" (%+.2f)"):format(one.correlation) or ""))
  end
end

local function top(self, put)
  local ranked, study = self.found.ranked, self.study
  if #ranked == 0 or self.found.front then return end
  local rows, right = {{"  trial", printable.text(study.metric), "time"}}, {true, true, true}
  for i, parameter in ipairs(study.space) do
    rows[1][i + 3], right[i + 3] = printable.text(parameter.name), parameter.kind ~= "categorical"
  end
  for rank = 1, math.min(TOP, #ranked) do
    local trial = ranked[rank]
    local row = {tostring(trial.number), show.number(trial.value), show.duration(summary.seconds(trial))}
    for i, parameter in ipairs(study.space) do row[i + 3] = show.value(trial.params[parameter.name]) end
    rows[#rows + 1] = row
  end
  put ""
  put(#ranked > TOP and ("best %d of %d complete trials"):format(TOP, #ranked) or "complete trials, best first")
  local lines, left_out = grid.lines(rows, {width = self.width, right = right})
  for _, line in ipairs(lines) do put(line) end
  if left_out > 0 then put(columns.cut(("  (%s more)"):format(show.count(left_out, "column")), self.width)) end
end

-- Dots are curves of one point each, with nothing between them.
local function history_panel(self)
  local list, values = summary.history(self.study), {}
  for i, point in ipairs(list) do values[i] = point.value end
  local low, high, outside, log = summary.bounds(values, self.found.sign)
  local function place(value) return log and math.log10(value) or value end
  local dots, line = {run = 1, x = {}, y = {}}, {run = 2, x = {}, y = {}}
  for i, point in ipairs(list) do
    local number, inside = point.trial.number, point.value >= low and point.value <= high
    dots.x[2 * i - 1], dots.y[2 * i - 1] = number, inside and place(point.value) or 0 / 0
    dots.x[2 * i], dots.y[2 * i] = number, 0 / 0
    local last = list[i - 1]
    if last and last.best ~= point.best then line.x[#line.x + 1], line.y[#line.y + 1] = number, place(last.best) end
    line.x[#line.x + 1], line.y[#line.y + 1] = number, place(point.best)
  end
  return {key = self.study.metric, curves = {line, dots}, axis = "trial", log = log}, outside
end

-- Dots at two metrics; those of the Pareto front are joined.
local function front_panel(self)
  local dots, line, on_front = {run = 1, x = {}, y = {}}, {run = 2, x = {}, y = {}}, {}
  for _, trial in ipairs(self.found.front) do on_front[trial] = true end
  for _, trial in ipairs(self.found.ranked) do
    local x, y = trial.values[1], trial.values[2]
    if on_front[trial] then line.x[#line.x + 1], line.y[#line.y + 1] = x, y end
    dots.x[#dots.x + 1], dots.y[#dots.y + 1] = x, y
    dots.x[#dots.x + 1], dots.y[#dots.y + 1] = x, 0 / 0
  end
  return {key = printable.text(self.study.metrics[2]) .. ": dots are trials, the line is the Pareto front",
    curves = {line, dots}, axis = printable.text(self.study.metrics[1])}
end

local function draw(self, put, panel)
  put ""
  local scene = layout.scene({{short = ""}}, {panel}, styles.terminal(self.width, HEIGHT, false))
  put((terminal(scene, self.colored):gsub("\n$", "")))
end

local function history(self, put)
  if #self.found.ranked < 2 then return end
  if self.found.front then return draw(self, put, front_panel(self)) end
  local panel, outside = history_panel(self)
  panel.key = printable.text(panel.key) .. ": dots are trials, the line is the best so far"
  draw(self, put, panel)
  if outside > 0 then put(("  %s far off the others %s left out"):format(show.count(outside, "value"),
    outside == 1 and "is" or "are")) end
end

local function failures(self, put)
  local failed = {}
  for _, trial in ipairs(self.study.trials) do
    if trial.state == "failed" then failed[#failed + 1] = trial end
  end
  if #failed == 0 then return end
  put ""
  for i, trial in ipairs(failed) do
    if i > FAILURES then return put(("  and %d more have failed"):format(#failed - FAILURES)) end
    local reason = show.first_line(trial.error)
    put(columns.cut(("trial %d failed%s"):format(trial.number, reason ~= "" and ": " .. reason or ""), self.width))
  end
end

local function lines_of(study, options, parts)
  local lines = {}
  local self = {
    study = study, found = summary.of(study, options.now), width = options.width, colored = options.colored or false,
    importance = options.importance,
  }
  if options.until_now and self.found.first then self.found.elapsed = options.now - self.found.first end
  local function put(line) lines[#lines + 1] = line end
  for _, part in ipairs(parts) do part(self, put) end
  return table.concat(lines, "\n") .. "\n"
end

local text = {}

--- All of the report.
---@param study table see accelhost.sweep.report
---@param options {now: number, width: integer, colored?: boolean, importance?: table[]}
---@return string
function text.full(study, options)
  return lines_of(study, options, {head, best, importance, top, history, failures})
end

--- Describe the end of a study: counts, times and the best.
---@param options {now: number, width: integer, until_now?: boolean} until_now: it ends at this moment
---@return string
function text.brief(study, options) return lines_of(study, options, {head, best}) end

return text
