--- Shards of a fixed number, dealt to any number of ranks: the batches that a rank computes one after the other.
--
-- A round is what `shards` ranks would get in one step (sampler_shard.lua). Rank r of n computes the shards r, r + n,
-- r + 2 n, ... of it, in as many turns on every rank: one that has no shard left in the last turn, or a shard that a
-- last round without even_batches leaves out, gets the round's first batch again, as a filler that counts for nothing.
-- So ranks make the same calls in every turn, and results gathered turn by turn are in the order of the shards.
local class = require "accelhost.util.class"
local walk = require "accelhost.data.walk"
local BatchSamplerShard = require "accelhost.data.partition.sampler_shard"

---@class ShardTurns
---@field shards integer
---@field turns integer batches of a round that each rank gets
---@field uneven boolean are the shards of the current round of unequal lengths?
local ShardTurns = class.sized "ShardTurns"

---@param batch_sampler table
---@param options {rank: integer, ranks: integer, shards: integer, split_batches?: boolean, even_batches?: boolean}
function ShardTurns:init(batch_sampler, options)
  self.share = BatchSamplerShard(batch_sampler, {
    rank = 0, size = options.shards, split_batches = options.split_batches, even_batches = options.even_batches,
  })
  self.rank, self.ranks, self.size = options.rank, options.ranks, options.shards
  self.turns = math.ceil(self.size / self.ranks)
  self.split_batches, self.even_batches = self.share.split_batches, self.share.even_batches
  self.batch_size, self.drop_last, self.uneven = self.share.batch_size, self.share.drop_last, false
end

--- What is random about the next pass; nil when nothing is.
---@return userdata?
function ShardTurns:draw() return self.share:draw() end

---@param epoch integer
function ShardTurns:set_epoch(epoch) self.share:set_epoch(epoch) end

---@return integer?
function ShardTurns:sample_count() return self.share:sample_count() end

---@return integer
function ShardTurns:stride() return self.share:stride() end

--- How many rounds a pass has.
---@return integer
function ShardTurns:len() return self.share:len() end

--- The shard that this rank computes in a turn, from 0; the number of shards or more when it has none.
---@param turn integer from 0
---@return integer
function ShardTurns:shard_of(turn) return turn * self.ranks + self.rank end

--- Iterate over this rank's batches, turn by turn: returns each with the number of its samples that count, and whether
--- it is a filler.
---@param draw? userdata
---@param from? integer place of the batch sampler (see data/walk.lua), where a round begins
---@return fun(): integer[]?, integer?, boolean?
function ShardTurns:iter(draw, from)
  local share, turns = self.share, self.turns
  local next_round, cut = share:rounds(draw, from or 0)
  local turn, round, given = turns, nil, nil
  return function()
    if turn == turns then
      round, given = next_round()
      if round == nil then return nil end
      turn, self.uneven = 0, share.uneven
    end
    local shard, batch, valid = self:shard_of(turn), nil, nil
    turn = turn + 1
    if shard < self.size then batch, valid = cut(share, shard, round, given) end
    if batch then return batch, valid, false end
    return cut(share, 0, round, given), 0, true
  end
end

walk.register(ShardTurns.iter, false)

return ShardTurns
