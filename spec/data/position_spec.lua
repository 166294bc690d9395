-- A loader resumes at another's position: the rest of the pass, nothing twice and nothing left out.
local accelhost = require "accelhost"
local data = accelhost.data

local Stream = data.IterableDataset:extend "Stream"
function Stream:init(count) self.count = count end
function Stream:iter()
  local i = -1
  return function()
    i = i + 1
    return i < self.count and i or nil
  end
end

-- The loaders of a job's ranks, which draw rank 0's random numbers.
local function job(ranks, options, set)
  local list, bytes = {}, nil
  for rank = 0, ranks - 1 do
    list[rank + 1] = data.DataLoader(set or data.TensorDataset(accelhost.arange(options.count or 24)),
      {batch_size = options.batch_size, shuffle = options.shuffle, seed = options.seed, sampler = options.sampler,
        num_workers = options.num_workers, batch_sampler = options.batch_sampler})
      :shard {rank = rank, size = ranks, split_batches = options.split, even_batches = options.even}
    list[rank + 1].synchronize = function(draw)
      if rank == 0 then bytes = draw:clone() else draw:copy_(bytes) end
    end
  end
  return list
end

-- Each rank's batches of a pass, at most `count`, and its state after them.
local function walk(list, count)
  local ranks, states = {}, {}
  for rank, loader in ipairs(list) do
    local got = {}
    for batch in loader do
      got[#got + 1] = batch:tolist()
      if #got == count then
        states[rank] = loader:state_dict()
        break
      end
    end
    ranks[rank] = got
  end
  return ranks, states
end

local function all(ranks)
  local samples = {}
  for _, batches in ipairs(ranks) do
    for _, batch in ipairs(batches) do
      for _, sample in ipairs(batch) do samples[#samples + 1] = sample end
    end
  end
  table.sort(samples)
  return samples
end

local function load_all(list, state)
  for _, loader in ipairs(list) do loader:load_state_dict(state) end
  return list
end

local function without(whole, given)
  local rest, seen = {}, {}
  for _, sample in ipairs(given) do seen[sample] = true end
  for _, sample in ipairs(whole) do
    if not seen[sample] then rest[#rest + 1] = sample end
  end
  return rest
end

local function numbers(count)
  local list = {}
  for i = 1, count do list[i] = i - 1 end
  return list
end

describe("a loader's state", function()
  local ways = {
    {"in order", {batch_size = 2}}, {"shuffled", {batch_size = 2, shuffle = true}},
    {"of a seed", {batch_size = 2, shuffle = true, seed = 3}}, {"of split batches", {batch_size = 4, split = true}},
    {"of sampled indices", {batch_size = 2, sampler = data.SubsetRandomSampler(numbers(24))}},
    {"of a stream", {batch_size = 2}, Stream(24)},
    {"of a stream and workers", {batch_size = 2, num_workers = 1}, Stream(24)},
    {"of given batches", {batch_sampler = {{0, 1, 2}, {3}, {4, 5}, {6, 7}, {8, 9, 10, 11}, {12}, {13, 14}, {15},
      {16, 17, 18, 19}, {20}, {21, 22}, {23}}}},
  }
  -- Batches of workers are on the CPU.
  if accelhost.get_default_device() ~= "cpu" then table.remove(ways, 7) end
  for _, way in ipairs(ways) do
    it(("yields the rest of a pass %s, bit for bit"):format(way[1]), function()
      local before, states = walk(job(2, way[2], way[3]), 2)
      if not way[2].shuffle then states[2].seed = states[1].seed end
      assert.same(states[1], states[2])
      local rest = walk(load_all(job(2, way[2], way[3]), states[1]))
      assert.same(without(numbers(24), all(before)), all(rest))
      -- A resumed pass reports its position, too.
      local _, later = walk(load_all(job(2, way[2], way[3]), states[1]), 1)
      local last = walk(load_all(job(2, way[2], way[3]), later[1]))
      for rank = 1, 2 do
        assert.same({unpack(rest[rank], 2)}, last[rank])
      end
    end)
  end

  for _, way in ipairs(ways) do
    if not way[2].num_workers and not way[2].split then
      it(("is good for another number of processes, %s"):format(way[1]), function()
        local before, states = walk(job(2, way[2], way[3]), 2)
        for _, ranks in ipairs {1, 3, 4} do
          local rest = walk(load_all(job(ranks, way[2], way[3]), states[1]))
          local unseen, given = without(numbers(24), all(before)), all(rest)
          -- A last round that does not divide is filled up with earlier samples.
          assert.same({}, without(unseen, given))
          local again = without(given, unseen)
          assert.is_true(#given - #unseen < ranks * 4, #again)
        end
      end)
    end
  end

  it("is good for other batch sizes", function()
    for _, set in ipairs {false, Stream(24)} do
      local options = {batch_size = 2, shuffle = not set or nil}
      local before, states = walk(job(2, options, set or nil), 2) -- 8 samples
      for _, size in ipairs {1, 4, 8} do
        options.batch_size = size
        assert.same(without(numbers(24), all(before)), all(walk(load_all(job(2, options, set or nil), states[1]))))
      end
      options.batch_size, options.even = 3, false
      assert.same(without(numbers(24), all(before)), all(walk(load_all(job(2, options, set or nil), states[1]))))
    end
  end)

  it("fills the last round with the first samples of the pass, not of its rest", function()
    for _, options in ipairs {{batch_size = 4, count = 26}, {batch_size = 4, count = 26, shuffle = true},
      {batch_size = 8, split = true, count = 26, sampler = data.SubsetRandomSampler(numbers(26))}} do
      accelhost.manual_seed(1)
      local whole = walk(job(2, options))
      accelhost.manual_seed(1)
      local before, states = walk(job(2, options), 2)
      accelhost.manual_seed(2)
      local rest = walk(load_all(job(2, options), states[1]))
      for rank = 1, 2 do
        for _, batch in ipairs(rest[rank]) do table.insert(before[rank], batch) end
      end
      assert.same(whole, before)
    end
  end)

  it("leaves a generator of the script's as an undisturbed pass does", function()
    local function trained(stop)
      local generator = accelhost.Generator(4)
      local function loader()
        return data.DataLoader(data.TensorDataset(accelhost.arange(10)),
          {batch_size = 2, shuffle = true, generator = generator}):shard {rank = 0, size = 2}
      end
      local list = {loader()}
      local got, states = walk(list, stop)
      if stop then
        generator:manual_seed(99)
        list = load_all({loader()}, states[1])
        for _, batch in ipairs(walk(list)[1]) do table.insert(got[1], batch) end
      end
      return got, walk(list)
    end
    local got, following = trained()
    local got_again, following_again = trained(1)
    assert.same(got, got_again)
    assert.same(following, following_again)
  end)

  it("resumes at its round where rank 0 makes the batches of all and samples repeat", function()
    local function new()
      local set = data.TensorDataset(accelhost.arange(12))
      local order = data.RandomSampler(set, {replacement = true, num_samples = 24, seed = 5})
      return data.DataLoader(set, {batch_size = 2, sampler = order})
        :shard {rank = 0, size = 2, dispatch = function(parts) return parts[1] end}
    end
    local whole, before, states = walk {new()}, walk({new()}, 2)
    local rest = walk(load_all({new()}, states[1]))
    assert.equal(6, #whole[1])
    assert.same(whole[1], {before[1][1], before[1][2], unpack(rest[1])})
  end)

  it("of workers on a stream cannot resume within a round", function()
    local _, states = walk(job(1, {batch_size = 2}, Stream(24)), 1)
    assert.error_matches(function()
      walk(load_all(job(2, {batch_size = 2, num_workers = 1}, Stream(24)), states[1]))
    end, "with num_workers a stream continues only from a position at the end of a round %(4 samples%)")
  end)

  it("reports its counts", function()
    local _, states = walk(job(2, {batch_size = 2}), 2)
    assert.same({"samples", 8}, {states[1].unit, states[1].position})
    local batches = {{0, 1}, {2}, {3, 4}, {5}}
    assert.error_matches(function() load_all(job(2, {batch_sampler = batches}), states[1]) end,
      "the state counts samples, this loader counts batches")
  end)

  it("skips a hundred million samples without reading them", function()
    local Endless = data.Dataset:extend "Endless"
    function Endless:init() self.read = 0 end
    function Endless:len() return 1e8 end
    function Endless:get(i)
      self.read = self.read + 1
      return i
    end
    local set = Endless()
    local loader = data.DataLoader(set, {batch_size = 100}):shard {rank = 1, size = 2}:skip_first_batches(499999)
    local got = {}
    for batch in loader do got[#got + 1] = batch[0]:item() end
    assert.same({99999900}, got)
    assert.equal(100, set.read)
    assert.equal(1, #loader)
  end)
end)

-- luacheck: ignore 512
describe("a pass", function()
  local function loader(count) return data.DataLoader(data.TensorDataset(accelhost.arange(count or 4))) end
  local passes = require "accelhost.data.loader.passes"
  local function innermost()
    local pass = passes.innermost()
    return pass and pass.loader
  end

  it("is left by break, return, error and goto", function()
    local set = loader()
    for _ in set do
      assert.equal(set, innermost())
      break
    end
    assert.is_nil(innermost())
    local function returns()
      for _ in set do
        local found = innermost()
        return found
      end
    end
    assert.equal(set, returns())
    assert.is_nil(innermost())
    pcall(function()
      for _ in set do error "stop" end
    end)
    assert.is_nil(innermost())
    assert.is_false(set.active)
  end)

  it("restores the enclosing loader as the innermost", function()
    local outer, inner = loader(), loader()
    for _ in outer do
      for _ in inner do
        assert.equal(inner, innermost())
        break
      end
      assert.equal(outer, innermost())
      assert.is_true(outer.active)
      for _ in inner do end
      assert.equal(outer, innermost())
    end
    assert.is_nil(innermost())
  end)

  it("is known under progress and enumerate, and in coroutines", function()
    local set = loader()
    for _, way in ipairs {
      function(list) return accelhost.progress(list, {disable = true}) end, accelhost.enumerate,
      function(list) return accelhost.enumerate(accelhost.progress(list, {disable = true})) end,
    } do
      for _ in way(set) do
        assert.equal(set, innermost())
        break
      end
      assert.is_nil(innermost())
    end
    local walker = coroutine.wrap(function()
      for _ in set do coroutine.yield(innermost()) end
      return "end"
    end)
    assert.equal(set, walker())
    assert.equal(set, innermost())
    repeat until walker() == "end"
    assert.is_nil(innermost())
    local dropped = coroutine.wrap(function()
      for _ in set do coroutine.yield() end
    end)
    dropped()
    assert.equal(set, innermost())
    dropped = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.is_nil(innermost())
  end)

  it("ends in every epoch, and counts them also where batches were skipped", function()
    local set = loader(3)
    local ends, epochs = {}, {}
    for _ = 1, 2 do
      for _ in set do ends[#ends + 1] = set.end_of_dataloader end
    end
    assert.same({false, false, true, false, false, true}, ends)
    assert.is_false(set.end_of_dataloader)
    local rest = set:skip_first_batches(1)
    for _ = 1, 2 do
      for _ in rest do epochs[#epochs + 1] = rest.epoch end
    end
    assert.same({2, 2, 3, 3}, epochs)
    rest:set_epoch(9)
    for _ in rest do assert.equal(9, rest.epoch) end
    for _ in rest do assert.equal(10, rest.epoch) end
  end)

  it("does not keep a loader alive that was dropped in the middle of it", function()
    local held = setmetatable({}, {__mode = "k"})
    local function walk_some()
      local set = loader()
      held[set] = true
      for _ in set do break end
    end
    walk_some()
    for _ = 1, 3 do collectgarbage() end
    assert.is_nil(next(held))
  end)

  it("iterated by hand lasts as long as its batches", function()
    local set = loader()
    local next_batch = set:batches()
    local batch = next_batch()
    assert.equal(set, innermost())
    assert.is_truthy(batch)
    while next_batch() do end
    assert.is_nil(innermost())
  end)
end)
