--- Every batch to this rank: of a job of one process, or of an order that is divided among the ranks already.
local Partition = require "accelhost.data.partition.partition"
local arguments = require "accelhost.util.arguments"
local iteration = require "accelhost.data.iteration"

local Whole = Partition:extend "Whole"

---@param is_part? boolean does it divide the batches of all ranks itself, as a BatchSamplerShard does?
function Whole:init(batch_sampler, is_part)
  self.batch_sampler, self.batch_size, self.size = batch_sampler, batch_sampler.batch_size, 1
  self.drop_last, self.is_part = batch_sampler.drop_last or false, is_part
  if is_part and batch_sampler.split_batches then
    self.split_batches, self.size = true, batch_sampler.size
  end
end

function Whole:stride() return self.is_part and self.batch_sampler.stride and self.batch_sampler:stride() or 1 end

function Whole:len()
  if not self.batch_sampler.len then arguments.fail("DataLoader: the batch sampler has no len()") end
  return self.batch_sampler:len()
end

function Whole:iter(draw, from) return iteration.from(self.batch_sampler, draw, from or 0) end

function Whole:is_uneven() return self.batch_sampler.uneven == true end

function Whole:exchange_even_batches(even)
  local before = self.batch_sampler.even_batches
  if before ~= nil then self.batch_sampler.even_batches = even end
  return before
end

return Whole
