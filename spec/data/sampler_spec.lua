local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").load "data"
local data = accelhost.data

local function walk(sampler)
  local order = {}
  for index in sampler:iter() do order[#order + 1] = index end
  return order
end

-- A generator's next numbers, as the fixtures have them.
local function rest(generator)
  local C = require "accelhost._C"
  return C.data.slice(C.data.whole_numbers(generator, 2 ^ 24, 1), 0, 1)[1]
end

describe("samplers", function()
  describe("RandomSampler", function()
    it("visits in PyTorch's order, drawing its seed from the global generator", function()
      accelhost.manual_seed(0)
      assert.same(fixtures.random.order, walk(data.RandomSampler(10, {num_samples = 25})))
      assert.equal(fixtures.random.rest, rest())
    end)

    it("draws from its own generator as PyTorch does", function()
      local generator = accelhost.Generator(9)
      assert.same(fixtures.random_own.order, walk(data.RandomSampler(10, {num_samples = 25, generator = generator})))
      assert.equal(fixtures.random_own.rest, rest(generator))
      generator = accelhost.Generator(9)
      assert.same(fixtures.random_own_whole.order, walk(data.RandomSampler(10, {generator = generator})))
      assert.equal(fixtures.random_own_whole.rest, rest(generator))
    end)

    it("draws with replacement as PyTorch does", function()
      accelhost.manual_seed(0)
      local options = {replacement = true, num_samples = 40}
      assert.same(fixtures.replacement.order, walk(data.RandomSampler(10, options)))
      assert.equal(fixtures.replacement.rest, rest())
      options.generator = accelhost.Generator(2)
      assert.same(fixtures.replacement_own.order, walk(data.RandomSampler(10, options)))
      assert.equal(fixtures.replacement_own.rest, rest(options.generator))
    end)

    it("with a seed depends on seed and epoch alone", function()
      local sampler = data.RandomSampler(100, {seed = 3})
      accelhost.manual_seed(1)
      local before = rest()
      accelhost.manual_seed(1)
      local first = walk(sampler)
      assert.equal(before, rest())
      assert.same(first, walk(sampler))
      sampler:set_epoch(1)
      local second = walk(sampler)
      assert.not_same(first, second)
      assert.same(second, walk(data.RandomSampler(100, {seed = 4})))
    end)

    it("repeats an order from its draw", function()
      local sampler = data.RandomSampler(50)
      local draw = sampler:draw()
      local function order()
        local list = {}
        for index in sampler:iter(draw) do list[#list + 1] = index end
        return list
      end
      assert.same(order(), order())
    end)

    it("refuses counts that make no sense", function()
      assert.error_matches(function() data.RandomSampler(10, {num_samples = 0}) end, "num_samples: expected an integer")
      assert.error_matches(function() data.RandomSampler("ten") end, "expected a data set or a length, got 'ten'")
      assert.error_matches(function() data.RandomSampler(10, {sed = 1}) end, "unknown option 'sed'")
      assert.error_matches(function() data.RandomSampler(10, {seed = 1, generator = accelhost.Generator()}) end,
        "a seed or a generator, not both")
      assert.error_matches(function() walk(data.RandomSampler(0, {num_samples = 4})) end, "at least one sample")
    end)
  end)

  it("SequentialSampler counts from 0", function()
    assert.same({0, 1, 2}, walk(data.SequentialSampler(3)))
    assert.same({}, walk(data.SequentialSampler(0)))
  end)

  it("SubsetRandomSampler draws straight from the generator, as PyTorch does", function()
    accelhost.manual_seed(0)
    assert.same(fixtures.subset.order, walk(data.SubsetRandomSampler({3, 1, 4, 15, 9, 2, 6})))
    assert.equal(fixtures.subset.rest, rest())
  end)

  it("WeightedRandomSampler draws as PyTorch does", function()
    local weights = {0.1, 0.9, 0.4, 0.7, 3.0, 0.6}
    accelhost.manual_seed(0)
    assert.same(fixtures.weighted.order, walk(data.WeightedRandomSampler(weights, 12)))
    assert.equal(fixtures.weighted.rest, rest())
    local own = data.WeightedRandomSampler(weights, 12, {generator = accelhost.Generator(0)})
    accelhost.manual_seed(5)
    local before = rest()
    accelhost.manual_seed(5)
    assert.same(fixtures.weighted.order, walk(own))
    assert.equal(before, rest())
    assert.equal(fixtures.weighted.rest, rest(own.generator))
    assert.error_matches(function() data.WeightedRandomSampler(weights, 7, false) end, "7 samples without replacement")
  end)

  it("DistributedSampler yields PyTorch's shares", function()
    for _, case in ipairs(fixtures.distributed) do
      for rank = 0, case.replicas - 1 do
        local sampler = data.DistributedSampler(case.length, {
          num_replicas = case.replicas, rank = rank, shuffle = case.shuffle,
          drop_last = case.drop_last, seed = case.seed,
        })
        sampler:set_epoch(case.epoch)
        assert.same(case.shares[rank + 1], walk(sampler))
        assert.equal(#case.shares[rank + 1], sampler:len())
      end
    end
    assert.error_matches(function() data.DistributedSampler(4, {num_replicas = 2, rank = 2}) end,
      "rank: expected 0 to 1, got number 2")
  end)

  describe("BatchSampler", function()
    it("groups indices and keeps or drops the last short batch", function()
      assert.same({{0, 1, 2}, {3, 4, 5}, {6}}, walk(data.BatchSampler(data.SequentialSampler(7), 3)))
      assert.same({{0, 1, 2}, {3, 4, 5}}, walk(data.BatchSampler(data.SequentialSampler(7), 3, true)))
      assert.equal(3, data.BatchSampler(data.SequentialSampler(7), 3):len())
      assert.equal(2, data.BatchSampler(data.SequentialSampler(7), 3, true):len())
    end)

    it("accepts a plain table and a sampler of one's own", function()
      assert.same({{5, 3}, {5}}, walk(data.BatchSampler({5, 3, 5}, 2)))
      local countdown = {}
      function countdown.iter()
        local at = 4
        return function()
          at = at - 1
          if at >= 0 then return at end
        end
      end
      local batches = data.BatchSampler(countdown, 3)
      assert.same({{3, 2, 1}, {0}}, walk(batches))
      assert.error_matches(function() batches:len() end, "has no len")
    end)

    it("stops asking a sampler that has ended", function()
      local calls = 0
      local once = {iter = function()
        return function()
          calls = calls + 1
          if calls == 1 then return 0 end
          if calls > 2 then error("asked again") end
        end
      end}
      local next_batch = data.BatchSampler(once, 2):iter()
      assert.same({0}, next_batch())
      assert.is_nil(next_batch())
      assert.equal(2, calls)
    end)

    it("refuses values that are not samplers", function()
      assert.error_matches(function() data.BatchSampler(7, 2) end, "expected a sampler")
      assert.error_matches(function() data.BatchSampler({1}, 0) end,
        "batch_size: expected an integer of at least 1, got number 0")
      assert.error_matches(function() data.BatchSampler({1}, 1.5) end, "got number 1.5")
    end)
  end)
end)
