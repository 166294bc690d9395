--- The multivariate normal distribution.
local C = require "accelhost._C"
local join = require "accelhost.functions.join"
local arguments = require "accelhost.util.arguments"
local constraints = require "accelhost.distributions.constraints"
local Distribution = require "accelhost.distributions.distribution"
local dims = require "accelhost.util.dims"
local linalg = require "accelhost.linalg"

local fail = arguments.fail

--- The normal distribution of vectors with mean `loc` and one of: the covariance matrix, its inverse, or the lower
--- triangular factor of the covariance (the fastest).
--
--   local d = distributions.MultivariateNormal(accelhost.zeros(2), accelhost.eye(2))
--   d:log_prob(accelhost.zeros(2))  --> tensor(-1.8379)
---@param loc Tensor [..., n]
---@param covariance_matrix? Tensor [..., n, n]
---@param precision_matrix? Tensor [..., n, n]
---@param scale_tril? Tensor [..., n, n]
---@field covariance_matrix Tensor
---@field precision_matrix Tensor
---@field scale_tril Tensor
local MultivariateNormal = Distribution:extend "MultivariateNormal"
MultivariateNormal.has_rsample = true
MultivariateNormal._parameters = {{"loc", constraints.real_vector}}

local read = arguments.signature("MultivariateNormal", {"loc: tensor", {"covariance_matrix: tensor"},
  {"precision_matrix: tensor"}, {"scale_tril: tensor"}, {"validate_args: flag"}})

local kinds = {covariance_matrix = "positive_definite", precision_matrix = "positive_definite",
  scale_tril = "lower_cholesky"}

-- The factor of the covariance from that of its inverse.
local function tril_of_precision(precision)
  local turned = linalg.cholesky(precision:flip(-2, -1)):flip(-2, -1):transpose(-2, -1)
  local identity = C.eye(precision:size(-1), {dtype = precision.dtype, device = precision.device})
  return linalg.solve_triangular(turned, identity:expand(precision:shape()), {upper = false})
end

function MultivariateNormal:init(...)
  local loc, covariance, precision, tril, validate = read(...)
  local matrix = covariance or precision or tril
  local name = covariance and "covariance_matrix" or precision and "precision_matrix" or "scale_tril"
  if loc:dim() < 1 then fail("MultivariateNormal: loc: expected a tensor of at least 1 dim, got shape ()") end
  if (covariance and 1 or 0) + (precision and 1 or 0) + (tril and 1 or 0) ~= 1 then
    fail("MultivariateNormal: expected exactly one of covariance_matrix, precision_matrix and scale_tril")
  end
  local n = loc:size(-1)
  if matrix:dim() < 2 or matrix:size(-1) ~= n or matrix:size(-2) ~= n then
    fail("MultivariateNormal: %s: expected a shape (..., %d, %d) for loc %s, got %s", name, n, n,
      arguments.shape_text(loc), arguments.shape_text(matrix))
  end
  local batch = join.broadcast_tensors(loc:select(-1, 0), matrix:select(-1, 0):select(-1, 0)):shape()
  self.loc = loc:expand(dims.concat(batch, {n}))
  if validate ~= false and self._validate_args and not constraints.holds(constraints[kinds[name]], matrix) then
    fail("MultivariateNormal: %s: expected %s, got others", name, constraints[kinds[name]].text)
  end
  self:_setup(batch, {n}, validate)
  self._tril = tril or covariance and linalg.cholesky(covariance) or tril_of_precision(precision)
end

function MultivariateNormal:_expand_from(other, shape)
  self.loc, self._tril = other.loc:expand(dims.concat(shape, other._event_shape)), other._tril
end

local function whole(self, matrix)
  return matrix:expand(dims.concat(self._batch_shape, self._event_shape, self._event_shape))
end

function MultivariateNormal:_get_scale_tril() return whole(self, self._tril) end

function MultivariateNormal:_get_covariance_matrix()
  return whole(self, self._tril:matmul(self._tril:transpose(-2, -1)))
end

function MultivariateNormal:_get_precision_matrix()
  return whole(self, linalg.inv(self._tril:matmul(self._tril:transpose(-2, -1))))
end

function MultivariateNormal:_get_mean() return self.loc end
function MultivariateNormal:_get_mode() return self.loc end

function MultivariateNormal:_get_variance()
  return (self._tril ^ 2):sum(-1):expand(dims.concat(self._batch_shape, self._event_shape))
end

function MultivariateNormal:_get_support() return constraints.real_vector end -- luacheck: no self

function MultivariateNormal:rsample(...)
  local noise = C.empty(self:_extended_shape(...), {dtype = self.loc.dtype, device = self.loc.device}):normal_()
  return self.loc + self._tril:matmul(noise:unsqueeze(-1)):squeeze(-1)
end

-- The sum of the logarithms of the factor's diagonal: half of the covariance's log determinant.
function MultivariateNormal:_half_log_det()
  return self._tril:diagonal(0, -2, -1):log():sum(-1)
end

-- x' covariance^-1 x
function MultivariateNormal:_mahalanobis(x)
  local sizes = join.broadcast_tensors(self._tril:select(-1, 0), x):shape()
  local n = self._event_shape[1]
  local factor = self._tril:expand(dims.concat(sizes, {n}))
  return linalg.solve_triangular(factor, x:expand(sizes):unsqueeze(-1), {upper = false}):squeeze(-1):square():sum(-1)
end

function MultivariateNormal:log_prob(value)
  self:_check_value("log_prob", value)
  local distance = self:_mahalanobis(value - self.loc)
  return (distance + self._event_shape[1] * math.log(2 * math.pi)) * -0.5 - self:_half_log_det()
end

function MultivariateNormal:entropy()
  local result = self:_half_log_det() + 0.5 * self._event_shape[1] * (1 + math.log(2 * math.pi))
  return #self._batch_shape == 0 and result or result:expand(self._batch_shape)
end

function MultivariateNormal:extra_repr()
  return ("loc: %s, scale_tril: %s"):format(arguments.shape_text(self.loc), arguments.shape_text(self.scale_tril))
end

return MultivariateNormal
