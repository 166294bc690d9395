-- Metrics over processes: the same numbers as in one, whatever each of them had.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local data, metrics = accelhost.data, accelhost.metrics

local accelerator = accelhost.Accelerator()
local ROWS = 43
local predictions = accelhost.arange(ROWS) % 5
local references = (accelhost.arange(ROWS) % 7):clamp(0, 4)
local weights = accelhost.arange(ROWS) / 8

local makers = {
  accuracy = metrics.accuracy, matthews_correlation = metrics.matthews_correlation,
  confusion_matrix = metrics.confusion_matrix,
}
local averages = {precision = "macro", recall = "weighted", f1 = "macro"}

local function new(name, mine)
  local options = {accelerator = mine and accelerator or nil, average = averages[name]}
  return (makers[name] or metrics[name])(options)
end

local function plain(value) return accelhost.is_tensor(value) and value:tolist() or ("%.15g"):format(value) end

local function pass(fn)
  local loader = accelerator:prepare(data.DataLoader(data.TensorDataset(predictions, references, weights),
    {batch_size = 4, shuffle = true}))
  for p, r, w in loader do fn(p, r, w) end
end

local names = {"accuracy", "confusion_matrix", "f1", "matthews_correlation", "precision", "recall"}

checks.it("are exact from each process's own rows", function()
  for _, name in ipairs(names) do
    local whole = {predictions = predictions, references = references, sample_weight = weights}
    local expected, metric = new(name):compute(whole)[name], new(name, true)
    pass(function(p, r, w) metric:add_batch{predictions = p, references = r, sample_weight = w} end)
    checks.same(plain(expected), plain(metric:compute()[name]), name)
  end
end)

checks.it("are exact from gathered rows", function()
  for _, name in ipairs(names) do
    local expected = new(name):compute{predictions = predictions, references = references}[name]
    local metric = new(name)
    pass(function(p, r)
      p, r = accelerator:gather_for_metrics(p, r)
      metric:add_batch{predictions = p, references = r}
    end)
    checks.same(plain(expected), plain(metric:compute()[name]), name)
  end
end)

checks.it("leave rows out that repeat others, and processes without a row", function()
  local seen = 0
  pass(function(p, r)
    local kept, list = accelerator:keep_for_metrics(p, r:tolist())
    checks.same(kept:size(0), #list)
    seen = seen + kept:size(0)
  end)
  checks.same(ROWS, accelerator:reduce(accelhost.tensor(seen, {dtype = "int64"})):item())
  local metric = metrics.accuracy{accelerator = accelerator}
  if accelerator.is_main_process then metric:add_batch{predictions = {1, 1}, references = {1, 0}} end
  checks.same(0.5, metric:compute().accuracy)
  checks.refused("accuracy: compute: no row was added", function() metric:compute() end)
end)

checks.it("know the perplexity of all tokens", function()
  local metric = metrics.perplexity{accelerator = accelerator}
  pass(function(p, _, w) metric:add_batch{losses = w, counts = p} end)
  local mean = (weights * predictions):sum():item() / predictions:sum():item()
  checks.same(("%.12g"):format(math.exp(mean)), ("%.12g"):format(metric:compute().perplexity))
end)

checks.finish()
