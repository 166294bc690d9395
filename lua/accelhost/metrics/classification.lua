--- Accuracy, Matthews' correlation and the confusion matrix.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local labelled = require "accelhost.metrics.labelled"

local fail = arguments.fail
local classification = {}

--- The share of rows whose prediction is the reference, or with normalize = false their number.
--
--   print(metrics.accuracy():compute{predictions = {0, 1, 1, 2}, references = {0, 1, 2, 2}}.accuracy)  --> 0.75
classification.accuracy = labelled("accuracy", {{"normalize: flag", true}})
local accuracy = classification.accuracy

function accuracy._result(_, counts, options)
  local right = 0
  for _, label in ipairs(counts:labels()) do right = right + counts:of(label, label) end
  return {accuracy = options.normalize and right / counts.total or right}
end

--- Matthews' correlation coefficient: 1 where all is right, 0 as good as guessing, for any number of classes (the R_K
--- statistic, Gorodkin 2004); 0 where only one class occurred.
--
--   metrics.matthews_correlation():compute{predictions = {1, 0, 1, 1}, references = {1, 0, 0, 1}}
classification.matthews_correlation = labelled("matthews_correlation", {})
local matthews = classification.matthews_correlation

function matthews._result(_, counts)
  local labels, total, right = counts:labels(), counts.total, 0
  local _, references, predictions = counts:sums()
  local both, predicted, referred = 0, 0, 0
  for _, label in ipairs(labels) do
    right = right + counts:of(label, label)
    both = both + references[label] * predictions[label]
    predicted = predicted + predictions[label] ^ 2
    referred = referred + references[label] ^ 2
  end
  local scale = (total ^ 2 - predicted) * (total ^ 2 - referred)
  return {matthews_correlation = scale > 0 and (right * total - both) / math.sqrt(scale) or 0}
end

--- The number of times that a reference (row) was predicted as each class (column): an int64 tensor [k, k], float64
--- where it is normalized or rows have weights that are no whole numbers. Its classes are those of `labels`, else all
--- that occurred, in order.
--
--   metrics.confusion_matrix():compute{predictions = {1, 0, 1}, references = {1, 0, 0}}
---@param labels? integer[] rows of other classes do not count
---@param normalize? string "true" (each row adds up to 1), "pred" (each column) or "all"
classification.confusion_matrix = labelled("confusion_matrix",
  {{"labels: integers"}, {"normalize: 'true'|'pred'|'all'"}})
local confusion = classification.confusion_matrix

local divide = {
  ["true"] = function(matrix) return matrix / matrix:sum(1, true) end,
  pred = function(matrix) return matrix / matrix:sum(0, true) end,
  all = function(matrix) return matrix / matrix:sum() end,
}

function confusion._result(_, counts, options)
  local present, referred = counts:labels()
  local labels, known = options.labels or present, false
  local rows, whole = {}, true
  for i, reference in ipairs(labels) do
    known = known or referred[reference]
    rows[i] = {}
    for k, prediction in ipairs(labels) do
      rows[i][k] = counts:of(reference, prediction)
      whole = whole and rows[i][k] % 1 == 0
    end
  end
  if not known then fail("confusion_matrix: labels: expected at least one that occurs in the references") end
  local matrix = C.tensor(rows, {dtype = (options.normalize or not whole) and "float64" or "int64", device = "cpu"})
  return {confusion_matrix = options.normalize and divide[options.normalize](matrix):nan_to_num() or matrix}
end

return classification
