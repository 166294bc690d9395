--- Precision, recall and F1, of one class or averaged over classes, as scikit-learn does.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local labelled = require "accelhost.metrics.labelled"
local warn = require "accelhost.util.warn"

local fail = arguments.fail
local f_score = {}

local function is_nan(x) return x ~= x end

-- Return the mean of the values that are not nan, weighted if the weights do not add up to 0.
local function mean(values, weights)
  local sum, weight, plain, count = 0, 0, 0, 0
  for i, value in ipairs(values) do
    if not is_nan(value) then
      sum, weight = sum + value * (weights and weights[i] or 1), weight + (weights and weights[i] or 1)
      plain, count = plain + value, count + 1
    end
  end
  if count == 0 then return 0 / 0 end
  return weight ~= 0 and sum / weight or plain / count
end

-- The classes that count.
local function chosen(what, counts, options)
  local present = counts:labels()
  if options.average ~= "binary" then return options.labels or present end
  if #present > 2 then
    fail("%s: average = \"binary\" is for two classes, but there are %d; choose \"micro\", \"macro\", \"weighted\" or "
      .. "\"none\"", what, #present)
  end
  local known = #present < 2
  for _, label in ipairs(present) do known = known or label == options.pos_label end
  if not known then
    fail("%s: pos_label: there is no class %d among %s", what, options.pos_label, table.concat(present, ", "))
  end
  return {options.pos_label}
end

-- Hits, references and predictions of the classes that count; one of each with "micro".
local function sums_of(what, counts, options)
  local hits, references, predictions = counts:sums()
  local rows = {{}, {}, {}}
  for i, label in ipairs(chosen(what, counts, options)) do
    rows[1][i], rows[2][i], rows[3][i] = hits[label] or 0, references[label] or 0, predictions[label] or 0
  end
  if options.average == "micro" then
    for k, row in ipairs(rows) do
      local sum = 0
      for _, value in ipairs(row) do sum = sum + value end
      rows[k] = {sum}
    end
  end
  return unpack(rows)
end

local function averaged(what, counts, options, ratio)
  local hits, references, predictions = sums_of(what, counts, options)
  local values, undefined = {}, options.zero_division
  for i = 1, #hits do
    local over, under = ratio(hits[i], references[i], predictions[i])
    if under == 0 and undefined == "warn" then
      warn(what .. ": a class without rows to divide by counts as 0; zero_division sets its value")
    end
    values[i] = under ~= 0 and over / under or undefined == "warn" and 0 or undefined
  end
  if options.average == "none" then return C.tensor(values, {dtype = "float64", device = "cpu"}) end
  return mean(values, options.average == "weighted" and references or nil)
end

local function define(name, ratio)
  local made = labelled(name, {
    {"labels: integers"}, {"pos_label: integer", 1},
    {"average: 'binary'|'micro'|'macro'|'weighted'|'none'", "binary"}, {"zero_division: 'warn'|number", "warn"},
  })
  function made._check(_, options)
    local value = options.zero_division
    if value ~= "warn" and value ~= 0 and value ~= 1 and not is_nan(value) then
      fail("%s: zero_division: expected 0, 1, 0 / 0 or 'warn', got %s", name, arguments.describe(value))
    end
  end
  function made._result(_, counts, options) return {[name] = averaged(name, counts, options, ratio)} end
  return made
end

--- Of the rows predicted as a class, the share that belongs to it.
--
--   metrics.precision():compute{predictions = {1, 1, 0, 1}, references = {1, 0, 0, 1}}
---@param labels? integer[] the classes that count, default all; not with "binary"
---@param pos_label? integer the class that counts with "binary", default 1
---@param average? string "binary" (default), "micro", "macro", "weighted", or "none": a float64 tensor by class
---@param zero_division? number|string the value of a class without predicted rows: 0, 1, 0 / 0 (left out of a mean) or
--- "warn", 0 with a warning
f_score.precision = define("precision", function(hits, _, predicted) return hits, predicted end)

--- Of the rows of a class, the share that was predicted as it.
--
--   print(metrics.recall():compute{predictions = {1, 1, 0, 1}, references = {1, 0, 0, 1}}.recall)  --> 1
---@param labels? integer[] as of precision
---@param pos_label? integer as of precision
---@param average? string as of precision
---@param zero_division? number|string the value of a class without rows, as of precision
f_score.recall = define("recall", function(hits, referred) return hits, referred end)

--- The harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn).
--
--   print(metrics.f1():compute{predictions = {1, 1, 0, 0}, references = {1, 0, 0, 1}}.f1)  --> 0.5
---@param labels? integer[] as of precision
---@param pos_label? integer as of precision
---@param average? string as of precision
---@param zero_division? number|string the score of a class that neither occurred nor was predicted, as of precision
f_score.f1 = define("f1", function(hits, referred, predicted) return 2 * hits, referred + predicted end)

return f_score
