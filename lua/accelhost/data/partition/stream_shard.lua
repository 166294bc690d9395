--- Batches of the share that a stream returns of itself, instead of a batch sampler's.
--
-- What each rank gets is up to the stream, so nobody knows how much the others have: with even_batches the ranks ask
-- each other before each batch (`agree`, a collective), and one that has ended fills up with its first samples as long
-- as another has some; with drop_last all end with the first one that has no full batch.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local iterable = require "accelhost.data.iterable"
local kinds = require "accelhost.util.kinds"
local walk = require "accelhost.data.walk"

local fail = arguments.fail

---@class StreamShare
---@field batches StreamBatches of the share
local StreamShare = class.new "StreamShare"

local MOST_WORKERS = 256

--- Does the loader's stream give shares, one for each of `size` ranks?
---@param loader DataLoader
---@param options {size: integer, split_batches?: boolean, dispatch?: function}
---@return boolean
function StreamShare.suits(loader, options)
  local set = loader.dataset
  return not options.split_batches and not options.dispatch and iterable.shares_itself(set)
    and (type(set.num_shards) ~= "number" or set.num_shards >= options.size)
end

local function share_of(set, size, rank)
  local share = set:shard(size, rank)
  if not kinds.is_stream(share) then
    fail("%s: shard(%d, %d) returned %s, expected a stream (an object with iter())", set._name or "the data set", size,
      rank, arguments.describe(share))
  end
  return share
end

---@param loader DataLoader
---@param options {rank: integer, size: integer, even_batches?: boolean}
---@param agree fun(has: boolean, every: boolean): boolean has any rank, or every one?
function StreamShare:init(loader, options, agree)
  self.whole, self.rank, self.size = loader.dataset, options.rank, options.size
  self.even_batches, self.agree = options.even_batches ~= false, agree
  local share = share_of(self.whole, self.size, self.rank)
  self.batches = iterable.StreamBatches(share, loader.batch_size, loader.drop_last)
  self.batches.lane = self.rank * MOST_WORKERS -- so that no two ranks' samples draw alike
  self.batches.turn = self.batches.lane
  self.batch_size, self.drop_last, self.uneven = loader.batch_size, loader.drop_last, false
  if not iterable.knows_length(share) then self.len = false end
end

--- How many batches this rank gets, where the shares know how many samples they have.
---@return integer
function StreamShare:len()
  if not self.even_batches then return self.batches:len() end
  local least, most = math.huge, 0
  for rank = 0, self.size - 1 do
    local share = rank == self.rank and self.batches.dataset or share_of(self.whole, self.size, rank)
    local count = iterable.StreamBatches(share, self.batch_size, self.drop_last):len()
    least, most = math.min(least, count), math.max(most, count)
  end
  return self.drop_last and least or most
end

--- The number of batches of all ranks in a round.
---@return integer
function StreamShare:stride() return self.size end

--- Set the epoch of the next pass, on the share too.
---@param epoch integer
function StreamShare:set_epoch(epoch) self.batches:set_epoch(epoch) end

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
function StreamShare:iter(draw, from) -- luacheck: ignore draw
  local take, first = self.batches:iter(), nil
  local function following()
    local batch = take()
    first = first or batch
    return batch
  end
  local rounds = (from or 0) / (self.batch_size * self.size)
  if rounds % 1 ~= 0 then
    fail("DataLoader: shares of a stream continue only from the end of a round of %d samples",
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

--- Do the ranks go on, of which this one has a batch or none? A collective with even_batches; without, each goes on as
--- long as it has some.
---@param has boolean
---@return boolean
function StreamShare:goes_on(has)
  if not self.even_batches then return has end
  return self.agree(has, self.drop_last)
end

--- A batch of which nothing counts, for a rank that has ended while others continue: of the share's first samples, or
--- of the whole stream's where the share has none.
---@return table
function StreamShare:filler()
  local whole = iterable.StreamBatches(self.whole, self.batch_size, self.drop_last)
  whole.seed = self.batches.seed
  local first = self.batches:iter()() or whole:iter()()
  if not first then
    fail("%s: shard(%d, %d) returned no samples, nor does the whole stream, so nothing can fill its batches up while "
      .. "others have some", self.whole._name or "the data set", self.size, self.rank)
  end
  return filled(first, first, self.batch_size)
end

walk.register(StreamShare.iter, false)

return StreamShare
