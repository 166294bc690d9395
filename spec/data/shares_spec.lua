-- The samples of each process of a job in a pass, against Accelerate's own lists, and the valid ones among them.
local accelhost = require "accelhost"
local fixture = require("spec.support.fixtures").load("shares").cases
local data = accelhost.data

local Stream = data.IterableDataset:extend "Stream"
function Stream:init(count) self.count = count end
function Stream:len() return self.count end
function Stream:iter()
  local i = -1
  return function()
    i = i + 1
    return i < self.count and i or nil
  end
end

-- A job's parts in one process: rank 0 distributes first, the others receive its parts.
local function dealer()
  local dealt, taken = {}, {}
  return function(rank)
    return function(parts)
      if rank == 0 then dealt[#dealt + 1] = parts end
      taken[rank] = (taken[rank] or 0) + 1
      return dealt[taken[rank]][rank + 1]
    end
  end
end

local function loaders(mode, ranks, samples, batch, flags, more)
  local list, deal_of = {}, dealer()
  local set = mode:find "stream" and Stream(samples) or data.TensorDataset(accelhost.arange(samples))
  local options = {batch_size = batch, drop_last = flags:find "d" ~= nil}
  for name, value in pairs(more or {}) do options[name] = value end
  for rank = 0, ranks - 1 do
    list[rank + 1] = data.DataLoader(set, options):shard {
      rank = rank, size = ranks, split_batches = flags:find "s" ~= nil, even_batches = flags:find "e" ~= nil,
      dispatch = mode:find "dispatch" and deal_of(rank) or nil,
    }
  end
  return list
end

-- Each rank's batches as the fixture writes them; the samples that count, round by round; and lengths.
local function walk(list)
  local texts, counted, lengths, rounds = {}, {}, {}, {}
  for rank, loader in ipairs(list) do
    local parts = {}
    for batch in loader do
      parts[#parts + 1] = table.concat(batch:tolist(), ",")
      rounds[#parts] = rounds[#parts] or {}
      rounds[#parts][rank] = batch:narrow(0, 0, loader.valid_length):tolist()
    end
    texts[rank], lengths[rank] = table.concat(parts, "|"), #parts
  end
  for _, round in ipairs(rounds) do
    for rank = 1, #list do
      for _, sample in ipairs(round[rank] or {}) do counted[#counted + 1] = sample end
    end
  end
  return texts, counted, lengths
end

local function first(count)
  local list = {}
  for i = 1, count do list[i] = i - 1 end
  return list
end

local function name_of(case)
  return ("%s of %d samples in batches of %d for %d (%s)"):format(case[1], case[3], case[4], case[2], case[5])
end

describe("the shares of a pass", function()
  local walked = {}

  -- The batches of a case's job, walked once.
  local function result_of(case)
    if not walked[case] then
      local list = loaders(unpack(case, 1, 5))
      local texts, counted, lengths = walk(list)
      local told = {}
      for rank, loader in ipairs(list) do told[rank] = #loader end
      walked[case] = {texts = texts, counted = counted, lengths = lengths, told = told}
    end
    return walked[case]
  end

  it("are Accelerate's in every mode", function()
    local seen = {}
    for _, case in ipairs(fixture) do
      assert.same({unpack(case, 6)}, result_of(case).texts, name_of(case))
      seen[case[1]] = true
    end
    assert.same({shard = true, dispatch = true, stream = true, stream_dispatch = true}, seen)
  end)

  it("are as many batches as the loader's length", function()
    for _, case in ipairs(fixture) do
      local result = result_of(case)
      assert.same(result.lengths, result.told, name_of(case))
    end
  end)

  it("count every sample once, in the order of the set", function()
    for _, case in ipairs(fixture) do
      if not case[5]:find "d" then
        assert.same(first(case[3]), result_of(case).counted, name_of(case))
      end
    end
  end)

  it("drop nothing for evenness where one process deals", function()
    local texts, counted = walk(loaders("dispatch", 3, 10, 2, ""))
    assert.same({"0,1|6,7", "2,3|8", "4,5|9"}, texts)
    assert.same(first(10), counted)
    assert.same({"0,1", "2", "3"}, (walk(loaders("dispatch", 3, 4, 2, ""))))
    assert.same({"0", "1", ""}, (walk(loaders("dispatch", 3, 2, 2, ""))))
  end)

  it("have one for every process that deals alike, however few samples there are", function()
    assert.same({"0", "0", "0"}, (walk(loaders("dispatch", 3, 1, 2, "e"))))
  end)

  it("have the same lists from workers, and from any place on", function()
    for _, mode in ipairs {"shard", "dispatch"} do
      local plain = walk(loaders(mode, 2, 11, 2, "e"))
      local Slow = data.Dataset:extend "Slow"
      function Slow:init() end
      function Slow:len() return 11 end
      function Slow:get(i) return i end
      local deal_of, list = dealer(), {}
      for rank = 0, 1 do
        list[rank + 1] = data.DataLoader(Slow(), {batch_size = 2, num_workers = 2}):shard {rank = rank, size = 2,
          dispatch = mode == "dispatch" and deal_of(rank) or nil}
      end
      -- Batches of workers are on the CPU.
      if accelhost.get_default_device() == "cpu" then assert.same(plain, (walk(list))) end
      list = loaders(mode, 2, 11, 2, "e")
      for rank, loader in ipairs(list) do list[rank] = loader:skip_first_batches(1) end
      local texts = walk(list)
      for rank = 1, 2 do assert.equal(plain[rank]:match "|(.*)$", texts[rank]) end
      assert.same({2, 2}, {#list[1], #list[2]})
    end
  end)

  it("end a pass of batches of unequal sizes without a change", function()
    local batches = {{0, 1, 2}, {3, 4}, {5, 6, 7, 8}, {9, 10, 11}, {12, 13}}
    local function shares(options)
      local list, deal_of = {}, dealer()
      for rank = 0, 1 do
        local set = data.TensorDataset(accelhost.arange(14))
        list[rank + 1] = data.DataLoader(set, {batch_sampler = batches}):shard {rank = rank, size = 2,
          even_batches = options.even, dispatch = options.dispatch and deal_of(rank) or nil}
      end
      return walk(list)
    end
    local texts, counted = shares {even = true}
    assert.same({"0,1,2|5,6,7,8|12,13", "3,4|9,10,11|0,1,2"}, texts)
    assert.same(first(14), counted)
    texts, counted = shares {even = false}
    assert.same({"0,1,2|5,6,7,8|12,13", "3,4|9,10,11"}, texts)
    assert.same(first(14), counted)
    texts, counted = shares {even = true, dispatch = true}
    assert.same({"0,1,2|5,6,7,8|12", "3,4,0|9,10,11,0|13"}, texts)
    assert.same(first(14), counted)
  end)

  it("do not divide a loader that is sharded already", function()
    local loader = data.DataLoader(data.TensorDataset(accelhost.arange(4)), {batch_size = 2, already_sharded = true})
    local texts = walk {loader:shard {rank = 1, size = 2}}
    assert.same({"0,1|2,3"}, texts)
  end)

  it("refuse a batch size that the processes do not divide", function()
    assert.error_matches(function() loaders("dispatch", 2, 10, 3, "s") end,
      "the batch size %(3%) must be a multiple of the number of processes %(2%)")
  end)
end)
