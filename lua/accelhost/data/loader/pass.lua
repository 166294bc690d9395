--- A pass of a loader: its order, its position, and how its batches are made.
--
-- The batch sampler decides the samples of a batch and the number of valid ones; they are gathered by a thread in C
-- (sets in tensors), made here or by workers (sets in Lua), or made by rank 0 for all (`dispatch`).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local prefetch = require "accelhost.data.loader.prefetch"
local fetch = require "accelhost.data.loader.fetch"
local later = require "accelhost.util.later"
local passes = require "accelhost.data.loader.passes"
local placement = require "accelhost.data.loader.placement"
local protect = require "accelhost.util.protect"
local iteration = require "accelhost.data.iteration"

local iterable, worker = later "accelhost.data.iterable", later "accelhost.data.loader.worker"
local fail, describe = arguments.fail, arguments.describe
local native = C.data

---@class Pass
---@field loader DataLoader
---@field epoch integer
---@field start integer place of the batch sampler where it began (see data/iteration.lua)
---@field rounds integer rounds given since
---@field micro_batch integer of a loader with virtual shards: which of the round's batches is the current one, from 0
---@field filler boolean does the current batch count for nothing? (data/partition/micro_batches.lua)
---@field last boolean is the current batch the last one?
---@field length integer? samples in the current batch
---@field valid integer? number of valid ones among them
---@field live boolean? does it resume among ranks that never stopped, which have agreed on it already?
---@field iterator table? weak reference to the object of loader:batches() that runs it
---@field within boolean? can no training loop run inside it? (run by loader:batches() inside another loader's `for`,
--- or begun before load_state)
---@field draw userdata? the random state of its order
---@field seed userdata of its samples' streams
local Pass = {}
Pass.__index = Pass

local SEED_BYTES = 8

-- Draw the random state of a pass: the seed of its samples' streams and the sampler's draw; the ranks agree on both.
local function draw(loader, pass)
  local resume = loader._resume
  local bytes, seed
  if resume then
    bytes, seed = resume.draw, resume.seed or native.seed_bytes(0)
  else
    local drawn = (not loader.seed or loader._seedable) and native.draw_seed(loader.generator)
    seed = loader.seed and native.fork_seed(native.seed_bytes(loader.seed), pass.epoch) or drawn
    bytes = loader.partition:draw()
  end
  if loader.synchronize and not pass.live and (bytes or loader.virtual_shards) then
    local both = bytes and C.cat({seed, bytes}, 0) or seed:clone()
    both = loader.synchronize(both) or both
    seed = both:narrow(0, 0, SEED_BYTES)
    bytes = bytes and both:narrow(0, SEED_BYTES, both:numel() - SEED_BYTES)
  end
  pass.draw, pass.seed = bytes, seed
end

local function remainder_of(loader)
  local samples = loader.partition:sample_count()
  if loader.drop_last or not samples or not loader.total_batch_size then return -1 end
  return samples % loader.total_batch_size
end

-- Count, for each sample of a batch, the times that the pass has met it before (with virtual shards: within the same
-- one, batch `number` being the first, second, ... since the pass's start). Return the counts, for the samples'
-- streams; nil where all are 0.
local function repeats_of(pass, batch, number)
  local met, loader = pass.met, pass.loader
  if not met then return nil end
  if loader.virtual_shards then
    local micro_batch = number % loader.partition.batches_per_round
    met[micro_batch] = met[micro_batch] or {}
    met = met[micro_batch]
  end
  local repeats, again = {}, false
  for i = 1, #batch do
    local index = batch[i]
    repeats[i] = met[index] or 0
    met[index] = repeats[i] + 1
    again = again or repeats[i] > 0
  end
  return again and repeats or nil
end

-- Do the ranks continue? Of a pass that continues among others that never stopped they have agreed at its first batch.
local function continues(pass, has)
  local agreed = pass.live
  pass.live = false
  return pass.loader.partition:continues(has, agreed)
end

-- Return the indices of the next batch and their repeats, and record the fields to set when it is delivered.
local function next_batch(pass)
  local batch, valid, filler = pass.next_indices()
  local partition = pass.loader.partition
  if not continues(pass, batch ~= nil) then return nil end
  if not batch then batch, valid = partition:filler(), 0 end
  local place = pass.known + 1
  pass.known = place
  pass.lengths[place], pass.unevens[place] = #batch, partition:is_uneven()
  pass.valids[place], pass.fillers[place] = valid or #batch, filler or nil
  return batch, not filler and repeats_of(pass, batch, place - 1) or nil
end

-- The number of a seed's lower 32 bits, the part that a generator uses.
local function low_bits(seed)
  local a, b, c, d = unpack(seed:narrow(0, 0, 4):tolist())
  return a + 256 * (b + 256 * (c + 256 * d))
end

-- Return the next answer of the workers that iterate over a stream; false at the end.
local function next_answer(pass)
  local answer, loader = pass.workers:receive() or false, pass.loader
  if not continues(pass, answer ~= false) then return false end
  if answer then return answer end
  local batch = loader.partition:filler()
  local values = {fetch.finish(loader.collate_fn, iterable.samples(batch))}
  values.n = #values
  return {values = values, length = #batch, uneven = false, valid = 0}
end

-- Have the batches of a pass made by workers.
local function hire(pass)
  local loader = pass.loader
  local workers = loader._workers
  if not workers or workers.closed then workers = worker.start(loader, low_bits(pass.seed)) end
  loader._workers = loader.persistent_workers and workers or nil
  pass.workers = workers
  local partition = loader.partition
  local rounds = pass.start / partition:round_size()
  workers:begin(pass.seed, function() return next_batch(pass) end, math.floor(rounds * partition.batches_per_round))
  if loader.stream then
    -- Each worker iterates over the whole stream: earlier samples are read once more.
    if rounds % 1 ~= 0 then
      fail("DataLoader: with num_workers a stream continues only from a position at the end of a round (%d samples)",
        partition:round_size())
    end
    for _ = 1, rounds do
      if not workers:receive() then break end
    end
    pass.held = next_answer(pass)
  end
end

-- Count the samples before the pass's start as met: this rank's batches, or those of all where another job's rounds
-- were others.
local function meet(pass)
  local partition = pass.loader.partition
  local same = pass.start % partition:round_size() == 0
  local batches = same and partition or partition.batch_sampler
  local size = same and partition:round_size() or iteration.unit(batches)
  local count = same and partition.batches_per_round or 1
  local next_indices, place, number = batches:iter(pass.draw), 0, 0
  while place < pass.start do
    local batch, _, filler = next_indices()
    if not batch then break end
    if not filler then repeats_of(pass, batch, number) end
    number = number + 1
    if number % count == 0 then place = place + size end
  end
  return same and next_indices or nil
end

-- The iteration over the batches from the pass's start on.
local function set_out(pass)
  local loader = pass.loader
  pass.met = not loader.stream and not (loader.sampler and loader.sampler.visits_once) and {} or nil
  if pass.met and pass.start > 0 then pass.next_indices = meet(pass) end
  pass.next_indices = pass.next_indices or loader.partition:iter(pass.draw, pass.start)
end

-- Choose, once, the function that makes the batches.
local function equip(pass)
  local loader = pass.loader
  local set = loader.dataset
  if loader.stream and loader.num_workers > 0 then return hire(pass) end
  set_out(pass)
  if set.native and not loader.collate_fn then
    local columns, map = set:native()
    if columns then
      pass.gather, pass.map = native.gather(columns), map
      local pinned = prefetch.pins_for(loader)
      if pinned then pass.gather:pin(pinned) end
      return
    end
  end
  -- Copying stored rows is quicker than a request to a worker; rows that a function computes are worth one.
  local at_hand = type(set.rows) == "function" and not loader.collate_fn and not set.computes
  if loader.num_workers > 0 and not at_hand then return hire(pass) end
  pass.waiting, pass.repeats = next_batch(pass)
end

local function new(loader, epoch)
  return setmetatable({
    loader = loader, epoch = epoch, start = 0, rounds = 0, micro_batch = 0, next_micro_batch = 0,
    last = false,
    lengths = {}, unevens = {}, valids = {}, fillers = {}, -- of the batches asked for, by number
    known = 0, delivered = 0,
  }, Pass)
end

local take_parts

-- Run fn outside of virtual shards: a pass's draws belong to none.
local function outside(loader, fn, ...)
  if loader.virtual_shards then return loader.virtual_shards:outside(fn, ...) end
  fn(...)
end

--- Begin a pass.
---@param iterator? table the object of loader:batches() that runs the pass
---@return Pass
function Pass.begin(loader, iterator)
  local resume = loader._resume
  local pass = new(loader, loader._next_epoch)
  pass.holder, pass.thread = passes.holder(loader, iterator), passes.thread()
  loader._next_epoch, loader.epoch = pass.epoch + 1, pass.epoch
  pass.live = resume ~= nil and resume.live
  if loader.before_pass and not pass.live then outside(loader, loader.before_pass) end
  if loader.seed or loader._sharded then loader.partition:set_epoch(pass.epoch) end
  if loader._sharded and not loader.stream and loader.dataset.set_epoch then loader.dataset:set_epoch(pass.epoch) end
  outside(loader, draw, loader, pass)
  loader._resume = nil
  pass.remainder = remainder_of(loader)
  pass.start = math.max(resume and resume.place or 0, loader._skip * loader.partition:round_size())
  local before = loader._current
  if before and before.workers and not loader.persistent_workers then before.workers:close() end
  loader._current = pass
  if loader.stream then loader.stream.seed = pass.seed end
  local pinned = prefetch.pins_for(loader)
  pass.fed, pass.pinned = pinned and pinned == loader.device, pinned and not loader.device
  if loader.dispatch then
    if loader.dispatch.rank == 0 then
      pass.inner = new(loader.dispatch.inner, pass.epoch)
      pass.inner.start, pass.inner.draw, pass.inner.seed = pass.start, pass.draw, pass.seed
      equip(pass.inner)
      pass.parts = take_parts(pass)
    end
  else
    equip(pass)
  end
  return pass
end

local function finish(pass)
  pass.ended = true
  if pass.gather then pass.gather:close() end
  if pass.workers and not pass.loader.persistent_workers then pass.workers:close() end
end

--- End without another batch.
function Pass:finish()
  finish(self)
  if self.inner then finish(self.inner) end
  passes.leave(self)
  if self.loader.virtual_shards then self.loader.virtual_shards:leave(self) end
end

-- Making a batch: each returns true and its values, or false at the end.

local function delivered(pass)
  local place = pass.delivered + 1
  pass.delivered = place
  pass.length, pass.uneven, pass.valid = pass.lengths[place], pass.unevens[place], pass.valids[place]
  pass.lengths[place], pass.unevens[place], pass.valids[place] = nil, nil, nil
  pass.filler, pass.fillers[place] = pass.fillers[place] == true, nil
end

-- Keep `ahead` batches posted; one more is always known, so that the last one is recognised as such.
local function gather(pass)
  local gatherer, map, loader = pass.gather, pass.map, pass.loader
  local ahead = math.max(1, loader.prefetch)
  while not pass.exhausted and gatherer:pending() <= ahead do
    local batch, repeats = next_batch(pass)
    if batch then
      local rows = batch
      if map then
        rows = {}
        for i = 1, #batch do rows[i] = map(batch[i]) end
      end
      gatherer:post(rows, pass.seed, rows ~= batch and batch or nil, repeats)
    else
      pass.exhausted = true
    end
  end
  local count = gatherer:pending()
  if count == 0 then return false end
  pass.last = count == 1
  delivered(pass)
  return true, gatherer:take()
end

local function make(pass)
  local batch, repeats, loader = pass.waiting, pass.repeats, pass.loader
  if not batch then return false end
  native.step()
  pass.waiting, pass.repeats = next_batch(pass)
  pass.last = not pass.waiting
  delivered(pass)
  local set = loader.dataset
  if loader.stream then return true, fetch.finish(loader.collate_fn, iterable.samples(batch)) end
  return true, fetch.batch(set, loader.collate_fn, batch, pass.seed, repeats)
end

-- The next batch that workers have made. Whether more follow is known of a stream when the next one is here.
local function hear(pass)
  local answer, stream = pass.held, pass.loader.stream
  if not stream then answer = pass.workers:receive() end
  if not answer then return false end
  native.step()
  if stream then
    pass.held = next_answer(pass)
    local place = pass.delivered + 1
    pass.lengths[place], pass.unevens[place], pass.valids[place] = answer.length, answer.uneven, answer.valid
    pass.last = not pass.held
  else
    pass.last = pass.workers:is_through()
  end
  delivered(pass)
  return true, unpack(answer.values, 1, answer.values.n)
end

local function produce(pass)
  if pass.workers then return hear(pass) end
  if pass.gather then return gather(pass) end
  return make(pass)
end

-- One process for all.

local function part_of(pass, fine, ...)
  if not fine then return nil end
  local part = {count = select("#", ...), length = pass.length, valid = pass.valid, uneven = pass.uneven}
  part.values = {placement.all("cpu", ...)} -- messages are tensors on the CPU
  return part
end

-- On rank 0: the parts of the next round, one for each rank that gets one; nil at the end.
function take_parts(pass)
  local inner, parts = pass.inner, {}
  for rank = 1, pass.loader.dispatch.size do
    local part = part_of(inner, produce(inner))
    if not part then break end
    parts[rank] = part
  end
  return parts[1] and parts or nil
end

-- This rank's part of the next round. A collective, but not after the last one.
local function receive(pass)
  local dispatch, parts = pass.loader.dispatch, nil
  if pass.last then return false end
  if dispatch.rank == 0 then
    parts = pass.parts or {}
    pass.parts = pass.parts and take_parts(pass)
    for rank = 1, dispatch.size do
      parts[rank] = parts[rank] or false
      if parts[rank] then parts[rank].last = pass.parts == nil end
    end
  end
  local part = dispatch.deal(parts)
  if not part then return false end
  pass.last, pass.length, pass.valid, pass.uneven = part.last, part.length, part.valid, part.uneven
  return true, unpack(part.values, 1, part.count)
end

-- To the script.

local function hand_out(pass, fine, first, ...)
  if not fine then return pass:finish() end
  local kind, loader = type(first), pass.loader
  if kind ~= "userdata" and kind ~= "table" then
    pass:finish()
    fail("DataLoader: the first value of a batch must be a tensor or a table, got %s", describe(first))
  end
  pass.micro_batch, pass.differentiated = pass.next_micro_batch, false
  pass.next_micro_batch = (pass.next_micro_batch + 1) % loader.partition.batches_per_round
  if pass.next_micro_batch == 0 then pass.rounds = pass.rounds + 1 end
  passes.enter(pass)
  passes.show(pass)
  passes.note(pass, first, ...)
  loader._passes[first] = pass
  return first, ...
end

local function placed(pass, fine, ...)
  if fine and pass.loader.device then return hand_out(pass, fine, placement.all(pass.loader.device, ...)) end
  if fine and pass.pinned then return hand_out(pass, fine, prefetch.pinned(...)) end
  return hand_out(pass, fine, ...)
end

local function step(pass)
  local make_next = pass.loader.dispatch and receive or produce
  if pass.fed then return hand_out(pass, prefetch.step(pass, make_next, pass.loader.device)) end
  return placed(pass, make_next(pass))
end

-- Step a pass in a profile: the event is the loop's wait for a batch.
local function profiled(pass)
  C.trace.push("wait for a batch", "loader")
  return protect(C.trace.pop, step, pass)
end

--- The next batch, nil at the end.
---@return any ...
function Pass:step()
  if self.ended then return nil end
  if self.loader.virtual_shards then self.loader.virtual_shards:enter(self) end
  if C.trace.running() then return profiled(self) end
  return step(self)
end

return Pass
