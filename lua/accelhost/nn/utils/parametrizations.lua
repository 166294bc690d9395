--- accelhost.nn.utils.parametrizations: parametrizations of weights that have a name.
--
--   local layer = nn.utils.parametrizations.weight_norm(nn.Linear(20, 40))
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local namespace = require "accelhost.util.namespace"
local nn_module = require "accelhost.nn.module"
local parametrize = require "accelhost.nn.utils.parametrize"
local weight = require "accelhost.nn.utils.weight"

local no_grad = C.autograd.no_grad
local Module = nn_module.Module
local parametrizations = {}

local WeightNorm = Module:extend "_WeightNorm"

function WeightNorm:init(dim) self.dim = dim end

function WeightNorm:forward(g, v)
  return weight.scaled(v, g, self.dim)
end

function WeightNorm:right_inverse(value)
  return weight.norm_except_dim(value, self.dim), value
end

local read_weight_norm = weight.read_weight_norm

--- A weight as its length times its direction, w = g v / |v| (Salimans and Kingma, 2016). The lengths are
-- parametrizations[name].original0, the directions original1.
--
--   nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))(x):size(1)  --> 2
---@param dim integer|false? default 0: a length for each index of this dim; false (or -1): one for the whole tensor
---@return Module module
function parametrizations.weight_norm(...)
  local module, name, dim = read_weight_norm(...)
  return parametrize.register_parametrization(module, name, WeightNorm(weight.check_dim("weight_norm", module, name,
    dim)), {unsafe = true})
end

local SpectralNorm = Module:extend "_SpectralNorm"

function SpectralNorm:init(tensor, n_power_iterations, dim, eps)
  self.dim, self.eps = dim, eps
  if tensor:dim() == 1 then return end
  self.n_power_iterations = n_power_iterations
  local matrix = weight.as_matrix(tensor:detach(), dim)
  local u, v = weight.random_vectors(matrix, eps)
  self:register_buffer("_u", u)
  self:register_buffer("_v", v)
  self:iterate(matrix, 15)
end

--- Move the singular vectors towards those of the largest singular value.
function SpectralNorm:iterate(matrix, times)
  no_grad(function()
    for _ = 1, times do
      self._u:copy_(F.normalize(matrix:matmul(self._v), {dim = 0, eps = self.eps}))
      self._v:copy_(F.normalize(matrix:transpose(0, 1):matmul(self._u), {dim = 0, eps = self.eps}))
    end
  end)
end

function SpectralNorm:forward(tensor)
  if tensor:dim() == 1 then return F.normalize(tensor, {dim = 0, eps = self.eps}) end
  local matrix = weight.as_matrix(tensor, self.dim)
  if self.training then self:iterate(matrix, self.n_power_iterations) end
  -- Copies: the next forward changes the vectors, and this one's graph may still be needed.
  local u, v = self._u:clone(), self._v:clone()
  return tensor / u:dot(matrix:matmul(v))
end

function SpectralNorm.right_inverse(_, value)
  return value
end

local read_spectral_norm = weight.read_spectral_norm

--- A weight divided by its largest singular value (Miyato et al., 2018), which power iteration finds: 15 rounds at
-- first, then n_power_iterations at each use in training mode.
--
--   nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))(x):size(1)  --> 2
---@param dim integer? the dim of the outputs: 0, and 1 for transposed convolutions
---@return Module module
function parametrizations.spectral_norm(...)
  local module, name, n_power_iterations, eps, dim = read_spectral_norm(...)
  dim = weight.check_dim("spectral_norm", module, name, dim or weight.output_dim(module))
  return parametrize.register_parametrization(module, name, SpectralNorm(module[name], n_power_iterations, dim, eps))
end

return namespace.new("nn.utils.parametrizations", parametrizations, {
  orthogonal = {"accelhost.nn.utils.orthogonal"},
})
