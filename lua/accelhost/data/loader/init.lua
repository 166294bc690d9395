--- DataLoader: batches of a data set, one pass per `for`.
--
--   local loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
--   for inputs, labels in loader do print(inputs:size(0)) end
--
-- Each `for` is a separate pass; passes may be nested and left by break.
-- The order of a shuffled pass is PyTorch's: a pass draws one number, then the sampler's seed, then the permutation
-- from a fresh generator; a loader that does not shuffle draws the one number too. With `seed` nothing is drawn: the
-- permutation is a function of seed and epoch.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local dataset = require "accelhost.data.sets.dataset"
local kinds = require "accelhost.util.kinds"
local later = require "accelhost.util.later"
local Pass = require "accelhost.data.loader.pass"
local passes = require "accelhost.data.loader.passes"
local sampler = require "accelhost.data.sampler"
local Whole = require "accelhost.data.partition.whole"

local iterable = later "accelhost.data.iterable"
local function sampler_shard(...) return require "accelhost.data.partition.sampler_shard"(...) end
local fail = arguments.fail

---@field dataset Dataset
---@field batch_size integer? nil with a batch sampler that has none
---@field sampler table?
---@field batch_sampler table
---@field drop_last boolean
---@field epoch integer number of the current or last pass, from 0
---@field end_of_dataloader boolean true while the last batch of the current pass is being processed
---@field remainder integer samples of the last round that are not full rounds, -1 with drop_last or when not known
---@field partition Partition which of the batches are this process's
---@field turns integer batches that a `for` yields to this process in each step: 1, but with virtual_shards
---@field total_batch_size integer? samples per step of all ranks together
---@field active boolean is the innermost running pass one of this loader?
---@field batch_length integer? samples in the current batch of this rank
---@field valid_length integer? number of valid ones among them: those after them repeat others to fill the batch up
---@field uneven boolean are the ranks' batches of the current round of unequal lengths?
---@field synchronize (fun(bytes: userdata): any)? called with each pass's draw; copies rank 0's bytes to every rank in
--- place
---@field device string? the device that batches are copied to; nil leaves them where they are
---@field non_blocking boolean? false: the device copies a batch when its kernels have reached it
---@field pin_memory boolean
local DataLoader = class.without_positions(class.sized "DataLoader",
  "for inputs, labels in loader do iterates over the batches")
DataLoader._is_loader = true

local read = arguments.signature("DataLoader", {
  "dataset: dataset|stream", {"batch_size: count"}, {"shuffle: flag"}, {"sampler: sampler"}, {"batch_sampler: sampler"},
  {"num_workers: size", 0}, {"collate_fn: callable"}, {"drop_last: flag"}, {"generator: generator"}, {"seed: size"},
  {"prefetch: size", 2}, {"timeout: nonnegative", 0}, {"worker_init_fn: callable"}, {"prefetch_factor: count"},
  {"persistent_workers: flag", false}, {"already_sharded: flag", false}, {"pin_memory: flag", false},
})

local MOST_WORKERS, MOST_AHEAD = 256, 64

local function set_workers(self, count, timeout, init_fn, factor, persistent)
  if count == 0 and (timeout > 0 or factor or persistent) then
    fail("DataLoader: timeout, prefetch_factor and persistent_workers are for num_workers above 0")
  end
  if count > MOST_WORKERS then fail("DataLoader: num_workers: expected at most %d, got %d", MOST_WORKERS, count) end
  if factor and factor > MOST_AHEAD then
    fail("DataLoader: prefetch_factor: expected at most %d, got %d", MOST_AHEAD, factor)
  end
  self.num_workers, self.timeout, self.worker_init_fn = count, timeout, init_fn
  self.prefetch_factor, self.persistent_workers = factor or 2, persistent
end

local function set_stream(self, batch_size, shuffle, own_sampler, batch_sampler, drop_last)
  if shuffle or own_sampler or batch_sampler then
    fail("DataLoader: a stream of samples (an object with iter()) excludes shuffle, sampler and batch_sampler")
  end
  self.stream = iterable.StreamBatches(self.dataset, batch_size or 1, drop_last or false)
  self.batch_sampler, self.batch_size, self.drop_last = self.stream, self.stream.batch_size, self.stream.drop_last
end

--- Batches of a data set, in its order or shuffled: a `for` over the loader is one epoch, `#loader` its batches.
--
--   local loader = data.DataLoader(set, {batch_size = 2, shuffle = true})
--   #loader  --> 3
---@param dataset Dataset|IterableDataset|table with get(i) and len(), a table of samples (data.ListDataset), or a
--- stream of samples with iter()
---@param batch_size? integer samples in a batch, 1 without
---@param shuffle? boolean a new random order in each pass; without, the data set's
---@param sampler? table order of the samples, instead of shuffle
---@param batch_sampler? table order and grouping, instead of batch_size, shuffle, sampler and drop_last
---@param num_workers? integer processes that make the batches, default 0: this one makes them; sets in tensors have no
--- use for them, since a thread in C gathers their batches
---@param collate_fn? fun(samples: table): any makes a batch of samples; default: default_collate
---@param drop_last? boolean leave out a last batch that is not full; without, it is yielded
---@param generator? userdata source of this loader's draws, instead of the global generator
---@param seed? integer make the order a function of this seed and the epoch
---@param prefetch? integer batches gathered ahead of sets in tensors, default 2
---@param timeout? number seconds to wait for a worker, default 0: without end
---@param worker_init_fn? fun(id: integer) called in each worker, after its generator was seeded
---@param prefetch_factor? integer batches under way in each worker, default 2
---@param persistent_workers? boolean keep the workers, and the data set as they know it, between passes
---@param already_sharded? boolean the order is this process's sampler shard already: accelerator:prepare leaves it as
--- it is
---@param pin_memory? boolean batches are in page-locked memory, which CUDA devices read by themselves, for
--- t:to("cuda", {non_blocking = true}); those of prepared loaders, which are on the device, are copied from it anyway
function DataLoader:init(...)
  local set, batch_size, shuffle, own_sampler, batch_sampler, workers, collate_fn, drop_last, generator, seed,
    prefetch, timeout, init_fn, factor, persistent, already_sharded, pin_memory = read(...)
  set = dataset.of(set)
  self.dataset, self.already_sharded, self.pin_memory = set, already_sharded, pin_memory
  set_workers(self, workers, timeout, init_fn, factor, persistent)
  if seed and generator then fail("DataLoader: pass a seed or a generator, not both") end
  self.collate_fn, self.generator, self.seed, self.prefetch = collate_fn, generator, seed, prefetch
  if kinds.is_stream(set) then
    if not collate_fn and type(set.collate) == "function" then
      self.collate_fn = function(samples) return set:collate(samples) end
    end
    set_stream(self, batch_size, shuffle, own_sampler, batch_sampler, drop_last)
  elseif batch_sampler then
    if batch_size or shuffle or own_sampler or drop_last then
      fail("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    end
    self.batch_sampler = sampler.wrap(batch_sampler)
    self.batch_size, self.drop_last = self.batch_sampler.batch_size, self.batch_sampler.drop_last or false
    self.sampler = self.batch_sampler.sampler
  else
    if own_sampler and shuffle then fail("DataLoader: a sampler excludes shuffle") end
    if own_sampler then
      self.sampler = sampler.wrap(own_sampler)
    elseif shuffle then
      if set:len() == 0 then fail("DataLoader: expected a data set with at least one sample to shuffle") end
      self.sampler = sampler.RandomSampler(set, {generator = generator, seed = seed})
    else
      self.sampler = sampler.SequentialSampler(set)
    end
    self.batch_sampler = sampler.BatchSampler(self.sampler, batch_size or 1, drop_last)
    self.batch_size, self.drop_last = self.batch_sampler.batch_size, self.batch_sampler.drop_last
  end
  self:_reset()
  self.partition = Whole(self.batch_sampler)
  self.total_batch_size, self.turns = self.batch_size, 1
end

function DataLoader:_reset()
  self.epoch = 0
  self.end_of_dataloader = false
  self.remainder = -1
  self.active = false
  self.batch_length, self.valid_length = nil, nil
  self.uneven = false
  self._next_epoch = 0
  self._skip = 0
  self._passes = setmetatable({}, {__mode = "k"}) -- first value yielded last -> its pass
end

--- Number of batches of a pass.
---@return integer
function DataLoader:len()
  return math.max(0, self.partition:len() - self._skip)
end

-- Passes.

local function begin(self, iterator)
  if self.before_batch then
    local before = self._current
    self._current = nil -- it is over, left by break or not
    self.before_batch(self, nil)
    self._current = before
  end
  return Pass.begin(self, iterator)
end

-- The generic for: the loader is called with (nil, the first value yielded last).
function DataLoader:__call(_, control)
  if control == nil then return begin(self):step() end
  local pass = self._passes[control]
  if not pass then fail("DataLoader: this pass is not known here; write `for batch in loader do`") end
  self._passes[control] = nil
  if self.before_batch then self.before_batch(self, pass) end
  return pass:step()
end

-- The iterator of one pass. An object rather than a closure: compiled traces embed the closures that they call, and so
-- would keep alive an iterator that the script has dropped.
local Batches = passes.Batches

function Batches:__call()
  local loader, pass = self.loader, self.pass
  if not pass then
    pass = begin(loader, self)
    self.pass = pass
    pass.iterator = setmetatable({self}, {__mode = "v"})
  elseif loader.before_batch then
    loader.before_batch(loader, pass)
  end
  pass.within = pass.within or loader.before_batch and passes.is_within_another(loader)
  return pass:step()
end

--- Return an iterator of one pass: each call returns the next batch, nil at the end.
--
--   local next_batch = loader:batches()
--   local images, labels = next_batch()
---@return fun(): any ... a callable object
function DataLoader:batches()
  return setmetatable({loader = self}, Batches)
end

--- The number of the next pass, for samplers that depend on it.
--
--   loader:set_epoch(3)
function DataLoader:set_epoch(epoch)
  arguments.check("set_epoch", "epoch", "size", epoch)
  self.epoch, self._next_epoch = epoch, epoch
  self.partition:set_epoch(epoch)
  if self.dataset.set_epoch then self.dataset:set_epoch(epoch) end
end

-- Shares.

local function copy(self)
  local other = self._class:_blank()
  for _, name in ipairs {
    "dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "collate_fn", "generator", "seed", "prefetch",
    "total_batch_size", "synchronize", "before_pass", "before_batch", "device", "_sharded", "partition",
    "dispatch", "stream", "num_workers", "timeout", "worker_init_fn", "prefetch_factor",
    "persistent_workers", "already_sharded", "pin_memory", "non_blocking", "virtual_shards", "turns",
  } do
    other[name] = self[name]
  end
  other:_reset()
  return other
end

-- Make rank 0 the one that makes the batches of all ranks.
local function dispatch(other, options, deal)
  local dispatcher = require "accelhost.data.partition.dispatcher"(other.batch_sampler, options)
  other.dispatch = {rank = options.rank, size = options.size, deal = deal}
  if options.rank == 0 then
    other.dispatch.inner = copy(other)
    other.dispatch.inner.device = nil -- each rank copies its part to its own device
    other.dispatch.inner.partition = dispatcher:of_all_ranks()
  end
  return dispatcher
end

-- Divide the batches among several ranks; returns the partition.
local function divide(other, options)
  local deal, agree = options.dispatch, options.agree
  options.agree = nil
  local StreamShard = other.stream and not options.share and require "accelhost.data.partition.stream_shard"
  if StreamShard and StreamShard.suits(other, options) then
    local shard = StreamShard(other, options, agree)
    other.batch_sampler, other.stream = shard, shard.batch_sampler
    other.dataset = other.stream.dataset
    return shard
  end
  options.dispatch = nil
  if deal and not other.virtual_shards then return dispatch(other, options, deal) end
  if other.virtual_shards then
    other.batch_sampler = require "accelhost.data.partition.micro_batches"(other.batch_sampler, {
      rank = options.rank, ranks = options.size, virtual_shards = other.virtual_shards.count,
      split_batches = options.split_batches, even_batches = options.even_batches,
    })
    other.turns = other.batch_sampler.batches_per_round
  else
    other.batch_sampler = sampler_shard(other.batch_sampler, options)
  end
  return other.batch_sampler
end

-- The same shuffled order as a function of a seed and the epoch. As in Accelerate, such a loader still draws a base
-- seed from the global generator in each pass, so that the numbers drawn after it (dropout masks) are the same too.
local function give_seed(self, seed)
  local order = self.sampler
  if not seed or not order or not class.is(order, sampler.RandomSampler) or order.seed then return end
  if class.of(self.batch_sampler) ~= sampler.BatchSampler then return end
  self.seed, self._seedable = seed, true
  self.sampler = sampler.RandomSampler(order.data_source, {
    replacement = order.replacement, num_samples = order._num_samples, seed = seed,
  })
  self.batch_sampler = sampler.BatchSampler(self.sampler, self.batch_size, self.drop_last)
end

--- Return a loader of one rank's batches of every pass (see data.BatchSamplerShard).
--
--   local mine = loader:shard{rank = 0, size = 2}
--- `synchronize` is called with each pass's draw, to copy rank 0's bytes into it, `before_pass` when one begins,
--- `before_batch` with the loader and its pass (nil: one begins) when a batch is requested.
--- Batches go to `device`, while its kernels compute unless `non_blocking` is false. With `seed` a random order is a
--- function of it and the epoch. With `dispatch` rank 0 makes the batches of all: the function is called in every step,
--- on rank 0 with a table of the parts of all ranks (false for nothing), and returns the part of this one. A stream
--- with a method shard is asked for its shard; with even_batches `agree` is called before each batch, with whether this
--- rank has one, and returns whether any rank (or every one) has. With `shards` the rank gets the batches of several
--- virtual shards (data/partition/micro_batches.lua): `shards.count` of them there are in all, shards:enter(pass) is
--- called before each batch is made, shards:leave(pass) at the end, and a pass draws its random numbers within
--- shards:outside(fn). With `share`, batch proportions, the ranks get parts of a round in that proportion.
---@param options table {rank =, size =, split_batches?, even_batches?, synchronize?, before_pass?, before_batch?,
--- device?, non_blocking?, seed?, dispatch?, agree?, already_sharded?, shards?, share?}
---@return DataLoader
function DataLoader:shard(options)
  if self._sharded then fail("shard: this loader is one rank's sampler shard already") end
  arguments.check("shard", "options", "table", options)
  local other, mine = copy(self), arguments.copy(options)
  for _, name in ipairs {"synchronize", "before_pass", "before_batch", "device", "non_blocking"} do
    other[name], mine[name] = mine[name], nil
  end
  other.virtual_shards, mine.shards = mine.shards, nil
  give_seed(other, mine.seed)
  local given = self.already_sharded or mine.already_sharded
  if other.virtual_shards and (given or other.stream) then
    fail("shard: virtual_shards: %s", given
      and "this loader yields a process's own sampler shard already, which is no virtual shard"
      or "a stream of samples cannot be cut into the same shards in any number of processes; a set with get(i) can")
  end
  local whole = given or mine.size == 1 and not other.virtual_shards
  mine.seed, mine.already_sharded = nil, nil
  if whole then mine.dispatch, mine.agree = nil, nil end
  other._sharded = true
  if whole then
    sampler_shard(other.batch_sampler, mine) -- checks the options
    other.partition = Whole(other.batch_sampler, true)
  else
    other.partition = divide(other, mine)
    other.total_batch_size = other.partition:round_length()
  end
  return other
end

--- The same loader without the first `count` batches of each pass. The samples of a set with get(i) that are left out
--- are not read. Not for a loader that load_state_dict, or accelerator:load_state, has moved to the middle of a pass.
--
--   #loader:skip_first_batches(1)  --> 2
---@return DataLoader
function DataLoader:skip_first_batches(count)
  arguments.check("skip_first_batches", "count", "size", count)
  if self._resume then
    fail("skip_first_batches: a saved state has moved this loader to the middle of a pass; iterate over it directly")
  end
  local other = copy(self)
  other._skip = self._skip + count
  other._next_epoch = self._next_epoch
  return other
end

require "accelhost.data.loader.position"(DataLoader)

return class.guard(DataLoader)
