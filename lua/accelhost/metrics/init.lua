--- accelhost.metrics: accuracy, F1 and their like, as scikit-learn computes them, over batches and processes.
--
--   local metrics = accelhost.metrics
--   local metric = metrics.combine{metrics.accuracy(), metrics.f1 {average = "macro"}}
--   metric:add_batch{predictions = {0, 2, 1}, references = {0, 1, 1}}
--   metric:add_batch{predictions = {2}, references = {2}}
--   print(metric:compute().accuracy)  --> 0.75
--
-- A metric counts each batch that is added and keeps no rows. In several processes there are two ways to the same exact
-- number: add the results of accelerator:gather_for_metrics, or make the metric with {accelerator = accelerator} and
-- add each process's own batch; then the counts are gathered once, in compute().
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"

local fail = arguments.fail
local lazy, metrics = {}, {}
namespace.add(lazy, "accelhost.metrics.classification", {"accuracy", "matthews_correlation", "confusion_matrix"})
namespace.add(lazy, "accelhost.metrics.f_score", {"precision", "recall", "f1"})
namespace.add(lazy, "accelhost.metrics.perplexity", {"perplexity"})
namespace.add(lazy, "accelhost.metrics.metric", {"Metric"})
namespace.add(lazy, "accelhost.metrics.combine", {"combine"})

local known = {"accuracy", "confusion_matrix", "f1", "matthews_correlation", "perplexity", "precision", "recall"}

--- A metric by its name, for names of a command line; metrics.f1{...} is the same as metrics.load("f1",
--- {...}).
--
--   print(metrics.load("accuracy"):compute{predictions = {1, 0}, references = {1, 1}}.accuracy)  --> 0.5
---@param options? table the metric's options
---@return Metric
function metrics.load(name, options)
  for _, word in ipairs(known) do
    if word == name then return metrics[name](options or {}) end
  end
  fail("load: unknown metric %s (known: %s)%s", arguments.describe(name), table.concat(known, ", "),
    type(name) == "string" and arguments.did_you_mean(name, known) or "")
end

return namespace.new("metrics", metrics, lazy)
