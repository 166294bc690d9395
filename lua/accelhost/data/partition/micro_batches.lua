--- Virtual shards: a fixed number of parts of a round, computed by any number of ranks as micro-batches.
--
-- A round is the samples that `virtual_shards` ranks would get in one step (sampler_shard.lua). Rank r of n computes
-- the virtual shards r, r + n, r + 2 n, ... of it, in as many micro-batches on every rank: one that has no virtual
-- shard left for the last one, or whose virtual shard a last round without even_batches leaves out, gets the round's
-- first batch again, as a filler that counts for nothing. So ranks make the same calls in every micro-batch, and
-- results gathered by micro-batch are in the order of the virtual shards.
local BatchSamplerShard = require "accelhost.data.partition.sampler_shard"
local Partition = require "accelhost.data.partition.partition"
local iteration = require "accelhost.data.iteration"

---@field size integer number of virtual shards
local MicroBatches = Partition:extend "MicroBatches"

---@param options {rank: integer, ranks: integer, virtual_shards: integer, split_batches?: boolean,
--- even_batches?: boolean}
function MicroBatches:init(batch_sampler, options)
  self.round = BatchSamplerShard(batch_sampler, {
    rank = 0, size = options.virtual_shards, split_batches = options.split_batches, even_batches = options.even_batches,
  })
  self.batch_sampler, self.rank, self.ranks, self.size = batch_sampler, options.rank, options.ranks, self.round.size
  self.batches_per_round = math.ceil(self.size / self.ranks)
  self.split_batches, self.even_batches = self.round.split_batches, self.round.even_batches
  self.batch_size, self.drop_last = self.round.batch_size, self.round.drop_last
end

--- Return the number of rounds of a pass.
---@return integer
function MicroBatches:len() return self.round:len() end

--- Return the virtual shard that is this rank's micro-batch, from 0; the number of virtual shards or more when it has
--- none.
---@param micro_batch integer from 0
---@return integer
function MicroBatches:virtual_shard(micro_batch) return micro_batch * self.ranks + self.rank end

--- Iterate over this rank's micro-batches: return each with the number of its samples that count, and whether it is a
--- filler.
---@param draw? userdata
---@param from? integer place of the batch sampler (see data/iteration.lua), where a round begins
---@return fun(): integer[]?, integer?, boolean?
function MicroBatches:iter(draw, from)
  local shards, count = self.round, self.batches_per_round
  local next_round, cut = shards:rounds(draw, from or 0)
  local micro_batch, round, given = count, nil, nil
  return function()
    if micro_batch == count then
      round, given = next_round()
      if round == nil then return nil end
      micro_batch, self.uneven = 0, shards.uneven
    end
    local shard, batch, valid = self:virtual_shard(micro_batch), nil, nil
    micro_batch = micro_batch + 1
    if shard < self.size then batch, valid = cut(shards, shard, round, given) end
    if batch then return batch, valid, false end
    return cut(shards, 0, round, given), 0, true
  end
end

iteration.register(MicroBatches.iter, false)

return MicroBatches
