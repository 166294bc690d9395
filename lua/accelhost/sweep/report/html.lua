--- A study as one HTML file that asks for nothing else: pictures made here, readable without a script; the script adds
--- names under the pointer, brushing and sorting.
local export = require "accelhost.sweep.report.export"
local frame = require "accelhost.sweep.report.figures.frame"
local json = require "accelhost.util.json"
local library = require "accelhost.util.library"
local markup = require "accelhost.sweep.report.markup"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"
local view = require "accelhost.sweep.report.view"

local tag, text = markup.tag, markup.text

-- Rows of the table without a script, and at a time with one; rows of the Pareto front.
local ROWS, FRONT = 100, 20

-- The file of each returns a function of the report's view (view.lua), which returns the section, nil without one.
local figures = {"front", "history", "parallel", "importance", "slices", "curves", "timeline"}

local function terms(list)
  local parts = {}
  for i, pair in ipairs(list) do
    parts[i] = tag("div", nil, tag("dt", nil, text(pair[1])), tag("dd", nil, text(pair[2])))
  end
  return tag("dl", {class = "facts"}, table.concat(parts))
end

-- The table of the Pareto front.
local function front_part(self)
  local study, front, heads, rows = self.study, self.found.front, {tag("th", {scope = "col"}, "trial")}, {}
  for _, name in ipairs(study.metrics) do heads[#heads + 1] = tag("th", {scope = "col"}, text(name)) end
  for _, parameter in ipairs(study.space) do heads[#heads + 1] = tag("th", {scope = "col"}, text(parameter.name)) end
  for i, trial in ipairs(front) do
    if i > FRONT then break end
    local cells = {tag("th", {scope = "row"}, tag("a", {href = "#trials",
      ["data-trial"] = self.by_trial[trial].index}, tostring(trial.number)))}
    for _, value in ipairs(trial.values) do
      cells[#cells + 1] = tag("td", {class = "number"}, text(show.number(value)))
    end
    for _, parameter in ipairs(study.space) do
      cells[#cells + 1] = tag("td", nil, text(show.value(trial.params[parameter.name])))
    end
    rows[i] = tag("tr", nil, table.concat(cells))
  end
  return tag("p", {class = "best"}, tag("strong", nil, tostring(#front)), " on the Pareto front of ",
    text(table.concat(study.metrics, ", "))),
    tag("div", frame.wide("Pareto front"), tag("table", {class = "params"},
      tag("thead", nil, tag("tr", nil, table.concat(heads))), tag("tbody", nil, table.concat(rows)))),
    #front > FRONT and tag("p", {class = "note plain"}, ("%d more are first in the table of all trials."):format(
      #front - FRONT)) or ""
end

local function best_part(self)
  if self.found.front and #self.found.front > 0 then return front_part(self) end
  local study, best = self.study, self.found.best
  if not best then return tag("p", {class = "best"}, text("Best: " .. summary.why_none(self.found))) end
  local rows = {}
  for i, parameter in ipairs(study.space) do
    local value = best.params[parameter.name]
    rows[i] = value ~= nil and tag("tr", nil, tag("th", {scope = "row"}, text(parameter.name)),
      tag("td", nil, text(show.value(value)))) or ""
  end
  local group, spread, settings = self.found.groups[1], "", summary.settings(study, best)
  if group then
    spread = (" (mean of %d: %s, standard deviation %s)"):format(group.count, show.number(group.mean),
      show.number(group.spread))
  end
  return tag("p", {class = "best"}, tag("strong", nil, text(show.number(best.value))), " ", text(study.metric), " in ",
    tag("a", {href = "#trials", ["data-trial"] = self.best.index}, "trial " .. best.number), text(spread)),
    tag("table", {class = "params"}, tag("tbody", nil, table.concat(rows))),
    tag("details", nil, tag("summary", nil, "as YAML and Lua"), tag("pre", nil, markup.lines(export.yaml(settings))),
      tag("pre", nil, markup.lines(export.lua(settings))))
end

-- The constraints, and the trials that break one.
local function constraints_part(self)
  if not self.study.constraints then return "" end
  local codes, infeasible = {}, summary.infeasible_words(self.found)
  for i, constraint in ipairs(self.study.constraints) do codes[i] = tag("code", nil, text(constraint)) end
  return tag("p", nil, "Constraints: ", table.concat(codes, ", "), ".",
    infeasible and text(" " .. infeasible:gsub("^n", "N") .. ".") or "")
end

local function summary_section(self)
  local study, found = self.study, self.found
  local facts = {
    {"trials", ("%d: %s"):format(found.total, summary.words(found.counts))},
    {"goal", summary.goals(study)},
    {"sampler", study.sampler or "-"}, {"pruner", study.pruner or "none"},
    {"began", show.date(found.first)}, {"duration", show.duration(found.elapsed)},
    {"mean per trial", show.duration(found.mean_seconds)},
    {"all together", show.duration(found.busy)},
  }
  return frame.section("summary", "Best", "", table.concat({best_part(self)}), terms(facts),
    constraints_part(self),
    study.command and tag("p", {class = "command"}, tag("code", nil, text(study.command))) or "")
end

-- The folder of a trial as seen from the page.
local function address_of(self, trial)
  if not trial.directory then return nil end
  local path = trial.directory
  if path:sub(1, 1) ~= "/" and self.base ~= "" then path = self.base .. "/" .. path end
  return markup.address(path)
end

local function table_row(self, row)
  local trial, cells = row.trial, {}
  local address = address_of(self, trial)
  local name = tostring(trial.number)
  cells[1] = tag("th", {scope = "row"}, address and tag("a", {href = address .. "/"}, name) or name)
  cells[2] = tag("td", {class = "state " .. trial.state}, text(trial.state))
  cells[3] = tag("td", {class = "number"}, text(show.number(row.value)))
  for i = 2, #(self.study.metrics or {}) do
    cells[#cells + 1] = tag("td", {class = "number"}, text(show.number((trial.values or {})[i])))
  end
  for _, axis in ipairs(self.axes) do
    cells[#cells + 1] = tag("td", {class = axis.kind == "number" and "number" or nil},
      text(show.value(trial.params[axis.name])))
  end
  local remark = show.remark(trial)
  cells[#cells + 1] = tag("td", {class = "number"}, text(show.duration(row.seconds)))
  cells[#cells + 1] = tag("td", {class = "error"}, text(remark .. (remark ~= "" and " " or "")),
    address and tag("a", {href = address .. "/log.txt"}, "log") or "")
  return tag("tr", nil, table.concat(cells))
end

local function by_rank(rows)
  local list = {}
  for i, row in ipairs(rows) do list[i] = row end
  table.sort(list, function(a, b)
    if (a.rank or math.huge) ~= (b.rank or math.huge) then return (a.rank or math.huge) < (b.rank or math.huge) end
    return a.trial.number < b.trial.number
  end)
  return list
end

local function trials_section(self)
  local names, heads, rows = {"trial", "state", self.study.metric}, {}, {}
  for i = 2, #(self.study.metrics or {}) do names[#names + 1] = self.study.metrics[i] end
  for _, axis in ipairs(self.axes) do names[#names + 1] = axis.name end
  names[#names + 1], names[#names + 2] = "time", ""
  for i, name in ipairs(names) do heads[i] = tag("th", {scope = "col"}, text(name)) end
  for i, row in ipairs(by_rank(self.rows)) do
    if i > ROWS then break end
    rows[i] = table_row(self, row)
  end
  local note = #self.rows > ROWS and ("The best %d of %d trials; the others are here with a script, and in "
    .. "`accelhost sweep export`."):format(ROWS, #self.rows) or ""
  return tag("section", {id = "trials"}, tag("h2", nil, "Trials"),
    note ~= "" and tag("p", {class = "note plain"}, text(note)) or "",
    tag("div", {class = "tools script"},
      tag("label", nil, "find ", tag("input", {id = "find", type = "search", placeholder = "a word of a row"})),
      tag("label", nil, "state ", tag("select", {id = "state"}, tag("option", {value = ""}, "all"))),
      tag("output", {id = "shown"})),
    tag("div", frame.wide("Trials"), tag("table", {id = "rows"}, tag("thead", nil, tag("tr", nil, table.concat(heads))),
      tag("tbody", nil, table.concat(rows)))),
    tag("button", {id = "more", class = "script", type = "button"}, "more"))
end

local function number_or_null(value) return summary.is_finite(value) and value or json.null end

local function tenth(value) return math.floor(value * 10 + 0.5) / 10 end

-- Return the data of the page's script: a row for each trial, in its order.
local function data_of(self)
  local rows, state_of = json.array {}, {}
  for i, state in ipairs(summary.states) do state_of[state] = i - 1 end
  for i, row in ipairs(self.rows) do
    local trial, params, places, further = row.trial, json.array {}, json.array {}, json.array {}
    for k = 2, #(self.study.metrics or {}) do
      local value = (trial.values or {})[k]
      further[k - 1] = json.array {show.number(value), number_or_null(value)}
    end
    for k, axis in ipairs(self.axes) do
      params[k] = show.value(trial.params[axis.name])
      places[k] = row.places[k] or json.null
    end
    rows[i] = json.array {
      trial.number, state_of[trial.state] or -1, row.rank or 0, show.number(row.value), row.y or json.null, params,
      places, show.duration(row.seconds), number_or_null(row.seconds), show.remark(trial),
      address_of(self, trial) or "",
      row.history_x or json.null,
      (row.strand and 1 or 0) + (row.sliced and 2 or 0), further,
    }
  end
  local names, spans = json.array {}, json.array {}
  for i, axis in ipairs(self.axes) do names[i] = printable.text(axis.name) end
  for i, span in ipairs(self.spans) do
    spans[i] = json.array {span.row.index, span.slot, tenth(span.left), tenth(span.right)}
  end
  return {
    further = math.max(0, #(self.study.metrics or {}) - 1),
    metric = printable.text(self.study.metric), names = names, states = summary.states, rows = rows,
    curves = json.array(self.curves or {}),
    spans = spans, slots = self.slots or 1, page = ROWS,
  }
end

-- A file of this folder, without the comment that it begins with.
local function file_of(name)
  return (library.text("accelhost/sweep/report/" .. name):gsub("^/%*.-%*/\n", ""))
end

--- The page.
---@param study table see accelhost.sweep.report
---@param options? {now?: number, base?: string, importance?: table[]} base: the study's folder as seen from the page
---@return string
return function(study, options)
  options = options or {}
  local self = view.of(study, options.now or 0)
  self.base, self.importance = options.base or "", options.importance
  local parts = {summary_section(self)}
  for _, name in ipairs(figures) do
    parts[#parts + 1] = require("accelhost.sweep.report.figures." .. name)(self)
  end
  parts[#parts + 1] = trials_section(self)
  local title = study.name .. " - accelhost sweep"
  local running = self.found.counts.running + self.found.counts.waiting + self.found.counts.paused
  return (file_of "report.html":gsub("{{(%w+)}}", {
    title = text(title), name = text(study.name), style = file_of "report.css", script = file_of "report.js",
    written = text(("written %s%s"):format(show.date(self.now),
      running > 0 and ("; %s had not ended"):format(show.count(running, "trial")) or "")),
    sections = table.concat(parts, "\n"), data = markup.json(data_of(self)),
  }))
end
