local accelhost = require "accelhost"
local data = accelhost.data

local function walk(sampler)
  local order = {}
  for index in sampler:iter() do order[#order + 1] = index end
  return order
end

local function set_of(count)
  return data.TensorDataset(accelhost.arange(count))
end

-- The batches of each rank, as a loader yields them, and the remainder.
local function shares(options)
  local result = {}
  for rank = 0, options.size - 1 do
    local loader = data.DataLoader(set_of(options.samples), {
      batch_size = options.batch, drop_last = options.drop_last,
    }):shard {rank = rank, size = options.size, split_batches = options.split, even_batches = options.even}
    local batches = {}
    for batch in loader do
      batches[#batches + 1] = batch:tolist()
      result.remainder = loader.remainder
    end
    assert.equal(#batches, loader:len())
    result[rank + 1] = batches
  end
  return result
end

describe("a loader's share", function()
  -- Accelerate's lists for 10 samples in order.
  local cases = {
    {"whole batches, filled up", {batch = 3, even = true}, {{0, 1, 2}, {6, 7, 8}}, {{3, 4, 5}, {9, 0, 1}}, 4},
    {"whole batches without the incomplete round", {batch = 3, even = true, drop_last = true},
      {{0, 1, 2}}, {{3, 4, 5}}, -1},
    {"whole batches as they come", {batch = 3, even = false}, {{0, 1, 2}, {6, 7, 8}}, {{3, 4, 5}, {9}}, 4},
    {"whole batches, uneven and dropped", {batch = 3, even = false, drop_last = true}, {{0, 1, 2}}, {{3, 4, 5}}, -1},
    {"a short last batch, filled up", {batch = 4, even = true},
      {{0, 1, 2, 3}, {8, 9, 0, 1}}, {{4, 5, 6, 7}, {2, 3, 4, 5}}, 2},
    {"a short last batch for one rank", {batch = 4, even = false}, {{0, 1, 2, 3}, {8, 9}}, {{4, 5, 6, 7}}, 2},
    {"a dropped last batch", {batch = 4, drop_last = true}, {{0, 1, 2, 3}}, {{4, 5, 6, 7}}, -1},
    {"split batches, filled up", {batch = 4, split = true}, {{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}, {0, 1}}, 2},
    {"split batches as they come", {batch = 4, split = true, even = false},
      {{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}}, 2},
    {"split batches, dropped", {batch = 4, split = true, drop_last = true}, {{0, 1}, {4, 5}}, {{2, 3}, {6, 7}}, -1},
  }
  for _, case in ipairs(cases) do
    it("has " .. case[1], function()
      local options = case[2]
      options.samples, options.size = 10, 2
      local found = shares(options)
      assert.same(case[3], found[1])
      assert.same(case[4], found[2])
      assert.equal(case[5], found.remainder)
    end)
  end

  it("fills up on more ranks than batches are left", function()
    local found = shares {samples = 10, batch = 3, size = 3}
    assert.same({{0, 1, 2}, {9, 0, 1}}, found[1])
    assert.same({{3, 4, 5}, {2, 3, 4}}, found[2])
    assert.same({{6, 7, 8}, {5, 6, 7}}, found[3])
  end)

  it("fills up from fewer samples than a round has", function()
    assert.same({{{0, 1, 2, 0}}, {{1, 2, 0, 1}}, remainder = 3}, shares {samples = 3, batch = 4, size = 2})
    assert.same({{{0, 1, 2}}, {}, remainder = 3}, shares {samples = 3, batch = 4, size = 2, even = false})
    assert.same({{}, {}}, shares {samples = 3, batch = 4, size = 2, drop_last = true})
    assert.same({{{0, 0, 0, 0}}, {{0, 0, 0, 0}}, remainder = 1}, shares {samples = 1, batch = 4, size = 2})
    assert.same({{{0, 1}}, {{2, 0}}, remainder = 3}, shares {samples = 3, batch = 4, size = 2, split = true})
    assert.same({{}, {}}, shares {samples = 0, batch = 4, size = 2})
  end)

  it("fills the last round of 20 and 21 samples as Accelerate does", function()
    local found = shares {samples = 20, batch = 3, size = 2}
    assert.same({18, 19, 0}, found[1][4])
    assert.same({1, 2, 3}, found[2][4])
    found = shares {samples = 21, batch = 3, size = 2}
    assert.same({18, 19, 20}, found[1][4])
    assert.same({0, 1, 2}, found[2][4])
  end)

  it("pads with whole batches when the batch size is not known", function()
    local batches = {{0, 1, 2}, {3, 4}, {5, 6, 7, 8}, {9, 10, 11}, {12, 13}}
    local function share(rank, even)
      local loader = data.DataLoader(set_of(14), {batch_sampler = batches})
      local result = {}
      for batch in loader:shard {rank = rank, size = 2, even_batches = even} do result[#result + 1] = batch:tolist() end
      return result
    end
    assert.same({{0, 1, 2}, {5, 6, 7, 8}, {12, 13}}, share(0))
    assert.same({{3, 4}, {9, 10, 11}, {0, 1, 2}}, share(1))
    assert.same({{3, 4}, {9, 10, 11}}, share(1, false))
    assert.error_matches(function()
      data.DataLoader(set_of(14), {batch_sampler = batches}):shard {rank = 0, size = 2, split_batches = true}
    end, "split_batches needs a batch sampler with a batch_size")
  end)

  it("is the whole loader for one process", function()
    local loader = data.DataLoader(set_of(10), {batch_size = 4}):shard {rank = 0, size = 1, split_batches = true}
    assert.same({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}, walk(loader.batch_sampler))
    assert.equal(4, loader.total_batch_size)
  end)

  it("knows the samples of a step of all ranks", function()
    local loader = data.DataLoader(set_of(10), {batch_size = 4})
    assert.equal(12, loader:shard{rank = 0, size = 3}.total_batch_size)
    assert.equal(4, loader:shard{rank = 0, size = 2, split_batches = true}.total_batch_size)
  end)

  it("shares one shuffled order among the ranks", function()
    local seen, bytes = {}, nil
    for rank = 0, 2 do
      accelhost.manual_seed(10 + rank) -- the ranks' own streams differ
      local loader = data.DataLoader(set_of(12), {batch_size = 2, shuffle = true}):shard {rank = rank, size = 3}
      loader.synchronize = function(draw)
        if rank == 0 then bytes = draw else draw:copy_(bytes) end
      end
      for batch in loader do
        for _, index in ipairs(batch:tolist()) do seen[#seen + 1] = index end
      end
    end
    table.sort(seen)
    assert.same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, seen)
  end)

  it("does not synchronise samplers that are not random", function()
    local loader = data.DataLoader(set_of(4), {batch_size = 2}):shard {rank = 0, size = 2}
    loader.synchronize = function() error("not expected") end
    for _ in loader do end
  end)

  it("refuses sizes that do not divide", function()
    local loader = data.DataLoader(set_of(10), {batch_size = 3})
    assert.error_matches(function() loader:shard {rank = 0, size = 2, split_batches = true} end,
      "the batch size %(3%) must be a multiple of the number of processes %(2%)")
    assert.error_matches(function() loader:shard {rank = 2, size = 2} end, "rank: expected 0 to 1, got number 2")
    assert.error_matches(function() loader:shard {rank = 0} end, "shard: 'size' is missing")
    assert.error_matches(function() loader:shard {rank = 0, size = 2, even = true} end, "unknown option 'even'")
    assert.error_matches(function() loader:shard{rank = 0, size = 2}:shard {rank = 0, size = 2} end,
      "one rank's sampler shard already")
  end)
end)
