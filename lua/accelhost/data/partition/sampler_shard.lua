--- Sampler shards: one rank's part of a batch sampler, with Accelerate's index lists.
--
-- Without split_batches the ranks get whole batches in turn; a round counts when every rank has its batch. With
-- split_batches each batch is cut into equal parts. With even_batches (the default) the last round is filled up with
-- samples from the start of the sampler's order, so that every rank has the same number of full batches. With `share`
-- the batches of a round are concatenated and cut in these batch proportions.
local arguments = require "accelhost.util.arguments"
local Partition = require "accelhost.data.partition.partition"
local batch_proportions = require "accelhost.data.partition.proportions"
local iteration = require "accelhost.data.iteration"

local fail, describe = arguments.fail, arguments.describe

local BatchSamplerShard = Partition:extend "BatchSamplerShard"

local read = arguments.signature("shard", {
  "batch_sampler: sampler", "rank: size", "size: count", {"split_batches: flag", false}, {"even_batches: flag", true},
  {"share: list"},
})

-- Every rank gets something of a full round.
local function check_proportions(numbers, size, total)
  if #numbers ~= size then fail("shard: share: expected a number for each of %d ranks, got %d", size, #numbers) end
  for rank, count in ipairs(total and batch_proportions.split(total, numbers) or {}) do
    if count == 0 then
      fail("shard: share: %s of a global batch of %d samples leaves nothing for rank %d",
        batch_proportions.text(numbers), total, rank - 1)
    end
  end
end

--- batch_sampler:iter() returns the batches of all ranks; this one returns rank's.
--
--   local batches = data.BatchSampler(data.SequentialSampler(8), {batch_size = 2, drop_last = false})
--   #data.BatchSamplerShard(batches, {rank = 0, size = 2})  --> 2
---@param size integer number of ranks
---@param share? integer[] each rank's part of a round, in proportion; default: all the same
function BatchSamplerShard:init(...)
  local batch_sampler, rank, size, split_batches, even_batches, proportions = read(...)
  if rank >= size then fail("shard: rank: expected 0 to %d, got %s", size - 1, describe(rank)) end
  local batch_size = batch_sampler.batch_size
  if split_batches then
    if not batch_size then fail("shard: split_batches needs a batch sampler with a batch_size") end
    if batch_size % size ~= 0 and not proportions then
      fail("shard: with split_batches the batch size (%d) must be a multiple of the number of processes (%d)",
        batch_size, size)
    end
  end
  self.proportions = proportions or false
  self.batch_sampler, self.rank, self.size = batch_sampler, rank, size
  self.split_batches, self.even_batches = split_batches, even_batches
  self.batch_size = batch_size
  if proportions then check_proportions(proportions, size, self:round_length()) end
  self.drop_last = batch_sampler.drop_last or false
end

--- Return the number of this rank's batches.
---@return integer
function BatchSamplerShard:len()
  local total = self.batch_sampler:len()
  if self.proportions then return self:_proportional_len(total) end
  if self.split_batches then
    local samples = self:sample_count()
    if self.even_batches or self.drop_last or not samples then return total end
    local tail = samples % self.batch_size
    -- A short last batch may leave nothing for the last ranks.
    return tail > 0 and tail <= self.rank * self.batch_size / self.size and total - 1 or total
  end
  local rounds, extra = math.floor(total / self.size), total % self.size
  if not self.drop_last and extra > 0 and (self.even_batches or self.rank < extra) then return rounds + 1 end
  return rounds
end

-- All ranks have the same rounds, but for a last one that has no sample for some.
function BatchSamplerShard:_proportional_len(total)
  local rounds, samples = total / self:stride(), self:sample_count()
  if self.drop_last then return math.floor(rounds) end
  local count = math.ceil(rounds)
  if self.even_batches or not samples or not self.batch_size then return count end
  local tail = samples % (self.batch_size * self:stride())
  local _, mine = batch_proportions.part(tail, self.proportions, self.rank)
  return tail > 0 and mine == 0 and count - 1 or count
end

-- The first `count` items of `batch`, continued by those of `start`, read cyclically from its place `at` on.
local function filled_up(batch, count, start, at)
  local result, have, around = {}, #batch, #start
  for i = 1, count do
    result[i] = i <= have and batch[i] or start[(at + i - have - 1) % around + 1]
  end
  return result
end

local function part(batch, first, count)
  local result = {}
  for i = 1, count do result[i] = batch[first + i] end
  return result
end

local function at_least(value, least) return value > least and value or least end

-- Iterators over rounds: each returns the data that a part is cut from, and the number of the part's samples that
-- count.

function BatchSamplerShard:_iter_split(draw, from)
  local size = self.batch_size
  local next_batch, head = iteration.with_head(self.batch_sampler, draw, from, 1)
  local start
  return function()
    local batch = next_batch()
    if batch and #batch < size and self.drop_last then batch = nil end
    if not batch then return nil end
    start = start or head or batch
    local have = #batch
    if have < size and self.even_batches then
      start = type(start) == "function" and start()[1] or start
      batch = filled_up(batch, size, start, 0)
    end
    self.uneven = #batch < size
    return batch, have
  end
end

function BatchSamplerShard:_cut_split(rank, batch, have)
  local length = self.batch_size / self.size
  local mine = part(batch, rank * length, length)
  if not mine[1] then return nil end
  return mine, math.min(#mine, at_least(have - rank * length, 0))
end

local function is_uneven(round)
  for i = 2, #round do
    if #round[i] ~= #round[1] then return true end
  end
  return false
end

-- Fill up the batches of an incomplete round: short and missing ones get samples of the first round, read cyclically
-- from rank to rank; without a known batch size missing ones get whole batches of it.
function BatchSamplerShard:_fill(round, first_round)
  local size, filled = self.batch_size, {}
  if not size then
    for rank = 1, self.size do
      filled[rank] = round[rank] or first_round[(rank - #round - 1) % #first_round + 1]
    end
    return filled
  end
  local start, count = {}, 0
  for _, batch in ipairs(first_round) do
    for i = 1, #batch do
      count = count + 1
      start[count] = batch[i]
    end
  end
  local at = 0
  for rank = 1, self.size do
    local batch, have = round[rank] or {}, round[rank] and #round[rank] or 0
    filled[rank] = filled_up(batch, size, start, at)
    at = at + math.max(0, size - have)
  end
  return filled
end

function BatchSamplerShard:_iter_whole(draw, from)
  local ranks, size = self.size, self.batch_size
  local next_batch, head = iteration.with_head(self.batch_sampler, draw, from, ranks)
  local first_round, ended
  return function()
    if ended then return nil end
    local round, count = {}, 0
    for rank = 1, ranks do
      local batch = next_batch()
      if not batch then break end
      round[rank], count = batch, rank
    end
    first_round = first_round or head or round
    local complete = count == ranks and (not size or #round[ranks] == size)
    ended = count < ranks
    if count == 0 or not complete and self.drop_last then
      ended = true
      return nil
    end
    local given = round
    if not complete and self.even_batches then
      first_round = type(first_round) == "function" and first_round() or first_round
      round = self:_fill(round, first_round)
    end
    self.uneven = (not complete or not size) and is_uneven(round)
    return round, given
  end
end

function BatchSamplerShard:_cut_whole(rank, round, given)
  return round[rank + 1], given[rank + 1] and #given[rank + 1] or 0
end

local function cut_nothing(_, _, batch, valid) return batch, valid or #batch end

-- Return all samples of a round, whole batches or one batch, and the number of those that are no repetitions.
local function joined(round, given)
  if type(given) == "number" then return round, given end
  local all, have = {}, 0
  for rank = 1, #round do
    for _, sample in ipairs(round[rank]) do all[#all + 1] = sample end
    have = have + (given[rank] and #given[rank] or 0)
  end
  return all, have
end

function BatchSamplerShard:_cut_proportional(rank, round, given)
  local all, have = joined(round, given)
  local first, count = batch_proportions.part(#all, self.proportions, rank)
  if count == 0 then return nil end
  return part(all, first, count), math.min(count, at_least(have - first, 0))
end

-- The ranks' batches differ in length.
function BatchSamplerShard:_iter_proportional(draw, from)
  local next_round = self.split_batches and self:_iter_split(draw, from) or self:_iter_whole(draw, from)
  return function()
    local round, given = next_round()
    self.uneven = true
    return round, given
  end
end

--- Iterate over rounds; also returns the function of rank's batch of one: cut(self, rank, results of the iterator).
---@param draw? userdata
---@param from integer
---@return fun(): any, any
---@return fun(self: BatchSamplerShard, rank: integer, round: any, given: any): integer[]?, integer?
function BatchSamplerShard:rounds(draw, from)
  if self.size == 1 then return iteration.from(self.batch_sampler, draw, from), cut_nothing end
  if self.proportions then return self:_iter_proportional(draw, from), self._cut_proportional end
  if self.split_batches then return self:_iter_split(draw, from), self._cut_split end
  return self:_iter_whole(draw, from), self._cut_whole
end

--- Iterate over this rank's batches: returns each with the number of its valid samples, which are the first; the others
--- fill it up.
---@param draw? userdata
---@param from? integer begin at this place of the batch sampler (see data/iteration.lua), where a round begins
---@return fun(): integer[]?, integer?
function BatchSamplerShard:iter(draw, from)
  from = from == nil and 0 or arguments.check("iter", "from", "size", from)
  if self.size == 1 then return iteration.from(self.batch_sampler, draw, from) end
  local next_round, cut = self:rounds(draw, from)
  return function()
    local round, given = next_round()
    if round == nil then return nil end
    return cut(self, self.rank, round, given)
  end
end

-- The batches of a stream that all ranks read are divided as it was when the loader was prepared.
function BatchSamplerShard:exchange_even_batches(even)
  if self.batch_sampler.is_stream then return nil end
  return Partition.exchange_even_batches(self, even)
end

iteration.register(BatchSamplerShard.iter, false)

return BatchSamplerShard
