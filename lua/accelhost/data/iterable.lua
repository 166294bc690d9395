--- Data sets that return their samples one after the other: IterableDataset and ChainDataset, and their batches.
--
--   local Lines = data.IterableDataset:extend "Lines"
--   function Lines:iter() return io.lines(self.path) end
--
-- `iter()` returns a function that returns the next sample, then nil. Each pass begins a new iteration. With workers
-- each of them iterates over the whole set: `data.get_worker_info()` has the part to return. Several ranks iterate over
-- the whole set, too, and keep their part of the batches, unless it has a method shard(num_shards, index) that returns
-- a part as a separate stream (data/partition/stream_shard.lua).
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local rng_streams = require "accelhost.data.rng_streams"
local kinds = require "accelhost.util.kinds"
local pack = require "accelhost.util.pack"
local iteration = require "accelhost.data.iteration"

local fail, signature = arguments.fail, arguments.signature
local iterable = {}

--- The base of data sets that return their samples one after the other, without an index: iter() returns a function
--- that returns the next sample and then nil.
--
--   local Count = data.IterableDataset:extend "Count"
--   function Count:iter()
--     local i = 0
--     return function() i = i + 1 return i <= 3 and i or nil end
--   end
--   for batch in data.DataLoader(Count(), {batch_size = 2}) do assert(batch:size(0) <= 2) end
local IterableDataset = class.sized "IterableDataset"
iterable.IterableDataset = IterableDataset

--- Begin an iteration over the samples: a function that returns the next one (one value or several), then nil; and,
--- where skipping is quicker than reading, a function that skips `count` of them and returns the number skipped, which
--- a loader calls to resume in the middle of a pass. Where the set has a method collate(samples), a loader without a
--- collate_fn makes its batches by it.
---@return fun(): any ...
---@return (fun(count: integer): integer)?
function IterableDataset:iter()
  fail("%s has no method iter()", self._name)
end

--- The number of samples of an iteration, where the set knows it.
--
-- A subclass may also have a method shard(num_shards, index), index from 0, that returns a stream of one part of its
-- samples: in several processes each then reads its own part, instead of reading everything and keeping its part of
-- the batches. It is not called with split_batches or dispatch_batches, nor where a field `num_shards` shows that there
-- are fewer shards than processes. The processes then have as many batches as the longest shard; the rows that fill the
-- others up do not count in metrics.
--
--   local Files = data.IterableDataset:extend "Files"
--   function Files:init(names) self.names, self.num_shards = names, #names end
--   function Files:iter()
--     local i = 0
--     return function() i = i + 1 return self.names[i] end
--   end
--   function Files:shard(num_shards, index)
--     local mine = {}
--     for i = index + 1, #self.names, num_shards do mine[#mine + 1] = self.names[i] end
--     return Files(mine)
--   end
--   for name in Files({"a", "b", "c"}):shard(2, 0):iter() do print(name) end
---@return integer
function IterableDataset:len()
  fail("%s has no method len(): the number of its samples is not known before they are read", self._name)
end

local ChainDataset = IterableDataset:extend "ChainDataset"
iterable.ChainDataset = ChainDataset

--- Does the set know its number of samples?
function iterable.knows_length(set)
  if type(set.len) ~= "function" or set.len == IterableDataset.len then return false end
  for _, link in ipairs(set.len == ChainDataset.len and set.datasets or {}) do
    if not iterable.knows_length(link) then return false end
  end
  return true
end

--- Does the set return shards of itself, by shard(num_shards, index)?
function iterable.can_be_sharded(set)
  if type(set.shard) ~= "function" then return false end
  for _, link in ipairs(set.shard == ChainDataset.shard and set.datasets or {}) do
    if not iterable.can_be_sharded(link) then return false end
  end
  return true
end

local read_chain = signature("ChainDataset", {"datasets: list"})

--- Streams one after the other.
--
--   local Count = data.IterableDataset:extend "Count"
--   function Count:iter()
--     local i = 0
--     return function() i = i + 1 return i <= 2 and i or nil end
--   end
--   for batch in data.DataLoader(data.ChainDataset{Count(), Count()}, {batch_size = 4}) do
--     print(batch)  --> tensor([1, 2, 1, 2])
--   end
---@param datasets IterableDataset[]
function ChainDataset:init(...)
  self.datasets = read_chain(...)
  if #self.datasets == 0 then fail("ChainDataset: datasets: expected at least one") end
  for i, set in ipairs(self.datasets) do
    if not kinds.is_stream(set) then
      fail("ChainDataset: datasets: expected objects with iter(), item %d is %s", i, arguments.describe(set))
    end
  end
end

function ChainDataset:iter()
  local at, following = 0, nil
  local function step(...)
    if (...) ~= nil then return ... end
    at = at + 1
    local set = self.datasets[at]
    if not set then return nil end
    following = set:iter()
    return step(following())
  end
  return function()
    if not following then return step(nil) end
    return step(following())
  end
end

--- The same streams' shards, one after the other, where all of them return some.
---@param index integer from 0
---@return ChainDataset
function ChainDataset:shard(num_shards, index)
  local shards = {}
  for i, set in ipairs(self.datasets) do shards[i] = set:shard(num_shards, index) end
  return ChainDataset(shards)
end

function ChainDataset:len()
  local total = 0
  for _, set in ipairs(self.datasets) do total = total + set:len() end
  return total
end

--- Batches of a stream, in the place of a batch sampler: a batch is a table of samples.
---@field seed userdata? of the pass that begins next
---@field turn integer of the samples' streams: the rank's first, or the worker's
---@field first_turn integer turn of worker 0
local StreamBatches = class.new "StreamBatches"
StreamBatches.is_stream = true
iterable.StreamBatches = StreamBatches

---@param dataset table
---@param batch_size integer
---@param drop_last boolean
function StreamBatches:init(dataset, batch_size, drop_last)
  self.dataset, self.batch_size, self.drop_last, self.first_turn, self.turn = dataset, batch_size, drop_last, 0, 0
  if not iterable.knows_length(dataset) then self.len = false end
end

--- Return the number of samples, where the stream knows it.
---@return integer?
function StreamBatches:sample_count()
  return iterable.knows_length(self.dataset) and self.dataset:len() or nil
end

function StreamBatches:len()
  local count = self.dataset:len()
  return self.drop_last and math.floor(count / self.batch_size) or math.ceil(count / self.batch_size)
end

--- The number of the next pass, for streams that depend on it.
function StreamBatches:set_epoch(epoch)
  if self.dataset.set_epoch then self.dataset:set_epoch(epoch) end
end

-- One more batch: its samples as {values..., n = count}.
local function gather(following, size, seed, position, turn)
  local batch = {}
  local function append(...)
    if (...) == nil then return false end
    batch[#batch + 1] = pack(...)
    return true
  end
  for i = 1, size do
    rng_streams.of(seed, position + i - 1, turn)
    if not append(following()) then return batch, true end
  end
  return batch, false
end

--- Iterate: a function that returns the next batch, then nil. With `from` that many samples are read and left out.
---@param draw nil
---@param from? integer
---@return fun(): table?
function StreamBatches:iter(draw, from) -- luacheck: ignore draw
  local position, ended, seed = 0, false, self.seed
  local following, skip = self.dataset:iter()
  if type(following) ~= "function" then
    fail("%s: iter() returned %s, expected a function that returns the next sample",
      self.dataset._name or "the data set", arguments.describe(following))
  end
  if from and skip then
    position = skip(from)
    ended = position < from
  end
  while from and position < from and not ended do
    local left_out
    left_out, ended = rng_streams.during(gather, following, math.min(self.batch_size, from - position), seed, position,
      self.turn)
    position = position + #left_out
  end
  return function()
    if ended then return nil end
    local batch
    batch, ended = rng_streams.during(gather, following, self.batch_size, seed, position, self.turn)
    position = position + #batch
    if #batch == 0 or self.drop_last and #batch < self.batch_size then return nil end
    return batch
  end
end

iteration.register(StreamBatches.iter, false)

--- The samples of a batch in the form for collating, and the number of values of each.
---@param batch table
---@return any[] samples
---@return integer width
function iterable.samples(batch)
  local samples, width = {}, batch[1] and batch[1].n or 1
  for i, sample in ipairs(batch) do
    if sample.n ~= width then fail("DataLoader: sample %d has %d values, sample 1 has %d", i, sample.n, width) end
    samples[i] = width == 1 and sample[1] or {unpack(sample, 1, width)}
  end
  return samples, width
end

return iterable
