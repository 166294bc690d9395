--- Samplers: the order in which a pass visits a data set.
--
-- A custom sampler is an object with `iter()`, which returns a function that returns the next index (from 0) and then
-- nil, and `len()`; a plain table of indices works too. The randomness of a pass of a built-in sampler is its
-- `draw()`: bytes (a uint8 tensor) that rank 0 can broadcast and a checkpoint can store; `iter(draw)` follows it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local protect = require "accelhost.util.protect"
local iteration = require "accelhost.data.iteration"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature
local native = C.data
local sampler = {}

local CHUNK = 1024

-- Return the position where an iteration begins.
local function place_of(from)
  return from == nil and 0 or arguments.check("iter", "from", "size", from)
end

-- The numbers of an int64 tensor from a place on, one per call.
local function numbers_of(tensor, count, from)
  local chunk, at = nil, CHUNK
  from = place_of(from)
  return function()
    if at == CHUNK then
      if from >= count then return nil end
      chunk, at = native.slice(tensor, from, math.min(CHUNK, count - from)), 0
      from = from + CHUNK
    end
    at = at + 1
    return chunk[at]
  end
end

-- An iteration without its first `count` steps.
local function dropped(following, count)
  for _ = 1, place_of(count) do
    if following() == nil then break end
  end
  return following
end

local function length_of(source)
  return type(source) == "number" and source or source:len()
end

--- The base of samplers: iter() returns a function that returns the next index (from 0) and nil at the end, len() how
--- many there are.
--
--   local Even = data.Sampler:extend "Even"
--   function Even:len() return 2 end
--   function Even:iter()
--     local i = -2
--     return function() i = i + 2 return i < 4 and i or nil end
--   end
--   #data.DataLoader(set, {batch_size = 1, sampler = Even()})  --> 2
local Sampler = class.sized "Sampler"
sampler.Sampler = Sampler

--- A new iteration over the indices.
---@param draw? userdata bytes of an earlier `draw()`
---@return fun(): integer?
function Sampler:iter(draw) -- luacheck: ignore draw
  fail("%s has no method iter()", self._name)
end

--- The number of indices of a pass.
---@return integer
function Sampler:len()
  fail("%s has no method len()", self._name)
end

--- Return the random state of the next pass, as bytes; nil when it is not random.
---@return userdata? # uint8 [n]
function Sampler:draw() -- luacheck: ignore self
  return nil
end

local SequentialSampler = Sampler:extend "SequentialSampler"
SequentialSampler.visits_once = true -- no index twice in a pass
sampler.SequentialSampler = SequentialSampler

local read_sequential = signature("SequentialSampler", {"data_source: sized"})

--- 0, 1, 2, ...
--
--   #data.SequentialSampler(5)  --> 5
---@param data_source table|integer a data set or a length
function SequentialSampler:init(...)
  self.data_source = read_sequential(...)
end

function SequentialSampler:len() return length_of(self.data_source) end

function SequentialSampler:iter(_, from)
  local at, count = place_of(from) - 1, self:len()
  return function()
    at = at + 1
    if at < count then return at end
  end
end

local RandomSampler = Sampler:extend "RandomSampler"
sampler.RandomSampler = RandomSampler

local read_random = signature("RandomSampler", {
  "data_source: sized", {"replacement: flag", false}, {"num_samples: count"}, {"generator: generator"}, {"seed: size"},
})

--- A random order. Without a generator each pass draws a seed from the global one; with `seed` the order is a
--- function of seed and epoch alone.
--
--   data.RandomSampler(set, {replacement = true, num_samples = 100})
---@param num_samples? integer default: all
function RandomSampler:init(...)
  self.data_source, self.replacement, self._num_samples, self.generator, self.seed = read_random(...)
  if self.seed and self.generator then fail("RandomSampler: pass a seed or a generator, not both") end
  self.epoch = 0
  self.visits_once = not self.replacement and not self._num_samples
end

function RandomSampler:len() return self._num_samples or length_of(self.data_source) end

--- With `seed`: which epoch the next pass is.
function RandomSampler:set_epoch(epoch)
  self.epoch = arguments.check("set_epoch", "epoch", "size", epoch)
end

function RandomSampler:draw()
  if self.seed then return native.seed_bytes(self.seed + self.epoch) end
  if self.generator then return self.generator:get_state() end
  return native.draw_seed()
end

-- The permutation after the last whole one is drawn even when nothing of it is used: so does PyTorch, and a generator
-- of the user's continues from there.
local function permutations(generator, n, count)
  local left, order = count, nil
  local whole = math.floor(count / n)
  return function()
    if order then
      local index = order()
      if index then return index end
      if not whole then return nil end
    end
    local tensor = native.permutation(generator, n)
    if whole > 0 then
      whole, left = whole - 1, left - n
      order = numbers_of(tensor, n)
    else
      whole = nil
      order = numbers_of(tensor, left)
    end
    return order()
  end
end

--- Return the order of a whole pass as a tensor of at least len() indices; nil when it is drawn during the pass.
---@param draw? userdata
---@return userdata? # int64
function RandomSampler:order(draw)
  local n, count = length_of(self.data_source), self:len()
  if self.generator or n == 0 then return nil end
  draw = draw or self:draw()
  if self.replacement then return native.whole_numbers(draw, n, count) end
  return native.permutation(draw, n, math.ceil(count / n))
end

function RandomSampler:iter(draw, from)
  local n, count = length_of(self.data_source), self:len()
  if n == 0 then
    if count > 0 then fail("RandomSampler: expected a data set with at least one sample") end
    return function() end
  end
  if not self.generator then return numbers_of(self:order(draw), count, from) end
  self.generator:set_state(draw or self:draw())
  if self.replacement then return numbers_of(native.whole_numbers(self.generator, n, count), count, from) end
  return dropped(permutations(self.generator, n, count), from)
end

-- Samplers whose draw is the order itself.
local function iter_order(self, draw, from)
  local order = native.to_indices(draw or self:draw())
  return numbers_of(order, order:numel(), from)
end

local SubsetRandomSampler = Sampler:extend "SubsetRandomSampler"
sampler.SubsetRandomSampler = SubsetRandomSampler

local read_subset = signature("SubsetRandomSampler", {"indices: list", {"generator: generator"}})

--- The given indices in a random order.
--
--   #data.SubsetRandomSampler{3, 1, 4}  --> 3
function SubsetRandomSampler:init(...)
  self.indices, self.generator = read_subset(...)
end

function SubsetRandomSampler:len() return #self.indices end

function SubsetRandomSampler:draw()
  return native.to_bytes(native.permutation(self.generator, #self.indices))
end

function SubsetRandomSampler:iter(draw, from)
  local next_place = iter_order(self, draw, from)
  return function()
    local place = next_place()
    return place and self.indices[place + 1]
  end
end

local WeightedRandomSampler = Sampler:extend "WeightedRandomSampler"
sampler.WeightedRandomSampler = WeightedRandomSampler

local read_weighted = signature("WeightedRandomSampler",
  {"weights: tensor|list", "num_samples: count", {"replacement: flag", true}, {"generator: generator"}})

--- Indices 0 .. #weights - 1, each drawn with a probability proportional to its weight.
--
--   #data.WeightedRandomSampler({0.1, 0.9}, 10)  --> 10
---@param weights number[]|userdata counted from 1 as tables are: weights[1] belongs to index 0
function WeightedRandomSampler:init(...)
  self.weights, self.num_samples, self.replacement, self.generator = read_weighted(...)
  if not self.replacement and self.num_samples > #self.weights then
    fail("WeightedRandomSampler: %d samples without replacement from %d", self.num_samples, #self.weights)
  end
end

function WeightedRandomSampler:len() return self.num_samples end

-- multinomial draws from the global generator: another one lends it its state.
function WeightedRandomSampler:draw()
  local weights = C.tensor(self.weights, {dtype = "float64", device = "cpu"})
  if not self.generator then return native.to_bytes(C.multinomial(weights, self.num_samples, self.replacement)) end
  local random = C.random
  local saved = random.get_rng_state()
  random.set_rng_state(self.generator:get_state())
  return native.to_bytes(protect(function()
    self.generator:set_state(random.get_rng_state())
    random.set_rng_state(saved)
  end, C.multinomial, weights, self.num_samples, self.replacement))
end

WeightedRandomSampler.iter = iter_order

local DistributedSampler = Sampler:extend "DistributedSampler"
sampler.DistributedSampler = DistributedSampler

local read_distributed = signature("DistributedSampler", {
  "dataset: sized", {"num_replicas: count"}, {"rank: size"}, {"shuffle: flag", true}, {"seed: size", 0},
  {"drop_last: flag", false},
})

--- One rank's shard: every num_replicas-th index from rank on, of a permutation seeded by seed + epoch. Padded by
--- samples from the start so that all ranks get the same number, or cut with drop_last. Call set_epoch before each
--- pass.
--
--   data.DistributedSampler(set, {num_replicas = 3, rank = 0})
---@param num_replicas? integer|table default: the number of processes
---@param rank? integer default: this process's
function DistributedSampler:init(...)
  local set, replicas, rank, shuffle, seed, drop_last = read_distributed(...)
  replicas, rank = replicas or C.comm.size(), rank or C.comm.rank()
  if rank >= replicas then
    fail("DistributedSampler: rank: expected 0 to %d, got %s", replicas - 1, describe(rank))
  end
  self.dataset, self.num_replicas, self.rank = set, replicas, rank
  self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
end

function DistributedSampler:len()
  local count = length_of(self.dataset)
  if self.drop_last and count % self.num_replicas ~= 0 then
    return math.max(0, math.ceil((count - self.num_replicas) / self.num_replicas))
  end
  return math.ceil(count / self.num_replicas)
end

--- Set the epoch of the next pass: the order is a function of seed and epoch.
function DistributedSampler:set_epoch(epoch)
  self.epoch = arguments.check("set_epoch", "epoch", "size", epoch)
end

--- Return the number of this rank's valid indices: those after them repeat others.
---@return integer
function DistributedSampler:valid_count()
  local own = math.ceil((length_of(self.dataset) - self.rank) / self.num_replicas)
  return math.max(0, math.min(own, self:len()))
end

function DistributedSampler:iter(_, from)
  local count, length = length_of(self.dataset), self:len()
  local order
  if self.shuffle then
    order = native.slice(native.permutation(native.seed_bytes(self.seed + self.epoch), count), 0, count)
  end
  local place = place_of(from) - 1
  return function()
    place = place + 1
    if place >= length then return nil end
    local at = (self.rank + place * self.num_replicas) % count
    return order and order[at + 1] or at
  end
end

local BatchSampler = Sampler:extend "BatchSampler"
sampler.BatchSampler = BatchSampler

local read_batches = signature("BatchSampler", {"sampler: sampler", "batch_size: count", {"drop_last: flag", false}})

--- Groups the indices of a sampler: its iterator returns tables of indices.
--
--   #data.BatchSampler(data.SequentialSampler(5), {batch_size = 2, drop_last = false})  --> 3
---@param inner table a sampler, or a table of indices
---@param drop_last? boolean|table leave out a last batch that is not full; default false
function BatchSampler:init(...)
  local inner, batch_size, drop_last = read_batches(...)
  self.sampler, self.batch_size, self.drop_last = sampler.wrap(inner), batch_size, drop_last
end

--- The number of indices of the sampler; nil when it is not known.
---@return integer?
function BatchSampler:sample_count()
  return self.sampler.len and self.sampler:len()
end

function BatchSampler:len()
  local count = self:sample_count()
  if not count then fail("%s has no len(), so the number of batches is not known", describe(self.sampler)) end
  return self.drop_last and math.floor(count / self.batch_size) or math.ceil(count / self.batch_size)
end

function BatchSampler:draw()
  return self.sampler.draw and self.sampler:draw()
end

function BatchSampler:set_epoch(epoch)
  if self.sampler.set_epoch then self.sampler:set_epoch(epoch) end
end

-- The whole order at once, where the sampler has it as a tensor, is cut without a step per index.
local function slices(order, count, size, drop_last, from)
  return function()
    local length = math.min(size, count - from)
    if length <= 0 or drop_last and length < size then return nil end
    from = from + length
    return native.slice(order, from - length, length)
  end
end

-- Return an iterator that also returns the number of valid indices of each batch: the first `count` of all are valid.
local function counted(following, from, count)
  local at = from
  return function()
    local batch = following()
    if not batch then return nil end
    local valid = math.max(0, math.min(#batch, count - at))
    at = at + #batch
    return batch, valid
  end
end

--- Iterate over the batches; where the sampler has valid_count, each is returned with the number of its valid indices.
---@param draw? userdata
---@param from? integer begin at this index
---@return fun(): integer[]?, integer?
function BatchSampler:iter(draw, from)
  from = place_of(from)
  local count = self.sampler.valid_count and self.sampler:valid_count()
  local following = self:_batches(draw, from)
  return count and counted(following, from, count) or following
end

function BatchSampler:_batches(draw, from)
  local order = self.sampler.order and self.sampler:order(draw)
  if order then return slices(order, self.sampler:len(), self.batch_size, self.drop_last, from) end
  local seeks = iteration.accepts_position(self.sampler)
  local next_index = seeks and self.sampler:iter(draw, from) or dropped(self.sampler:iter(draw), from)
  local size, drop_last = self.batch_size, self.drop_last
  local ended = false
  return function()
    if ended then return nil end
    local batch = {}
    for i = 1, size do
      local index = next_index()
      if index == nil then
        ended = true
        if i == 1 or drop_last then return nil end
        return batch
      end
      batch[i] = index
    end
    return batch
  end
end

local ListSampler = Sampler:extend "ListSampler"

function ListSampler:init(list) self.list = list end
function ListSampler:len() return #self.list end

function ListSampler:iter(_, from)
  local at = place_of(from)
  return function()
    at = at + 1
    return self.list[at]
  end
end

for _, known in ipairs {
  SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler, BatchSampler,
  ListSampler,
} do
  iteration.register(known.iter, true)
end

--- A sampler itself, a plain table as a sampler over its items.
---@param value table
---@return table
function sampler.wrap(value)
  return type(value.iter) == "function" and value or ListSampler(value)
end

return sampler
