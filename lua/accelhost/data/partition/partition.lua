--- Partition: which rank gets which batch of a batch sampler, the interface that loaders and their passes use.
--
-- A round is the samples of all ranks in one step; `stride` batches of the batch sampler make one. A place counts the
-- samples or batches of all ranks together (iteration.lua), so that a job of another number of ranks can continue from
-- it. The kinds:
--
--   whole           every batch to this rank: one process, or an order that is divided already
--   sampler shard   whole batches to the ranks in turn, or equal or proportional parts of them (BatchSamplerShard)
--   dispatcher      rank 0 makes the batches of all ranks
--   micro-batches   a fixed number of virtual shards, each rank's one after the other
--   stream shard    batches of the part that a stream returns of itself
local class = require "accelhost.util.class"
local iteration = require "accelhost.data.iteration"

---@field batch_sampler table of the batches of all ranks
---@field rank integer?
---@field size integer? number of parts of a round
---@field batch_size integer?
---@field split_batches boolean? is a batch of the batch sampler a whole round?
---@field even_batches boolean?
---@field drop_last boolean
---@field uneven boolean are the ranks' batches of the current round of unequal lengths?
---@field batches_per_round integer batches that iter returns for each round
local Partition = class.sized "Partition"
Partition.batches_per_round, Partition.uneven = 1, false

--- Return the random state of the next pass, as bytes; nil when it is not random.
---@return userdata?
function Partition:draw()
  return self.batch_sampler.draw and self.batch_sampler:draw()
end

--- Set the epoch of the next pass, on the batch sampler too.
function Partition:set_epoch(epoch)
  if self.batch_sampler.set_epoch then self.batch_sampler:set_epoch(epoch) end
end

--- Return the number of samples in the batches of all ranks; nil when the batch sampler does not know it.
---@return integer?
function Partition:sample_count()
  return self.batch_sampler.sample_count and self.batch_sampler:sample_count()
end

--- Return the number of batches of the batch sampler in a round of all ranks.
---@return integer
function Partition:stride() return self.split_batches and 1 or self.size end

--- Return the number of places in a round.
---@return integer
function Partition:round_size() return self:stride() * iteration.unit(self.batch_sampler) end

--- Return the unit of a position; a pass cannot continue from a position in another unit.
---@return string
function Partition:unit() return iteration.counts_samples(self.batch_sampler) and "samples" or "batches" end

--- Return the number of samples in a full batch of this rank; nil when it is not known.
---@return number?
function Partition:full_length()
  return self.batch_size and (self.split_batches and self.batch_size / self.size or self.batch_size)
end

--- Return the number of samples in a full round; nil when it is not known.
---@return integer?
function Partition:round_length()
  return self.batch_size and (self.split_batches and self.batch_size or self.batch_size * self.size)
end

--- Return the number of rounds in which this rank has a batch.
---@return integer
function Partition:len() return self.batch_sampler:len() end

--- Iterate over this rank's batches: return each with the number of its valid samples, which are the first, and a flag:
--- does it only fill up a round of micro-batches?
---@param draw userdata?
---@param from integer? begin at this place, where a round begins
---@return fun(): table?, integer?, boolean?
function Partition:iter(draw, from) -- luacheck: ignore draw from
  error(self._name .. " has no method iter()")
end

--- Are the ranks' batches of the current round of unequal lengths?
function Partition:is_uneven() return self.uneven end

--- Do the ranks continue, of which this one has a batch or none? May be a collective.
---@param has boolean
---@param agreed boolean? have the ranks agreed already that they do?
function Partition:continues(has, agreed) return has end -- luacheck: ignore self agreed

--- Set even_batches where it can be changed between passes; return its value before, nil where it cannot.
---@param even boolean
---@return boolean?
function Partition:exchange_even_batches(even)
  local before = self.even_batches
  self.even_batches = even
  return before
end

return Partition
