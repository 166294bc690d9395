--- The number (or total weight) of the pairs of each reference and prediction.
--
-- Labels are read in order, so that sums of weights are the same in every process.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local PairCounts = class.new "PairCounts"

function PairCounts:init()
  self._rows, self.total = {}, 0
end

--- Count a pair.
---@param reference integer
---@param prediction integer
function PairCounts:add(reference, prediction, weight)
  local row = self._rows[reference]
  if not row then
    row = {}
    self._rows[reference] = row
  end
  row[prediction] = (row[prediction] or 0) + weight
  self.total = self.total + weight
end

--- Was nothing counted?
function PairCounts:is_empty() return next(self._rows) == nil end

--- Every label that occurred, in order, and those that occurred as references.
---@return integer[] labels
---@return table<integer, boolean> referred
function PairCounts:labels()
  local all, referred = {}, {}
  for reference, row in pairs(self._rows) do
    all[reference], referred[reference] = true, true
    for prediction in pairs(row) do all[prediction] = true end
  end
  return arguments.sorted_keys(all), referred
end

--- Return the count of a pair.
---@param reference integer
---@param prediction integer
---@return number
function PairCounts:of(reference, prediction)
  local row = self._rows[reference]
  return row and row[prediction] or 0
end

--- Return, for each label, the counts of hits, references and predictions.
---@return table<integer, number> hits
---@return table<integer, number> references
---@return table<integer, number> predictions
function PairCounts:sums()
  local labels = self:labels()
  local hits, references, predictions = {}, {}, {}
  for _, label in ipairs(labels) do hits[label], references[label], predictions[label] = 0, 0, 0 end
  for _, reference in ipairs(arguments.sorted_keys(self._rows)) do
    local row = self._rows[reference]
    for _, prediction in ipairs(arguments.sorted_keys(row)) do
      references[reference] = references[reference] + row[prediction]
      predictions[prediction] = predictions[prediction] + row[prediction]
    end
    hits[reference] = row[reference] or 0
  end
  return hits, references, predictions
end

--- All of it as a float64 tensor [n, 3]: reference, prediction, weight.
---@return userdata
function PairCounts:state()
  local list = {}
  for _, reference in ipairs(arguments.sorted_keys(self._rows)) do
    local row = self._rows[reference]
    for _, prediction in ipairs(arguments.sorted_keys(row)) do
      list[#list + 1] = {reference, prediction, row[prediction]}
    end
  end
  return #list > 0 and C.tensor(list, {dtype = "float64", device = "cpu"})
    or C.zeros({0, 3}, {dtype = "float64", device = "cpu"})
end

--- Add the counts of a state.
---@param state userdata
function PairCounts:merge(state)
  for _, row in ipairs(state:to("cpu"):tolist()) do self:add(row[1], row[2], row[3]) end
end

return PairCounts
