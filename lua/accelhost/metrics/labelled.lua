--- Metrics of pairs of a predicted and a true class.
local PairCounts = require "accelhost.metrics.pairs_counted"
local define = require("accelhost.metrics.metric").define

local function new_counts() return PairCounts() end

local function count(self, columns)
  local counts, predictions, references = self._counts, columns.predictions, columns.references
  local weights = columns.sample_weight
  for i = 1, #predictions do counts:add(references[i], predictions[i], weights and weights[i] or 1) end
end

--- Make a class of such metrics.
---@param parameters table[] of its signature
---@return table
return function(name, parameters)
  local made = define(name, parameters)
  made._new_counts, made._count = new_counts, count
  return made
end
