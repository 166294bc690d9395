--- DataLoader: batches of a data set, one pass per `for`.
--
--   local loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
--   for images, labels in loader do ... end
--
-- Each `for` is a pass of its own, found by the first value it yielded last; passes may be nested and left by break.
-- The order of a shuffled pass is PyTorch's: a pass draws one number, then the sampler's seed, then the permutation
-- from a fresh generator; a loader that does not shuffle draws the one number too. With `seed` nothing is drawn: the
-- permutation is a function of seed and epoch.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"
local collate = require "accelhost.data.collate"
local draws = require "accelhost.data.draws"
local placement = require "accelhost.data.placement"
local sampler = require "accelhost.data.sampler"
local BatchSamplerShard = require "accelhost.data.shard"

local fail, describe, is_count = arguments.fail, arguments.describe, kinds.is_count
local native = C.data

---@class DataLoader
---@field dataset table
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
  "dataset: dataset", {"batch_size: count"}, {"shuffle: flag"}, {"sampler: sampler"}, {"batch_sampler: sampler"},
  {"num_workers: size", 0}, {"collate_fn: callable"}, {"drop_last: flag"}, {"generator: generator"}, {"seed: size"},
  {"prefetch: size", 2},
})

--- A loader.
---@param dataset table with get(i) and len()
---@param batch_size? integer default 1
---@param shuffle? boolean default false
---@param sampler? table order of the samples, instead of shuffle
---@param batch_sampler? table order and grouping, instead of batch_size, shuffle, sampler and drop_last
---@param num_workers? integer only 0: data sets in Lua run inline, sets in tensors are gathered by a thread in C
---@param collate_fn? fun(samples: table): any what makes a batch of samples; default: default_collate
---@param drop_last? boolean leave out a last batch that is not full
---@param generator? userdata source of this loader's draws, instead of the global generator
---@param seed? integer make the order a function of this seed and the epoch
---@param prefetch? integer batches gathered ahead, default 2
function DataLoader:init(...)
  local set, batch_size, shuffle, own_sampler, batch_sampler, workers, collate_fn, drop_last, generator, seed,
    prefetch = read(...)
  self.dataset = set
  if workers ~= 0 then
    fail("DataLoader: num_workers: expected 0, got %s; data sets written in Lua run in this process, and sets in "
      .. "tensors are gathered by a thread already (see prefetch)", describe(workers))
  end
  if seed and generator then fail("DataLoader: give a seed or a generator, not both") end
  self.collate_fn, self.generator, self.seed, self.prefetch = collate_fn, generator, seed, prefetch
  if batch_sampler then
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

-- Which pass is running.

-- Passes in the order of their last step, innermost on top. Held weakly: a pass left by break is only found here until
-- its last batch is collected, or until a pass below it goes on. `depth` counts them: compiled code of this LuaJIT may
-- see an old length of a table that shrinks.
local running, depth = {}, 0

local function top()
  while depth > 0 do
    local pass = running[depth].pass
    if pass then return pass end
    running[depth] = nil
    depth = depth - 1
  end
end

local function show(pass)
  if not pass then return end
  local loader = pass.loader
  loader.active = true
  loader.end_of_dataloader = pass.last
  loader.remainder = pass.remainder
  loader.batch_length, loader.uneven = pass.length, pass.uneven
  loader.epoch = pass.epoch
end

-- Make `pass` the innermost one: those above it have been left by break, and so have older passes of a loader that
-- begins anew.
local function enter(pass)
  local before = top()
  if before == pass then return end
  if before then before.loader.active = false end
  local place
  for i = 1, depth do
    if running[i].pass == pass then place = i end
  end
  if place then
    for i = depth, place + 1, -1 do running[i] = nil end
    depth = place
    return
  end
  local kept = 0
  for i = 1, depth do
    local entry = running[i]
    running[i] = nil
    if entry.pass and entry.pass.loader ~= pass.loader then
      kept = kept + 1
      running[kept] = entry
    end
  end
  depth = kept + 1
  running[depth] = setmetatable({pass = pass}, {__mode = "v"})
end

local function leave(pass)
  enter(pass)
  running[depth] = nil
  depth = depth - 1
  pass.loader.active = false
  pass.loader.end_of_dataloader = false
  show(top())
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
  pass.take = inner:iter(draw(self, pass))
  self._resume = nil
  pass.remainder = remainder_of(self)
  pass.position = resume and resume.position or 0
  pass.met = not (self.sampler and self.sampler.visits_once) and {} or nil
  for _ = 1, math.max(pass.position, self._skip) do
    local batch = pass.take()
    if not batch then break end
    turns_of(pass, batch)
  end
  self._current = pass
  local set = self.dataset
  if set.native and not self.collate_fn then
    local columns, map = set:native()
    if columns then
      pass.gather, pass.map = native.gather(columns), map
      return pass
    end
  end
  pass.waiting, pass.turns = next_batch(pass)
  return pass
end

local function finish(pass)
  pass.ended = true
  if pass.gather then pass.gather:close() end
  leave(pass)
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
  enter(pass)
  show(pass)
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

-- The samples of a batch, each with random numbers of its own.
local function fetch(set, batch, seed, turns)
  local samples, width = {}, nil
  local function keep(i, ...)
    local count = select("#", ...)
    if (...) == nil then fail("DataLoader: get(%d) of the data set returned nil", batch[i]) end
    if width and count ~= width then
      fail("DataLoader: get(%d) returned %d values, get(%d) returned %d", batch[i], count, batch[1], width)
    end
    width = count
    samples[i] = count == 1 and (...) or {...}
  end
  for i = 1, #batch do
    draws.of(seed, batch[i], turns and turns[i] or 0)
    keep(i, set:get(batch[i]))
  end
  return samples, width or 1
end

local function load(self, pass)
  local batch, turns = pass.waiting, pass.turns
  if not batch then return finish(pass) end
  native.step()
  pass.waiting, pass.turns = next_batch(pass)
  pass.last = not pass.waiting
  local set = self.dataset
  if set.rows and not self.collate_fn then return deliver(self, pass, set:rows(batch)) end
  local samples, width = draws.during(fetch, set, batch, pass.seed, turns)
  if self.collate_fn then return deliver(self, pass, self.collate_fn(samples)) end
  return deliver(self, pass, collate.samples(samples, width))
end

local function step(self, pass)
  if pass.ended then return nil end
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
    "total_batch_size", "synchronize", "device", "_sharded",
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
