--- Several metrics of the same rows.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local Metric = require("accelhost.metrics.metric").Metric

local combine = class.new "combine"

local read = arguments.signature("combine", {"metrics: list"})

--- Several metrics that get the same batches; compute() returns the results of all in one table.
--
--   local both = metrics.combine{metrics.accuracy(), metrics.recall()}
--   print(both:compute{predictions = {1, 0}, references = {1, 1}}.recall)  --> 0.5
---@param metrics Metric[]
function combine:init(...)
  self.metrics = read(...)
  for i, metric in ipairs(self.metrics) do
    if not class.is(metric, Metric) then
      arguments.fail("combine: metrics: item %d is %s, expected a metric", i, arguments.describe(metric))
    end
  end
end

--- Count a batch's rows in each metric.
---@param batch table {predictions =, references =, sample_weight = (optional)}
function combine:add_batch(batch)
  for _, metric in ipairs(self.metrics) do metric:add_batch(batch) end
end

--- The results of all metrics by name.
---@param batch? table a last batch
---@return table<string, any>
function combine:compute(batch)
  if batch then self:add_batch(batch) end
  local results = {}
  for _, metric in ipairs(self.metrics) do
    for name, value in pairs(metric:compute()) do results[name] = value end
  end
  return results
end

--- Reset the counts.
function combine:reset()
  for _, metric in ipairs(self.metrics) do metric:reset() end
end

return {combine = combine}
