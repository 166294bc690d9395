-- The order in which the gradients of shards are summed.
local tree = require "accelhost.averaging.shard_tree"
local MicroBatches = require "accelhost.data.partition.micro_batches"
local data = require "accelhost".data

-- The sum of all shards, as text, combined by ranks and then among them.
local function sum_of(shards, ranks)
  local function join(a, b) return "(" .. a .. "+" .. b .. ")" end
  local all = {}
  for rank = 0, ranks - 1 do
    local own = {}
    for shard = rank, shards - 1, ranks do
      own[tree.node(shard, tree.leaf_stride(shards))] = tostring(shard)
      tree.fold(own, shards, join)
    end
    for node, text in pairs(own) do all[node] = text end
  end
  tree.fold(all, shards, join)
  local root = tree.node(0, 1)
  assert.equal(root, (next(all)))
  assert.is_nil(next(all, root))
  return all[root]
end

describe("The tree of shards", function()
  it("halves them by their number", function()
    assert.equal("((0+2)+(1+3))", sum_of(4, 1))
    assert.equal("((0+2)+1)", sum_of(3, 1))
    assert.equal("0", sum_of(1, 1))
    assert.equal("(((0+4)+(2+6))+((1+5)+(3+7)))", sum_of(8, 1))
  end)

  it("is the same for any number of ranks", function()
    for shards = 1, 17 do
      for ranks = 2, shards do assert.equal(sum_of(shards, 1), sum_of(shards, ranks)) end
    end
  end)

  it("is one node on each of a power of two ranks", function()
    for _, ranks in ipairs {1, 2, 4, 8} do
      for rank = 0, ranks - 1 do
        assert.same({tree.node(rank, ranks)}, tree.nodes_of(11, rank, ranks))
      end
    end
    assert.equal(3, #tree.nodes_of(8, 0, 3))
  end)
end)

describe("Shards in turn", function()
  local function turns_of(rank, ranks, shards, options, samples)
    local batches = data.BatchSampler(data.SequentialSampler(samples), {batch_size = 2, drop_last = false})
    local list = {}
    options.rank, options.ranks, options.virtual_shards = rank, ranks, shards
    for batch, valid, filler in MicroBatches(batches, options):iter() do
      list[#list + 1] = table.concat(batch, " ") .. (filler and " filler" or valid < #batch and " of " .. valid or "")
    end
    return list
  end

  it("assign to ranks the batches of as many ranks as shards, and fillers", function()
    assert.same({"0 1", "2 3", "4 5", "6 7", "8 0 of 1", "1 2 of 0"}, turns_of(0, 1, 3, {}, 9))
    assert.same({"0 1", "4 5", "6 7", "1 2 of 0"}, turns_of(0, 2, 3, {}, 9))
    assert.same({"2 3", "0 1 filler", "8 0 of 1", "6 7 filler"}, turns_of(1, 2, 3, {}, 9))
  end)

  it("leave shards out without even_batches", function()
    assert.same({"0 1", "4 5", "6 7", "6 7 filler"}, turns_of(0, 2, 3, {even_batches = false}, 9))
    assert.same({"2 3", "0 1 filler", "8", "6 7 filler"}, turns_of(1, 2, 3, {even_batches = false}, 9))
  end)

  it("resume at a position", function()
    local batches = data.BatchSampler(data.SequentialSampler(9), {batch_size = 2, drop_last = false})
    local next_batch = MicroBatches(batches, {rank = 1, ranks = 2, virtual_shards = 2}):iter(nil, 4)
    assert.same({6, 7}, (next_batch()))
  end)
end)
