--- DataLoader: batches of a data set, one pass per `for`.
--
--   local loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
--   for inputs, labels in loader do print(inputs:size(0)) end
--
-- Each `for` is a pass of its own; passes may be nested and left by break.
-- The order of a shuffled pass is PyTorch's: a pass draws one number, then the sampler's seed, then the permutation
-- from a fresh generator; a loader that does not shuffle draws the one number too. With `seed` nothing is drawn: the
-- permutation is a function of seed and epoch.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"
local fetch = require "accelhost.data.fetch"
local iterable = require "accelhost.data.iterable"
local passes = require "accelhost.data.passes"
local placement = require "accelhost.data.placement"
local sampler = require "accelhost.data.sampler"
local BatchSamplerShard = require "accelhost.data.shard"
local worker = require "accelhost.data.worker"

local fail, describe, is_count = arguments.fail, arguments.describe, kinds.is_count
local native = C.data

---@class DataLoader
---@field dataset Dataset
---@field batch_size integer? nil with a batch sampler that has none
---@field sampler table?
---@field batch_sampler table
---@field drop_last boolean
---@field epoch integer number of the current or last pass, from 0
---@field end_of_dataloader boolean true while the last batch of the current pass is being processed
---@field remainder integer samples of the last round that are not full rounds, -1 with drop_last or when not known
---@field total_batch_size integer? samples per step of all ranks together
---@field active boolean is the innermost running pass one of this loader?
---@field batch_length integer? samples in the current batch of this rank
---@field uneven boolean are the ranks' batches of the current round of unequal lengths?
---@field synchronize (fun(bytes: userdata): any)? gets each pass's draw; gives every rank rank 0's bytes in place
---@field device string? where batches are brought; nil leaves them where they are
local DataLoader = class.sized "DataLoader"
DataLoader._is_loader = true

local read = arguments.signature("DataLoader", {
  "dataset: dataset|stream", {"batch_size: count"}, {"shuffle: flag"}, {"sampler: sampler"}, {"batch_sampler: sampler"},
  {"num_workers: size", 0}, {"collate_fn: callable"}, {"drop_last: flag"}, {"generator: generator"}, {"seed: size"},
  {"prefetch: size", 2}, {"timeout: nonnegative", 0}, {"worker_init_fn: callable"}, {"prefetch_factor: count"},
  {"persistent_workers: flag", false},
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
  self.batch_sampler, self.batch_size, self.drop_last = self.stream, batch_size or 1, drop_last or false
end

--- Batches of a data set, in its order or shuffled: a `for` over the loader is one epoch, `#loader` its batches.
--
--   local loader = data.DataLoader(set, {batch_size = 2, shuffle = true})
--   #loader  --> 3
---@param dataset Dataset|IterableDataset with get(i) and len(), or a stream of samples with iter()
---@param batch_size? integer samples in a batch, 1 without
---@param shuffle? boolean a new random order in each pass; without, the data set's
---@param sampler? table order of the samples, instead of shuffle
---@param batch_sampler? table order and grouping, instead of batch_size, shuffle, sampler and drop_last
---@param num_workers? integer processes that make the batches, default 0: this one makes them; sets in tensors have no
--- use for them, since a thread in C gathers their batches
---@param collate_fn? fun(samples: table): any what makes a batch of samples; default: default_collate
---@param drop_last? boolean leave out a last batch that is not full; without, it is given
---@param generator? userdata source of this loader's draws, instead of the global generator
---@param seed? integer make the order a function of this seed and the epoch
---@param prefetch? integer batches gathered ahead of sets in tensors, default 2
---@param timeout? number seconds to wait for a worker, default 0: without end
---@param worker_init_fn? fun(id: integer) called in each worker, after its generator was seeded
---@param prefetch_factor? integer batches under way in each worker, default 2
---@param persistent_workers? boolean keep the workers, and the data set as they know it, between passes
function DataLoader:init(...)
  local set, batch_size, shuffle, own_sampler, batch_sampler, workers, collate_fn, drop_last, generator, seed,
    prefetch, timeout, init_fn, factor, persistent = read(...)
  self.dataset = set
  set_workers(self, workers, timeout, init_fn, factor, persistent)
  if seed and generator then fail("DataLoader: give a seed or a generator, not both") end
  self.collate_fn, self.generator, self.seed, self.prefetch = collate_fn, generator, seed, prefetch
  if iterable.is_stream(set) then
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
  self.total_batch_size = self.batch_size
end

function DataLoader:_reset()
  self.epoch = 0
  self.end_of_dataloader = false
  self.remainder = -1
  self.active = false
  self.batch_length = nil
  self.uneven = false
  self._next_epoch = 0
  self._skip = 0
  self._passes = setmetatable({}, {__mode = "k"}) -- first value yielded last -> its pass
end

--- Number of batches of a pass.
---@return integer
function DataLoader:len()
  if not self.batch_sampler.len then fail("DataLoader: the batch sampler has no len()") end
  return math.max(0, self.batch_sampler:len() - self._skip)
end

-- Passes.

local function remainder_of(self)
  local inner = self.batch_sampler
  local samples = inner.sample_count and inner:sample_count()
  if self.drop_last or not samples or not self.total_batch_size then return -1 end
  return samples % self.total_batch_size
end

local SEED_BYTES = 8

-- What is random about a pass: the seed of its samples' streams and the sampler's draw, which is agreed between the
-- ranks, and the seed with it.
local function draw(self, pass)
  local inner, resume = self.batch_sampler, self._resume
  local bytes, seed
  if resume then
    bytes, seed = resume.draw, resume.seed or native.seed_bytes(0)
  else
    seed = self.seed and native.fork_seed(native.seed_bytes(self.seed), pass.epoch) or native.draw_seed(self.generator)
    bytes = inner.draw and inner:draw()
  end
  if bytes and self.synchronize then
    local both = C.cat({seed, bytes}, 0)
    both = self.synchronize(both) or both
    seed, bytes = both:narrow(0, 0, SEED_BYTES), both:narrow(0, SEED_BYTES, both:numel() - SEED_BYTES)
  end
  pass.draw, pass.seed = bytes, seed
  return bytes
end

-- Note how often the pass has met each sample of a batch before: a table of it where one has been, for its stream.
local function turns_of(pass, batch)
  local met = pass.met
  if not met then return nil end
  local turns, again = {}, false
  for i = 1, #batch do
    local index = batch[i]
    turns[i] = met[index] or 0
    met[index] = turns[i] + 1
    again = again or turns[i] > 0
  end
  return again and turns or nil
end

-- The indices of the next batch, its length and evenness noted for when it is delivered, and their turns.
local function next_batch(pass)
  local batch = pass.take()
  if not batch then return nil end
  local place = pass.known + 1
  pass.known = place
  pass.lengths[place], pass.unevens[place] = #batch, pass.loader.batch_sampler.uneven == true
  return batch, turns_of(pass, batch)
end

-- The number of a seed's lower 32 bits, which are all that a generator takes of it.
local function low_bits(seed)
  local a, b, c, d = unpack(seed:narrow(0, 0, 4):tolist())
  return a + 256 * (b + 256 * (c + 256 * d))
end

-- Have the batches of a pass made by workers.
local function hire(self, pass)
  local workers = self._workers
  if not workers or workers.closed then workers = worker.start(self, low_bits(pass.seed)) end
  self._workers = self.persistent_workers and workers or nil
  pass.workers = workers
  workers:begin(pass.seed, function() return next_batch(pass) end)
  for _ = 1, self.stream and math.max(pass.position, self._skip) or 0 do
    if not workers:take() then break end
  end
  if self.stream then pass.held = workers:take() or false end
  return pass
end

local function begin(self)
  local resume = self._resume
  local pass = {
    loader = self, epoch = self._next_epoch, position = 0, last = false,
    lengths = {}, unevens = {}, known = 0, delivered = 0, -- of the batches asked for, by number
  }
  self._next_epoch = pass.epoch + 1
  self.epoch = pass.epoch
  local inner = self.batch_sampler
  if (self.seed or self._sharded) and inner.set_epoch then inner:set_epoch(pass.epoch) end
  local bytes = draw(self, pass)
  self._resume = nil
  pass.remainder = remainder_of(self)
  pass.position = resume and resume.position or 0
  if self._current and self._current.workers and not self.persistent_workers then self._current.workers:close() end
  self._current = pass
  if self.stream then self.stream.seed = pass.seed end
  if self.stream and self.num_workers > 0 then return hire(self, pass) end
  pass.take = inner:iter(bytes)
  pass.met = not self.stream and not (self.sampler and self.sampler.visits_once) and {} or nil
  for _ = 1, math.max(pass.position, self._skip) do
    local batch = pass.take()
    if not batch then break end
    turns_of(pass, batch)
  end
  local set = self.dataset
  if set.native and not self.collate_fn then
    local columns, map = set:native()
    if columns then
      pass.gather, pass.map = native.gather(columns), map
      return pass
    end
  end
  if self.num_workers > 0 and not (set.rows and not self.collate_fn) then return hire(self, pass) end
  pass.waiting, pass.turns = next_batch(pass)
  return pass
end

local function finish(pass)
  pass.ended = true
  if pass.gather then pass.gather:close() end
  if pass.workers and not pass.loader.persistent_workers then pass.workers:close() end
  passes.leave(pass)
end

local function hand_out(self, pass, first, ...)
  local kind = type(first)
  if kind ~= "userdata" and kind ~= "table" then
    finish(pass)
    fail("DataLoader: the first value of a batch must be a tensor or a table, got %s", describe(first))
  end
  pass.position = pass.position + 1
  local place = pass.delivered + 1
  pass.delivered = place
  pass.length, pass.uneven = pass.lengths[place], pass.unevens[place]
  pass.lengths[place], pass.unevens[place] = nil, nil
  passes.enter(pass)
  passes.show(pass)
  self._passes[first] = pass
  return first, ...
end

local function deliver(self, pass, ...)
  if self.device then return hand_out(self, pass, placement.all(self.device, ...)) end
  return hand_out(self, pass, ...)
end

-- Keep `ahead` batches posted; one more is always known, so that the last one is recognised as such.
local function gather(self, pass)
  local gatherer, map = pass.gather, pass.map
  local ahead = math.max(1, self.prefetch)
  while not pass.exhausted and gatherer:pending() <= ahead do
    local batch, turns = next_batch(pass)
    if batch then
      local rows = batch
      if map then
        rows = {}
        for i = 1, #batch do rows[i] = map(batch[i]) end
      end
      gatherer:post(rows, pass.seed, rows ~= batch and batch or nil, turns)
    else
      pass.exhausted = true
    end
  end
  local count = gatherer:pending()
  if count == 0 then return finish(pass) end
  pass.last = count == 1
  return deliver(self, pass, gatherer:take())
end

local function load(self, pass)
  local batch, turns = pass.waiting, pass.turns
  if not batch then return finish(pass) end
  native.step()
  pass.waiting, pass.turns = next_batch(pass)
  pass.last = not pass.waiting
  local set = self.dataset
  if set.rows and not self.collate_fn then return deliver(self, pass, set:rows(batch)) end
  if self.stream then return deliver(self, pass, fetch.finish(self.collate_fn, iterable.samples(batch))) end
  return deliver(self, pass, fetch.batch(set, self.collate_fn, batch, pass.seed, turns))
end

-- The next batch that workers have made. Whether more follow is known of a stream when the next one is here.
local function hear(self, pass)
  local answer = pass.held
  if not self.stream then answer = pass.workers:take() end
  if not answer then return finish(pass) end
  native.step()
  if self.stream then
    pass.held = pass.workers:take() or false
    pass.lengths[pass.delivered + 1], pass.unevens[pass.delivered + 1] = answer.length, answer.uneven
    pass.last = not pass.held
  else
    pass.last = pass.workers:is_through()
  end
  return deliver(self, pass, unpack(answer.values, 1, answer.values.n))
end

local function step(self, pass)
  if pass.ended then return nil end
  if pass.workers then return hear(self, pass) end
  if pass.gather then return gather(self, pass) end
  return load(self, pass)
end

-- The generic for: the loader is called with (nil, the first value yielded last).
function DataLoader:__call(_, control)
  if control == nil then return step(self, begin(self)) end
  local pass = self._passes[control]
  if not pass then fail("DataLoader: this pass is not known here; write `for batch in loader do`") end
  self._passes[control] = nil
  return step(self, pass)
end

--- A pass as an iterator of its own: call it for the next batch, nil at the end.
--
--   local next_batch = loader:batches()
--   local images, labels = next_batch()
---@return fun(): any ...
function DataLoader:batches()
  local pass
  return function()
    pass = pass or begin(self)
    return step(self, pass)
  end
end

--- The number of the next pass, for samplers that depend on it.
--
--   loader:set_epoch(3)
---@param epoch integer
function DataLoader:set_epoch(epoch)
  arguments.check("set_epoch", "epoch", "size", epoch)
  self.epoch, self._next_epoch = epoch, epoch
  if self.batch_sampler.set_epoch then self.batch_sampler:set_epoch(epoch) end
  if self.dataset.set_epoch then self.dataset:set_epoch(epoch) end
end

-- Shares and resuming.

local function copy(self)
  local other = self._class:_blank()
  for _, name in ipairs {
    "dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "collate_fn", "generator", "seed", "prefetch",
    "total_batch_size", "synchronize", "device", "_sharded", "stream", "num_workers", "timeout", "worker_init_fn",
    "prefetch_factor", "persistent_workers",
  } do
    other[name] = self[name]
  end
  other:_reset()
  return other
end

--- A loader that gives one rank's share of every pass (see data.BatchSamplerShard).
--
--   local mine = loader:shard{rank = 0, size = 2}
--- `synchronize` is called with each pass's draw, to bring rank 0's bytes into it. Batches go to `device`.
---@param options table {rank =, size =, split_batches?, even_batches?, synchronize?, device?}
---@return DataLoader
function DataLoader:shard(options)
  if self._sharded then fail("shard: this loader is one rank's share already") end
  arguments.check("shard", "options", "table", options)
  local other, mine = copy(self), {}
  for name, value in pairs(options) do mine[name] = value end
  other.synchronize, mine.synchronize = mine.synchronize, nil
  other.device, mine.device = mine.device, nil
  local share = BatchSamplerShard(self.batch_sampler, mine)
  other._sharded = true
  if share.size > 1 then
    other.batch_sampler = share
    local size = self.batch_size
    other.total_batch_size = size and (share.split_batches and size or size * share.size)
  end
  return other
end

--- The same loader without the first `count` batches of each pass.
--
--   #loader:skip_first_batches(1)  --> 2
---@param count integer
---@return DataLoader
function DataLoader:skip_first_batches(count)
  arguments.check("skip_first_batches", "count", "size", count)
  local other = copy(self)
  other._skip = self._skip + count
  other._next_epoch = self._next_epoch
  return other
end

--- Where the loader stands, as numbers and strings: epoch, position (batches yielded in that epoch), and what was
--- random about the pass. While the last batch is being processed this is the start of the next epoch. Within an
--- epoch the state of the loader's own generator follows from the pass's draw; between epochs it is part of the
--- state.
--
--   for x in loader do break end
--   loader:state_dict().position  --> 1
---@return table
function DataLoader:state_dict()
  local pass = self._current
  local state = {epoch = self._next_epoch, position = 0}
  if pass and not pass.ended and not pass.last then
    state.epoch, state.position = pass.epoch, pass.position
    state.draw = pass.draw and native.to_hex(pass.draw) or nil
    state.seed = native.to_hex(pass.seed)
  elseif self._resume then
    state.position = self._resume.position
    state.draw = self._resume.draw and native.to_hex(self._resume.draw) or nil
    state.seed = self._resume.seed and native.to_hex(self._resume.seed) or nil
  elseif self.generator then
    state.generator = native.to_hex(self.generator:get_state())
  end
  return state
end

--- Go on where `state_dict` stood: the next pass starts at that position of that epoch, in the same order.
--
--   for x in loader do break end
--   local again = data.DataLoader(set, {batch_size = 2})
--   again:load_state_dict(loader:state_dict())
--   for x, number in again do print(number) break end  --> tensor([2, 3])
---@param state table
function DataLoader:load_state_dict(state)
  if type(state) ~= "table" or not is_count(state.epoch, 0) or not is_count(state.position, 0) then
    fail("load_state_dict: expected a loader's state (epoch and position), got %s", describe(state))
  end
  if state.generator and not self.generator then
    fail("load_state_dict: the state holds a generator, but this loader has none")
  end
  self._current, self._resume = nil, nil
  self.epoch, self._next_epoch = state.epoch, state.epoch
  if state.generator then self.generator:set_state(native.from_hex(state.generator)) end
  if state.position > 0 then
    self._resume = {
      position = state.position, draw = state.draw and native.from_hex(state.draw),
      seed = state.seed and native.from_hex(state.seed),
    }
  end
end

return class.guard(DataLoader)
