local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").load "data"
local check = require "spec.support.check"
local data = accelhost.data

local function range(count)
  return data.TensorDataset(accelhost.arange(count))
end

local function all(set)
  local values = {}
  for i = 0, set:len() - 1 do
    local value = set:get(i)
    values[i + 1] = type(value) == "number" and value or value:item()
  end
  return values
end

local function loaded(set)
  local values = {}
  for batch in data.DataLoader(set, {batch_size = 2}) do
    for _, value in ipairs(batch:tolist()) do values[#values + 1] = value end
  end
  return values
end

describe("data sets", function()
  describe("TensorDataset", function()
    it("returns the rows of its tensors", function()
      local set = data.TensorDataset(accelhost.tensor {{1, 2}, {3, 4}, {5, 6}}, accelhost.tensor {7, 8, 9})
      assert.equal(3, set:len())
      local row, label = set:get(1)
      assert.same({3, 4}, row:tolist())
      assert.equal(8, label:item())
    end)

    it("gathers tensors of any layout", function()
      local transposed = accelhost.arange(6):view(2, 3):transpose(0, 1)
      local seen = {}
      for batch in data.DataLoader(data.TensorDataset(transposed), {batch_size = 2}) do
        seen[#seen + 1] = batch:tolist()
      end
      assert.same({{{0, 3}, {1, 4}}, {{2, 5}}}, seen)
    end)

    it("returns batches without gradients", function()
      local weight = accelhost.zeros(3, 2)
      weight.requires_grad = true
      for batch in data.DataLoader(data.TensorDataset(weight)) do assert.is_false(batch.requires_grad) end
    end)

    it("refuses tensors that do not fit together", function()
      assert.error_matches(function() data.TensorDataset() end, "at least one tensor")
      assert.error_matches(function() data.TensorDataset(accelhost.zeros(3), accelhost.zeros(2)) end,
        "argument 1 has 3 rows, argument 2 has 2")
      assert.error_matches(function() data.TensorDataset(accelhost.zeros(3), 4) end, "argument 2 is number 4")
      assert.error_matches(function() data.TensorDataset(accelhost.tensor(3)) end, "no dimension")
      assert.error_matches(function() range(3):get(3) end, "index 3 is out of range %(0 to 2%)")
      assert.error_matches(function() range(3):get(-1) end, "index %-1 is out of range")
    end)
  end)

  describe("Subset", function()
    it("picks by a list, a tensor, or a range", function()
      for _, look in ipairs {all, loaded} do
        assert.same({4, 2, 2}, look(data.Subset(range(5), {4, 2, 2})))
        assert.same({3, 0}, look(data.Subset(range(5), accelhost.tensor({3, 0}, {dtype = "int64"}))))
        assert.same({1, 2, 3}, look(data.Subset(range(5), 1, 3)))
        assert.same({}, look(data.Subset(range(5), {})))
        assert.same({3, 1}, look(data.Subset(data.Subset(range(9), {8, 1, 7, 3}), {3, 1})))
        assert.same({7, 3}, look(data.Subset(data.Subset(range(9), {8, 1, 7, 3}), 2, 2)))
      end
    end)

    it("refuses indices outside the data set", function()
      assert.error_matches(function() data.Subset(range(5), {0, 5}) end,
        "index 5 %(number 2%) is out of range for a data set of 5")
      assert.error_matches(function() data.Subset(range(5), 3, 3) end, "3 samples from 3 on, but the data set has 5")
      assert.error_matches(function() data.Subset(range(5), 3) end, "a first index needs a count of samples")
      assert.error_matches(function() data.Subset({}, {1}) end, "expected a data set")
      assert.error_matches(function() data.Subset(range(5), {1}):get(1) end, "index 1 is out of range")
    end)
  end)

  it("ConcatDataset chains sets one after the other", function()
    local set = data.ConcatDataset {range(2), data.Subset(range(9), {7}), range(3)}
    assert.equal(6, set:len())
    assert.same({0, 1, 7, 0, 1, 2}, all(set))
    assert.same({0, 1, 7, 0, 1, 2}, loaded(set))
    assert.error_matches(function() set:get(6) end, "index 6 is out of range")
    assert.error_matches(function() data.ConcatDataset {} end, "ConcatDataset: datasets: expected at least one")
  end)

  describe("random_split", function()
    it("splits as PyTorch does", function()
      accelhost.manual_seed(0)
      local parts = data.random_split(range(10), {7, 3})
      assert.same(fixtures.split.parts, {parts[1].indices, parts[2].indices})
      parts = data.random_split(range(11), {0.5, 0.3, 0.2}, {generator = accelhost.Generator(42)})
      assert.same(fixtures.split_fractions.parts, {parts[1].indices, parts[2].indices, parts[3].indices})
    end)

    it("refuses lengths that do not sum up", function()
      assert.error_matches(function() data.random_split(range(10), {7, 2}) end,
        "the lengths sum to 9, the data set has 10")
      assert.error_matches(function() data.random_split(range(10), {7.5, 2.5}) end, "expected whole lengths")
      assert.error_matches(function() data.random_split(range(10), {11, -1}) end, "length 2 is number %-1")
      assert.error_matches(function() data.random_split(range(10), {}) end,
      "random_split: lengths: expected at least one")
    end)
  end)

  it("a class of one's own reports which method it lacks", function()
    local Empty = data.Dataset:extend "Empty"
    assert.error_matches(function() Empty():len() end, "Empty has no method len")
    assert.error_matches(function() Empty():get(0) end, "Empty has no method get")
  end)

  describe("collation", function()
    local collate = data.default_collate

    it("stacks tensors and makes tensors of numbers and booleans", function()
      assert.same({{1, 2}, {3, 4}}, collate({accelhost.tensor {1, 2}, accelhost.tensor {3, 4}}):tolist())
      local whole, broken, flags = collate {1, 2}, collate {1, 2.5}, collate {true, false}
      assert.same({"int64", "float32", "bool"}, {whole.dtype, broken.dtype, flags.dtype})
      assert.same({1, 2.5}, broken:tolist())
    end)

    it("walks tables and keeps strings", function()
      local batch = collate {{x = 1, name = "a", pair = {1, 2}}, {x = 3, name = "b", pair = {5, 6}}}
      assert.same({1, 3}, batch.x:tolist())
      assert.same({"a", "b"}, batch.name)
      assert.same({1, 5}, batch.pair[1]:tolist())
      assert.same({2, 6}, batch.pair[2]:tolist())
    end)

    it("reports mismatched arguments", function()
      assert.error_matches(function() collate {1, "a"} end, "sample 1 holds number 1 where sample 2 holds 'a'")
      assert.error_matches(function() collate {{x = 1}, {y = 1}} end, "sample 2 has no field 'x'")
      assert.error_matches(function() collate {print} end, "samples hold a function; pass the loader a collate_fn")
      assert.error_matches(function() collate {} end, "default_collate: batch: expected at least one sample")
    end)
  end)
end)

describe("set[i]", function()
  local Squares = data.Dataset:extend "Squares"
  function Squares:len() return 4 end
  function Squares:get(i) return i, i * i, #self end

  it("is the sample as one value, from the end for negative i, in every data set", function()
    local set = Squares()
    assert.same({3, 9, 4}, set[3])
    assert.same({3, 9, 4}, set[-1])
    assert.equal(2, data.TensorDataset(accelhost.arange(3))[2]:item())
    assert.same({1, 1, 4}, data.Subset(set, {2, 1})[1])
    assert.equal(4, data.Table({label = {3, 4}})[-1].label)
    assert.equal(28, data.SyntheticDigits(true, {size = 4})[0][1]:size(-1))
    local found = Squares()
    collectgarbage()
    assert.same({2, 4, 4}, found[2])
  end)

  it("names the range when outside", function()
    for _, i in ipairs {4, -5, 1.5} do
      assert.error_matches(function() return data.TensorDataset(accelhost.arange(4))[i] end,
        "TensorDataset: index " .. tostring(i):gsub("%p", "%%%0") .. " is out of range %(0 to 3%)")
    end
  end)
end)

describe("A plain table of samples", function()
  local samples = {}
  for i = 1, 5 do samples[i] = {accelhost.full({2}, i), i % 2} end

  it("is a data set, whose lists are samples of several values", function()
    local seen = {}
    for inputs, labels in data.DataLoader(samples, {batch_size = 2}) do
      seen[#seen + 1] = {inputs:sum():item(), labels:tolist()}
    end
    assert.same({{6, {1, 0}}, {14, {1, 0}}, {10, {1}}}, seen)
    local loader = data.DataLoader({{x = 1}, {x = 2}}, {batch_size = 2})
    for batch in loader do assert.same({1, 2}, batch.x:tolist()) end
    for batch in data.DataLoader({"a", "b"}, {batch_size = 2, num_workers = 1}) do assert.same({"a", "b"}, batch) end
  end)

  it("is one for classes that are made of data sets, too", function()
    assert.equal(3, #data.Subset(samples, {0, 2, 4}))
    assert.equal(7, #data.ConcatDataset{samples, {1, 2}})
    assert.same({3, 2}, {#data.random_split(samples, {3, 2})[1], #data.random_split(samples, {3, 2})[2]})
    assert.equal(5, #data.ListDataset(samples))
    assert.same(1, data.ListDataset(samples)[-1][2])
  end)

  it("has no data sets as samples: random_split returns a list", function()
    local train, test = data.random_split(samples, {3, 2})
    assert.is_nil(test)
    check.raises("expected a data set, got a list of 2 data sets (of random_split: local train, test = unpack(sets))",
      data.DataLoader, train, {batch_size = 2})
  end)

  it("has at least one sample", function()
    assert.error_matches(function() data.DataLoader({}, {batch_size = 2}) end,
      "DataLoader: dataset: expected a data set")
    assert.error_matches(function() data.Subset({[2] = 1}, {0}) end, "Subset: dataset: expected a data set")
  end)
end)
