--- Batch dims of a distribution as dims of its events.
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local dims = require "accelhost.util.dims"
local shapes = require "accelhost.distributions.shapes"

local fail, describe = arguments.fail, arguments.describe

--- The last `reinterpreted_batch_ndims` batch dims of a distribution as dims of one event: log_prob and entropy are
--- sums over them.
--
--   local d = distributions.Independent(distributions.Normal(accelhost.zeros(2, 3), 1), 1)
--   d:log_prob(accelhost.zeros(2, 3)):shape()  --> {2}
---@param base_distribution Distribution
---@field base_dist Distribution
local Independent = Distribution:extend "Independent"

local read = arguments.signature("Independent", {"base_distribution: any", "reinterpreted_batch_ndims: size",
  {"validate_args: flag"}})

function Independent:init(...)
  local base, count, validate = read(...)
  if type(base) ~= "table" or not base._batch_shape then
    fail("Independent: base_distribution: expected a distribution, got %s", describe(base))
  end
  local batch = base._batch_shape
  if count > #batch then
    fail("Independent: reinterpreted_batch_ndims: expected at most %d, the batch dims of %s, got %d", #batch,
      base._name, count)
  end
  self.base_dist, self.reinterpreted_batch_ndims, self.has_rsample = base, count, base.has_rsample
  self:_setup(shapes.part(batch, 1, #batch - count),
    dims.concat(shapes.part(batch, #batch - count + 1, #batch), base._event_shape), validate)
end

function Independent:_expand_from(other, shape)
  self.reinterpreted_batch_ndims, self.has_rsample = other.reinterpreted_batch_ndims, other.has_rsample
  self.base_dist = other.base_dist:expand(dims.concat(shape,
    shapes.part(other._event_shape, 1, other.reinterpreted_batch_ndims)))
end

function Independent:_get_mean() return self.base_dist.mean end
function Independent:_get_mode() return self.base_dist.mode end
function Independent:_get_variance() return self.base_dist.variance end

function Independent:_get_support()
  return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)
end

function Independent:sample(...) return self.base_dist:sample(...) end
function Independent:rsample(...) return self.base_dist:rsample(...) end

function Independent:log_prob(value)
  return shapes.sum_last(self.base_dist:log_prob(value), self.reinterpreted_batch_ndims)
end

function Independent:entropy()
  return shapes.sum_last(self.base_dist:entropy(), self.reinterpreted_batch_ndims)
end

function Independent:extra_repr()
  return ("%s, %d"):format(tostring(self.base_dist), self.reinterpreted_batch_ndims)
end

return Independent
