-- Streams of samples, chains of them, and data sets side by side.
local accelhost = require "accelhost"
local data = accelhost.data

local Count = data.IterableDataset:extend "Count"
function Count:init(from, to) self.from, self.to = from, to end
function Count:iter()
  local info, at = data.get_worker_info(), self.from
  local step = info and info.num_workers or 1
  at = at + (info and info.id or 0)
  return function()
    local value = at
    at = at + step
    if value < self.to then return value end
  end
end

local function walk(loader)
  local values = {}
  for batch in loader do values[#values + 1] = table.concat(batch:tolist(), " ") end
  return values
end

describe("A loader over a stream", function()
  it("yields its samples in batches, the last one short or left out", function()
    assert.same({"0 1 2", "3 4 5", "6"}, walk(data.DataLoader(Count(0, 7), {batch_size = 3})))
    assert.same({"0 1 2", "3 4 5"}, walk(data.DataLoader(Count(0, 7), {batch_size = 3, drop_last = true})))
    assert.same({"0 1 2", "3 4 5"}, walk(data.DataLoader(Count(0, 6), {batch_size = 3})))
    assert.same({}, walk(data.DataLoader(Count(0, 0), {batch_size = 3})))
    local loader = data.DataLoader(Count(0, 3))
    assert.same({"0", "1", "2"}, walk(loader))
    assert.same({"0", "1", "2"}, walk(loader))
  end)

  it("knows the last batch and its length, but not how many follow", function()
    for _, workers in ipairs {0, 1} do
      local loader = data.DataLoader(Count(0, 5), {batch_size = 2, num_workers = workers})
      local last, lengths = {}, {}
      for _ in loader do
        last[#last + 1], lengths[#lengths + 1] = loader.end_of_dataloader, loader.batch_length
      end
      assert.same({false, false, true}, last)
      assert.same({2, 2, 1}, lengths)
      assert.error_matches(function() return #loader end, "has no len")
    end
    function Count:len() return self.to - self.from end
    assert.equal(3, #data.DataLoader(Count(0, 5), {batch_size = 2}))
    assert.equal(2, #data.DataLoader(Count(0, 5), {batch_size = 2, drop_last = true}))
    Count.len = nil
  end)

  it("accepts several values a sample, and its own collate_fn", function()
    local Pairs = data.IterableDataset:extend "Pairs"
    function Pairs:iter() -- luacheck: ignore self
      local i = 0
      return function()
        i = i + 1
        if i <= 3 then return i, "n" .. i end
      end
    end
    local numbers, names = data.DataLoader(Pairs(), {batch_size = 3}):batches()()
    assert.same({1, 2, 3}, numbers:tolist())
    assert.same({"n1", "n2", "n3"}, names)
    local batch = data.DataLoader(Pairs(), {batch_size = 2, collate_fn = function(list) return list end}):batches()()
    assert.same({{1, "n1"}, {2, "n2"}}, batch)
  end)

  it("hands each worker's walk out in turns, as PyTorch does", function()
    assert.same({"0 2", "1 3", "4 6", "5"}, walk(data.DataLoader(Count(0, 7), {batch_size = 2, num_workers = 2})))
    assert.same({"0 3", "1 4", "2 5", "6 9", "7 10", "8"},
      walk(data.DataLoader(Count(0, 11), {batch_size = 2, num_workers = 3})))
    local loader = data.DataLoader(Count(0, 4), {num_workers = 2, persistent_workers = true})
    assert.same({"0", "1", "2", "3"}, walk(loader))
    assert.same({"0", "1", "2", "3"}, walk(loader))
  end)

  it("yields each rank its share of the batches, filled up at the end", function()
    local function share(rank, options)
      options.rank, options.size = rank, 2
      return walk(data.DataLoader(Count(0, 9), {batch_size = 2}):shard(options))
    end
    assert.same({"0 1", "4 5", "8 0"}, share(0, {}))
    assert.same({"2 3", "6 7", "1 2"}, share(1, {}))
    assert.same({"0", "2", "4", "6", "8"}, share(0, {split_batches = true}))
    assert.same({"1", "3", "5", "7", "0"}, share(1, {split_batches = true}))
  end)

  it("resumes where it stopped", function()
    local loader, state = data.DataLoader(Count(0, 9), {batch_size = 2}), nil
    for _ in loader do
      if loader.batch_length then
        state = loader:state_dict()
        break
      end
    end
    for _, workers in ipairs {0, 1} do
      local again = data.DataLoader(Count(0, 9), {batch_size = 2, num_workers = workers})
      again:load_state_dict(state)
      assert.same({"2 3", "4 5", "6 7", "8"}, walk(again))
      assert.same({"6 7", "8"}, walk(again:skip_first_batches(3)))
    end
  end)

  it("refuses an order, and values that are not streams", function()
    for _, options in ipairs {{shuffle = true}, {sampler = {1}}, {batch_sampler = {{1}}}} do
      assert.error_matches(function() data.DataLoader(Count(0, 3), options) end, "excludes shuffle, sampler")
    end
    local Empty = data.IterableDataset:extend "Empty"
    assert.error_matches(function() walk(data.DataLoader(Empty())) end, "Empty has no method iter")
    assert.error_matches(function() return #Empty() end, "Empty has no method len")
    function Empty:iter() return 3 end -- luacheck: ignore self
    assert.error_matches(function() walk(data.DataLoader(Empty())) end, "iter%(%) returned number 3")
    local Uneven = data.IterableDataset:extend "Uneven"
    function Uneven:iter() -- luacheck: ignore self
      local i = 0
      return function()
        i = i + 1
        return unpack({1, 2, 3}, 1, i)
      end
    end
    assert.error_matches(function() walk(data.DataLoader(Uneven(), {batch_size = 2})) end,
      "sample 2 has 2 values, sample 1 has 1")
  end)
end)

describe("ChainDataset", function()
  it("yields one stream after the other", function()
    local chain = data.ChainDataset {Count(0, 2), Count(5, 5), Count(7, 9)}
    assert.same({"0 1 7", "8"}, walk(data.DataLoader(chain, {batch_size = 3})))
    assert.error_matches(function() data.ChainDataset {} end, "expected at least one")
    assert.error_matches(function() data.ChainDataset {3} end, "item 1 is number 3")
    assert.error_matches(function() return #chain end, "not known before they are read")
  end)
end)

describe("StackDataset", function()
  local tens = data.TensorDataset(accelhost.arange(4):mul(10))
  local pairs_set = data.TensorDataset(accelhost.arange(4), accelhost.arange(4):neg())

  it("combines samples into tuples, or under names", function()
    local a, b = data.DataLoader(data.StackDataset(tens, pairs_set), {batch_size = 4}):batches()()
    assert.same({0, 10, 20, 30}, a:tolist())
    assert.same({0, -1, -2, -3}, b[2]:tolist())
    local batch = data.DataLoader(data.StackDataset {ten = tens, both = pairs_set}, {batch_size = 2}):batches()()
    assert.same({0, 10}, batch.ten:tolist())
    assert.same({0, 1}, batch.both[1]:tolist())
    assert.equal(4, #data.StackDataset(tens))
  end)

  it("wants data sets of one length", function()
    assert.error_matches(function() data.StackDataset(tens, data.Subset(tens, 0, 2)) end,
      "data set 1 has 4 samples, data set 2 has 2")
    assert.error_matches(function() data.StackDataset() end, "at least one")
    assert.error_matches(function() data.StackDataset(tens, 3) end, "data set 2 is number 3")
    assert.error_matches(function() data.StackDataset(tens):get(4) end, "index 4 is out of range")
  end)
end)
