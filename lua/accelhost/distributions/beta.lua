--- The beta distribution.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Dirichlet = require "accelhost.distributions.dirichlet"
local Distribution = require "accelhost.distributions.distribution"
local shapes = require "accelhost.distributions.shapes"

--- Numbers from 0 to 1: the first of a Dirichlet distribution of two.
--
--   distributions.Beta(1, 3).mean  --> tensor(0.2500)
---@param concentration1 number|Tensor above 0 (alpha)
---@param concentration0 number|Tensor above 0 (beta)
---@field concentration1 Tensor
---@field concentration0 Tensor
local Beta = Distribution:extend "Beta"
Beta.has_rsample = true

local read = arguments.signature("Beta", {"concentration1: number|tensor", "concentration0: number|tensor",
  {"validate_args: flag"}})

function Beta:init(...)
  local first, second, validate = read(...)
  local one, zero = shapes.broadcast(first, second)
  for name, value in pairs {concentration1 = one, concentration0 = zero} do
    if validate ~= false and self._validate_args and not constraints.holds(constraints.positive, value) then
      arguments.fail("Beta: %s: expected %s, got others", name, constraints.positive.text)
    end
  end
  self._dirichlet = Dirichlet(C.stack({one, zero}, -1), false)
  self:_setup(one:shape(), {}, validate)
end

function Beta:_expand_from(other, shape) self._dirichlet = other._dirichlet:expand(shape) end

function Beta:_get_concentration1() return self._dirichlet.concentration:select(-1, 0) end
function Beta:_get_concentration0() return self._dirichlet.concentration:select(-1, 1) end
function Beta:_get_mean() return self.concentration1 / (self.concentration1 + self.concentration0) end
function Beta:_get_mode() return self._dirichlet.mode:select(-1, 0) end
function Beta:_get_support() return constraints.unit_interval end -- luacheck: no self

function Beta:_get_variance()
  local total = self.concentration1 + self.concentration0
  return self.concentration1 * self.concentration0 / (total ^ 2 * (total + 1))
end

function Beta:rsample(...) return self._dirichlet:rsample(...):select(-1, 0) end

function Beta:log_prob(value)
  self:_check_value("log_prob", value)
  return self._dirichlet:log_prob(C.stack({value, 1 - value}, -1))
end

function Beta:entropy() return self._dirichlet:entropy() end

function Beta:extra_repr()
  return ("concentration1: %s, concentration0: %s"):format(arguments.sizes_text(self._batch_shape),
    arguments.sizes_text(self._batch_shape))
end

return Beta
