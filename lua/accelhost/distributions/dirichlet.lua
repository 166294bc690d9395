--- The Dirichlet distribution.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local dims = require "accelhost.util.dims"
local gradients = require "accelhost.distributions.gamma_gradients"
local shapes = require "accelhost.distributions.shapes"

--- Vectors of numbers from 0 that sum to 1, with concentrations along the last dim.
--
--   distributions.Dirichlet(accelhost.tensor {1, 3}).mean  --> tensor([0.2500, 0.7500])
---@param concentration Tensor [..., n] above 0
local Dirichlet = Distribution:extend "Dirichlet"
Dirichlet.has_rsample = true
Dirichlet._parameters = {{"concentration", constraints.positive_vector}}

local read = arguments.signature("Dirichlet", {"concentration: tensor", {"validate_args: flag"}})

function Dirichlet:init(...)
  local concentration, validate = read(...)
  local shape = concentration:shape()
  if #shape < 1 then
    arguments.fail("Dirichlet: concentration: expected a tensor of at least 1 dim, got shape ()")
  end
  self.concentration = concentration
  self:_setup(shapes.part(shape, 1, #shape - 1), {shape[#shape]}, validate)
end

function Dirichlet:_expand_from(other, shape)
  self.concentration = other.concentration:expand(dims.concat(shape, other._event_shape))
end

local Sample = autograd.Function:extend "dirichlet"

-- Gamma numbers in float64, divided by their sum and kept off 0 and 1.
function Sample.forward(ctx, concentration)
  local drawn, limits = C.standard_gamma(concentration:double()), C.dtype.finfo(concentration.dtype)
  local x = (drawn / drawn:sum(-1, true)):to(concentration.dtype):clamp(limits.tiny, 1 - limits.eps / 2)
  ctx:save_for_backward(x, concentration)
  return x
end

function Sample.backward(ctx, grad)
  local x, concentration = ctx.saved_tensors[1], ctx.saved_tensors[2]
  local total = concentration:sum(-1, true):expand(concentration:shape())
  return gradients.dirichlet(x, concentration, total) * (grad - (x * grad):sum(-1, true))
end

function Dirichlet:rsample(...)
  return (Sample.apply(self.concentration:expand((self:_extended_shape(...)))))
end

function Dirichlet:log_prob(value)
  self:_check_value("log_prob", value)
  local a = self.concentration
  return C.xlogy(a - 1, value):sum(-1) + a:sum(-1):lgamma() - a:lgamma():sum(-1)
end

function Dirichlet:_get_mean() return self.concentration / self.concentration:sum(-1, true) end

function Dirichlet:_get_mode()
  local above = (self.concentration - 1):clamp_min(0)
  local mode = above / above:sum(-1, true)
  local corner = F.one_hot(mode:argmax(-1), above:size(-1)):to(mode.dtype)
  return C.where(self.concentration:lt(1):all(-1):unsqueeze(-1), corner, mode)
end

function Dirichlet:_get_variance()
  local total = self.concentration:sum(-1, true)
  return self.concentration * (total - self.concentration) / (total ^ 2 * (total + 1))
end

function Dirichlet:_get_support() return constraints.simplex end -- luacheck: no self

function Dirichlet:entropy()
  local a = self.concentration
  local k, total = a:size(-1), a:sum(-1)
  return a:lgamma():sum(-1) - total:lgamma() - (k - total) * total:digamma() - ((a - 1) * a:digamma()):sum(-1)
end

return Dirichlet
