-- Metrics against scikit-learn's numbers, and their refusals.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local checks = require "spec.support.checks"
local fixture = require("spec.support.fixtures").load("metrics").cases
local metrics = accelhost.metrics

local function value_of(result) return accelhost.is_tensor(result) and result:reshape(-1):tolist() or {result} end

local function flat(value, list)
  list = list or {}
  if type(value) ~= "table" then list[#list + 1] = value end
  for _, item in ipairs(type(value) == "table" and value or {}) do flat(item, list) end
  return list
end

local function part(set, from, to)
  local batch = {}
  for _, name in ipairs {"references", "predictions", "sample_weight"} do
    if set[name] then
      batch[name] = {}
      for i = from, to do batch[name][#batch[name] + 1] = set[name][i] end
    end
  end
  return batch
end

describe("A metric", function()
  for _, set in ipairs(fixture) do
    it("is scikit-learn's: labels '" .. set.name .. "'", function()
      for _, case in ipairs(set.cases) do
        local name, options, expected = case[1], case[2], case[3]
        local metric, half = metrics[name](options), math.floor(#set.references / 2)
        metric:add_batch(part(set, 1, half))
        metric:add_batch(part(set, half + 1, #set.references))
        local got, wanted = value_of(metric:compute()[name]), flat(expected)
        local said = name
        for key, value in pairs(options) do said = said .. " " .. key .. "=" .. tostring(value) end
        assert.equal(#wanted, #got, said)
        check.near(wanted, got, 1e-14, said)
      end
    end)
  end

  it("accepts tensors of any whole dtype, bools, and one row at a time", function()
    for _, dtype in ipairs {"int64", "int32", "uint8", "bool"} do
      local metric = metrics.accuracy()
      metric:add_batch{predictions = accelhost.tensor({0, 1, 1}, {dtype = dtype}), references = {false, true, false}}
      metric:add{prediction = 1, reference = accelhost.tensor(1, {dtype = "int64"}):item()}
      assert.equal(0.75, metric:compute().accuracy)
    end
    local column = accelhost.tensor({{0, 9}, {1, 9}}, {dtype = "int64"}):select(1, 0)
    assert.equal(1, metrics.accuracy():compute{predictions = column, references = {0, 1}}.accuracy)
    assert.equal(2, metrics.accuracy{normalize = false}:compute{predictions = column, references = {0, 1}}.accuracy)
  end)

  it("is empty again after compute, and accepts options for one time there", function()
    local metric = metrics.load("f1", {average = "macro"})
    local rows = {predictions = {0, 2, 1, 1}, references = {0, 1, 1, 2}}
    local macro = metric:compute(rows).f1
    rows.average = "micro"
    assert.equal(0.5, metric:compute(rows).f1)
    rows.average = nil
    assert.equal(macro, metric:compute(rows).f1)
    check.raises("f1: compute: no row was added", function() metric:compute() end)
    metric:add_batch(rows)
    metric:reset()
    check.raises("no row was added", function() metric:compute() end)
  end)

  it("counts as int64 in a confusion matrix, as float64 where it is normalized", function()
    local rows = {predictions = {0, 1, 1}, references = {0, 1, 0}}
    local plain = metrics.confusion_matrix():compute(rows).confusion_matrix
    assert.equal("int64", plain.dtype)
    assert.same({{1, 1}, {0, 1}}, plain:tolist())
    assert.equal("float64", metrics.confusion_matrix{normalize = "all"}:compute(rows).confusion_matrix.dtype)
  end)

  it("of several at once returns all results", function()
    local all = metrics.combine{metrics.accuracy(), metrics.f1 {average = "micro"}}
    all:add_batch{predictions = {1, 0}, references = {1, 1}}
    assert.same({accuracy = 0.75, f1 = 0.75}, all:compute{predictions = {1, 0}, references = {1, 0}})
  end)

  it("of perplexity weighs losses by their tokens", function()
    local metric = metrics.perplexity()
    metric:add_batch{losses = accelhost.tensor {1, 3}, counts = accelhost.tensor({2, 6}, {dtype = "int64"})}
    metric:add_batch{losses = accelhost.tensor(2)}
    metric:add_batch{losses = {0 / 0}, counts = {0}}
    local result = metric:compute()
    check.near(22 / 9, result.mean_loss, 1e-15)
    check.near(math.exp(22 / 9), result.perplexity, 1e-13)
    check.raises("perplexity: counts: expected numbers of at least 0, item 1 is -1",
      function() metric:add_batch{losses = {1}, counts = {-1}} end)
    check.raises("no row was added", function() metric:compute{losses = {1}, counts = {0}} end)
  end)

  it("reads batches of a device when it is computed, whatever became of their tensors since", function()
    local function there(values) return accelhost.tensor(values, {dtype = "int64", device = "far"}) end
    local metric, few = metrics.confusion_matrix(), metrics.accuracy()
    local predictions, references = there {1, 0, 1}, there {1, 0, 0}
    metric:add_batch{predictions = predictions, references = references}
    predictions:zero_()
    metric:add_batch{predictions = predictions, references = references, sample_weight = there {1, 2, 3}}
    metric:add_batch{predictions = {1}, references = {0}}
    metric:add_batch{predictions = predictions:narrow(0, 0, 1), references = there(1)}
    assert.same({{6, 2}, {2, 1}}, metric:compute().confusion_matrix:tolist())
    for _ = 1, 300 do few:add_batch{predictions = there {1, 0}, references = there {1, 1}} end
    assert.equal(0.5, few:compute().accuracy)
    metric:add_batch{predictions = predictions, references = references}
    metric:reset()
    check.raises("no row was added", function() metric:compute() end)
    check.raises("confusion_matrix: predictions has 3 rows, references 1", function()
      metric:add_batch{predictions = predictions, references = there {1}}
    end)
    check.raises("perplexity: counts: expected numbers of at least 0, item 1 is -1", function()
      metrics.perplexity():compute{losses = there {1}, counts = there {-1}}
    end)
  end)

  it("reports mismatched arguments", function()
    local metric = metrics.f1()
    for text, batch in pairs {
      ["f1: predictions: expected the numbers of classes, got a float32 tensor of shape (2,) (scores:argmax(-1)"] =
        {predictions = accelhost.tensor {0, 1}, references = {0, 1}},
      ["f1: references: expected one value for each row, got a tensor of shape (1, 2)"] =
        {predictions = {1}, references = accelhost.zeros({1, 2}, {dtype = "int64"})},
      ["f1: predictions has 1 rows, references 2"] = {predictions = {1}, references = {1, 0}},
      ["f1: add_batch: 'references' is missing"] = {predictions = {1}},
      ["f1: references: expected the numbers of classes, item 2 is number 0.5"] =
        {predictions = {1, 1}, references = {1, 0.5}},
      ["f1: predictions: expected a tensor or a table of numbers, got 'yes'"] = {predictions = "yes", references = {1}},
      ["f1: add_batch: unknown option 'prediction'"] = {prediction = {1}, references = {1}},
    } do
      check.raises(text, function() metric:add_batch(batch) end)
    end
    check.raises('f1: average = "binary" is for two classes, but there are 3',
      function() metric:compute{predictions = {0, 1, 2}, references = {0, 1, 2}} end)
    check.raises("recall: pos_label: there is no class 3 among 0, 1",
      function() metrics.recall{pos_label = 3}:compute{predictions = {0, 1}, references = {0, 1}} end)
    check.raises("precision: zero_division: expected 0, 1, 0 / 0 or 'warn', got number 2",
      function() metrics.precision{zero_division = 2} end)
    check.raises("unknown average 'samples'", function() metrics.f1 {average = "samples"} end)
    check.raises("confusion_matrix: labels: expected at least one that occurs in the references", function()
      metrics.confusion_matrix{labels = {5}}:compute{predictions = {0, 1}, references = {0, 1}}
    end)
    check.raises("accuracy: accelerator: expected an Accelerator, got number 3",
      function() metrics.accuracy{accelerator = 3} end)
    check.raises("load: unknown metric 'acuracy'", function() metrics.load "acuracy" end)
    check.raises("combine: metrics: item 1 is 'f1', expected a metric", function() metrics.combine{"f1"} end)
    check.raises("metrics has no 'F1' (did you mean 'f1'?)", function() return metrics.F1 end)
  end)
end)

checks.describe("Metrics of a job", "spec/distributed/cases/metrics.lua", {1, 2, 3})
