--- Studies of the same metrics next to each other: `accelhost sweep compare`.
local arguments = require "accelhost.util.arguments"
local columns = require "accelhost.util.columns"
local grid = require "accelhost.util.grid"
local pareto = require "accelhost.sweep.pareto"
local printable = require "accelhost.util.printable"
local show = require "accelhost.sweep.report.show"
local summary = require "accelhost.sweep.report.summary"

local compare = {}

-- The number of trials with a value, in the order of their numbers, until one was as good as the target.
local function trials_until(study, target)
  local sign = summary.sign(study)
  for i, point in ipairs(summary.history(study)) do
    if sign * point.best <= sign * target then return i end
  end
end

-- The worst of the studies' best values, which each of them reached that has one.
local function common_value(studies, found)
  local sign, worst = summary.sign(studies[1]), nil
  for _, one in ipairs(found) do
    local value = one.best and one.best.value
    if value and (not worst or sign * value > sign * worst) then worst = value end
  end
  return worst
end

-- The trials of all studies' common Pareto front, as a set.
local function common_front(studies)
  local all, front = {}, {}
  for _, study in ipairs(studies) do
    for _, trial in ipairs(study.trials) do all[#all + 1] = trial end
  end
  local ranked, count = pareto.ranked(all, studies[1].directions)
  for i = 1, count do front[ranked[i]] = true end
  return front
end

local function count_in(trials, set)
  local count = 0
  for _, trial in ipairs(trials) do count = count + (set[trial] and 1 or 0) end
  return tostring(count)
end

-- The table of results, a row for each study.
local function result_rows(studies, found)
  local rows = {{"study", "sampler", "trials", "complete", "failed", "time"}}
  for i, study in ipairs(studies) do
    local one = found[i]
    rows[i + 1] = {
      printable.text(study.directory), printable.text(study.sampler or "-"), tostring(one.total),
      tostring(one.counts.complete), tostring(one.counts.failed), show.duration(one.elapsed),
    }
  end
  local function add(heading, text)
    table.insert(rows[1], heading)
    for i = 1, #studies do table.insert(rows[i + 1], text(i)) end
  end
  if studies[1].metrics then
    local front = common_front(studies)
    add("front", function(i) return tostring(#found[i].front) end)
    add("common front", function(i) return count_in(found[i].front, front) end)
    return rows
  end
  local target = common_value(studies, found)
  add("best", function(i) return show.number(found[i].best and found[i].best.value) end)
  if target then
    add("trials to " .. show.number(target), function(i)
      local count = found[i].best and trials_until(studies[i], target)
      return count and tostring(count) or "-"
    end)
  end
  return rows
end

-- The best parameters, a column for each study; nil for several metrics, which have no best trial.
local function parameter_rows(studies, found)
  if studies[1].metrics then return nil end
  local rows, names, seen = {{"best parameters"}}, {}, {}
  for i, study in ipairs(studies) do
    rows[1][i + 1] = printable.text(study.directory)
    for _, parameter in ipairs(study.space) do
      if not seen[parameter.name] then names[#names + 1] = parameter.name end
      seen[parameter.name] = true
    end
  end
  for _, name in ipairs(names) do
    local row = {"  " .. printable.text(name)}
    for i in ipairs(studies) do row[i + 1] = show.value(found[i].best and found[i].best.params[name]) end
    rows[#rows + 1] = row
  end
  return rows
end

--- Return the comparison as text.
---@param studies table[] of source.read
---@param options? {width?: integer, now?: number}
---@return string
function compare.text(studies, options)
  options = options or {}
  local found, lines = {}, {}
  for i, study in ipairs(studies) do
    local goals, first = summary.goals(study), summary.goals(studies[1])
    if goals ~= first then
      arguments.raise("compare: expected studies with the same goals, got '%s' (%s) and '%s' (%s)",
        studies[1].directory, first, study.directory, goals)
    end
    found[i] = summary.of(study, options.now)
  end
  local function put(rows, right)
    local drawn, left_out = grid.lines(rows, {width = options.width, right = right})
    for _, line in ipairs(drawn) do lines[#lines + 1] = line end
    if left_out > 0 then
      lines[#lines + 1] = columns.cut(("  (%s more)"):format(show.count(left_out, "column")), options.width or 80)
    end
  end
  lines[1] = summary.goals(studies[1])
  put(result_rows(studies, found), {[3] = true, [4] = true, [5] = true, [6] = true, [7] = true, [8] = true})
  local rows = parameter_rows(studies, found)
  if rows then
    lines[#lines + 1] = ""
    put(rows, {})
  end
  return table.concat(lines, "\n") .. "\n"
end

return compare
