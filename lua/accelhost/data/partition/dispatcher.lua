--- Batches that one process makes for all: rounds of them, cut as Accelerate's dispatcher cuts.
--
-- A round is the samples of all processes in one step: as many batches of the batch sampler as there are processes, or
-- one (split_batches), concatenated and cut into equal parts in order. Where a round does not divide, its parts are
-- filled up with the first samples of the pass; without even_batches the first ranks of a last round get one more, and
-- a rank may get none.
local arguments = require "accelhost.util.arguments"
local Partition = require "accelhost.data.partition.partition"
local iteration = require "accelhost.data.iteration"

local fail = arguments.fail

local Dispatcher = Partition:extend "Dispatcher"

---@param options {size: integer, split_batches?: boolean, even_batches?: boolean}
function Dispatcher:init(batch_sampler, options)
  self.batch_sampler, self.size = batch_sampler, options.size
  self.split_batches, self.even_batches = options.split_batches or false, options.even_batches ~= false
  self.batch_size, self.drop_last = batch_sampler.batch_size, batch_sampler.drop_last or false
  if self.split_batches and self.batch_size and self.batch_size % self.size ~= 0 then
    fail("shard: with split_batches the batch size (%d) must be a multiple of the number of processes (%d)",
      self.batch_size, self.size)
  end
end

--- Return the batches of all ranks as rank 0 makes them, one after the other, as a partition.
---@return Dispatcher
function Dispatcher:of_all_ranks()
  local all = Dispatcher(self.batch_sampler, self)
  all.batches_per_round = self.size
  return all
end

--- Return the number of rounds: each rank gets as many batches, except ranks that an uneven last round leaves out.
function Dispatcher:len()
  local batches = self.batch_sampler:len()
  local count = batches / self:stride()
  return self.drop_last and math.floor(count) or math.ceil(count)
end

-- The samples of the next round; nil when there is none.
local function collect(self, next_batch)
  local samples, count, stride = {}, 0, self:stride()
  for taken = 1, stride do
    local batch = next_batch()
    if not batch then return taken > 1 and not self.drop_last and samples or nil end
    for i = 1, #batch do
      count = count + 1
      samples[count] = batch[i]
    end
  end
  return samples
end

-- Cut a round of `samples` into parts; return them and the number of valid samples of each.
local function cut(self, samples, start, is_last)
  local parts, valids, size, count = {}, {}, self.size, #samples
  local even = self.even_batches or not is_last
  local base, extra = math.floor(count / size), count % size
  local first = 0
  for rank = 0, size - 1 do
    local length = base + (even and (extra > 0 and 1 or 0) or rank < extra and 1 or 0)
    local part = {}
    for i = 1, length do
      local at = first + i
      part[i] = at <= count and samples[at] or start[(at - count - 1) % #start + 1]
    end
    parts[rank + 1], valids[rank + 1] = part, math.max(0, math.min(length, count - first))
    first = first + length
  end
  return parts, valids
end

--- Iterate over the parts, on rank 0: return the batch of rank 0, its number of valid samples, then that of rank 1 and
--- so on; no batches without samples.
---@param draw? userdata
---@param from? integer place of the batch sampler (see data/iteration.lua)
---@return fun(): table?, integer?
function Dispatcher:iter(draw, from)
  local next_batch, head = iteration.with_head(self.batch_sampler, draw, from or 0, self:stride())
  local start, following, parts, valids, rank
  local function of_head()
    local batches, at = head(), 0
    return collect(self, function()
      at = at + 1
      return batches[at]
    end)
  end
  local begun = false
  local function advance()
    if not begun then
      begun, following = true, collect(self, next_batch)
      if not following then return false end
      if not head then start = following end
    end
    local samples = following
    if not samples then return false end
    following = collect(self, next_batch)
    if #samples % self.size > 0 then start = start or of_head() or samples end
    parts, valids = cut(self, samples, start, following == nil)
    self.uneven = #parts[1] ~= #parts[self.size]
    rank = 0
    return true
  end
  return function()
    while true do
      if not parts or rank == self.size then
        if not advance() then return nil end
      end
      rank = rank + 1
      if #parts[rank] > 0 then return parts[rank], valids[rank] end
    end
  end
end

-- A loader's even_batches is set when it is prepared.
function Dispatcher:exchange_even_batches() return nil end -- luacheck: ignore self

iteration.register(Dispatcher.iter, false)

return Dispatcher
