--- Batches of the shard that a stream returns of itself, instead of a batch sampler's.
--
-- The stream decides the samples of each rank, so no rank knows the number of the others: with even_batches the ranks
-- ask each other before each batch (`agree`, a collective), and one that has ended fills up with its first samples as
-- long as another has some; with drop_last all end with the first one that has no full batch.
local arguments = require "accelhost.util.arguments"
local Partition = require "accelhost.data.partition.partition"
local iterable = require "accelhost.data.iterable"
local kinds = require "accelhost.util.kinds"
local iteration = require "accelhost.data.iteration"

local fail = arguments.fail

---@field batch_sampler StreamBatches of the shard
local StreamShard = Partition:extend "StreamShard"

local MOST_WORKERS = 256

--- Does the loader's stream return shards, one for each of `size` ranks?
---@param options {size: integer, split_batches?: boolean, dispatch?: function}
function StreamShard.suits(loader, options)
  local set = loader.dataset
  return not options.split_batches and not options.dispatch and iterable.can_be_sharded(set)
    and (type(set.num_shards) ~= "number" or set.num_shards >= options.size)
end

local function shard_of(set, size, rank)
  local shard = set:shard(size, rank)
  if not kinds.is_stream(shard) then
    fail("%s: shard(%d, %d) returned %s, expected a stream (an object with iter())", set._name or "the data set", size,
      rank, arguments.describe(shard))
  end
  return shard
end

---@param options {rank: integer, size: integer, even_batches?: boolean}
---@param agree fun(has: boolean, every: boolean): boolean has any rank, or every one?
function StreamShard:init(loader, options, agree)
  self.whole, self.rank, self.size = loader.dataset, options.rank, options.size
  self.even_batches, self.agree = options.even_batches ~= false, agree
  local shard = shard_of(self.whole, self.size, self.rank)
  self.batch_sampler = iterable.StreamBatches(shard, loader.batch_size, loader.drop_last)
  self.batch_sampler.first_turn = self.rank * MOST_WORKERS -- so that no two ranks' samples draw alike
  self.batch_sampler.turn = self.batch_sampler.first_turn
  self.batch_size, self.drop_last = loader.batch_size, loader.drop_last
end

--- Return the number of this rank's batches, where the shards know their number of samples.
---@return integer
function StreamShard:len()
  if not iterable.knows_length(self.batch_sampler.dataset) then
    fail("DataLoader: the batch sampler has no len()")
  end
  if not self.even_batches then return self.batch_sampler:len() end
  local least, most = math.huge, 0
  for rank = 0, self.size - 1 do
    local shard = rank == self.rank and self.batch_sampler.dataset or shard_of(self.whole, self.size, rank)
    local count = iterable.StreamBatches(shard, self.batch_size, self.drop_last):len()
    least, most = math.min(least, count), math.max(most, count)
  end
  return self.drop_last and least or most
end

function StreamShard:unit() return ("samples of %d shares"):format(self.size) end

-- Return nil: the samples of the other ranks are not known before they are read.
function StreamShard:sample_count() return nil end -- luacheck: ignore self

-- A batch continued by the samples of the first one, read cyclically.
local function filled(batch, first, size)
  if #batch == size then return batch end
  local result = {}
  for i = 1, size do result[i] = batch[i] or first[(i - #batch - 1) % #first + 1] end
  return result
end

--- Iterate over this rank's batches: returns each with the number of its samples that count.
---@param draw nil
---@param from? integer begin at this place of all ranks' samples, where a round begins
---@return fun(): table?, integer?
function StreamShard:iter(draw, from) -- luacheck: ignore draw
  local next_batch, first = self.batch_sampler:iter(), nil
  local function following()
    local batch = next_batch()
    first = first or batch
    return batch
  end
  local rounds = (from or 0) / (self.batch_size * self.size)
  if rounds % 1 ~= 0 then
    fail("DataLoader: shards of a stream continue only from the end of a round of %d samples",
      self.batch_size * self.size)
  end
  for _ = 1, rounds do
    if not following() then break end
  end
  return function()
    local batch = following()
    if not batch then return nil end
    return self.even_batches and filled(batch, first, self.batch_size) or batch, #batch
  end
end

--- Do the ranks continue, of which this one has a batch or none? A collective with even_batches; without, each
--- continues while it has batches.
---@param has boolean
---@param agreed boolean?
function StreamShard:continues(has, agreed)
  if agreed then return true end
  if not self.even_batches then return has end
  return self.agree(has, self.drop_last)
end

--- A batch of which nothing counts, for a rank that has ended while others continue: of the shard's first samples, or
--- of the whole stream's where the shard has none.
---@return table
function StreamShard:filler()
  local whole = iterable.StreamBatches(self.whole, self.batch_size, self.drop_last)
  whole.seed = self.batch_sampler.seed
  local first = self.batch_sampler:iter()() or whole:iter()()
  if not first then
    fail("%s: shard(%d, %d) returned no samples, nor does the whole stream, so nothing can fill its batches up while "
      .. "others have some", self.whole._name or "the data set", self.size, self.rank)
  end
  return filled(first, first, self.batch_size)
end

iteration.register(StreamShard.iter, false)

return StreamShard
