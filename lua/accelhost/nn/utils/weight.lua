--- Shared by weight_norm and spectral_norm: weights as matrices, their norms and first singular vectors.
---@param dim integer
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local conv = require "accelhost.nn.conv"

local weight = {}

--- All dims but one.
function weight.other_dims(tensor, dim)
  local dims = {}
  for d = 0, tensor:dim() - 1 do
    if d ~= dim then dims[#dims + 1] = d end
  end
  return dims
end

--- The length of a tensor along all dims but `dim`, which stay with size 1; along all of them for -1 (0-dim then).
---@param tensor Tensor
---@return table
function weight.norm_except_dim(tensor, dim)
  if dim == -1 then return tensor:norm(2) end
  if tensor:dim() == 1 then return tensor:abs() end
  return tensor:norm(2, weight.other_dims(tensor, dim), true)
end

--- The tensor of direction v and lengths g.
---@param v Tensor
---@param g Tensor as of norm_except_dim
---@return table
function weight.scaled(v, g, dim)
  return v * (g / weight.norm_except_dim(v, dim))
end

--- A weight as a matrix whose rows are the indices of `dim`.
---@param tensor Tensor
---@return Tensor [size(dim), rest]
function weight.as_matrix(tensor, dim)
  if dim ~= 0 then tensor = tensor:permute(unpack({dim, unpack(weight.other_dims(tensor, dim))})) end
  return tensor:dim() > 1 and tensor:flatten(1) or tensor:unsqueeze(1)
end

--- Parse the arguments of weight_norm and spectral_norm, of both of PyTorch's kinds.
weight.read_weight_norm = arguments.signature("weight_norm",
  {"module: module", {"name: string", "weight"}, {"dim: integer|false", 0}})
weight.read_spectral_norm = arguments.signature("spectral_norm", {
  "module: module", {"name: string", "weight"}, {"n_power_iterations: count", 1}, {"eps: nonnegative", 1e-12},
  {"dim: integer"},
})

--- Random unit vectors with which power iteration begins.
---@param matrix Tensor
---@param eps number
---@return Tensor left, Tensor right
function weight.random_vectors(matrix, eps)
  local function vector(d)
    return F.normalize(matrix:new_empty({matrix:size(d)}):normal_(0, 1), {dim = 0, eps = eps})
  end
  local left = vector(0)
  return left, vector(1)
end

local transposed = {"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"}

--- The dim of a module's weight that counts its outputs.
---@return integer
function weight.output_dim(module)
  for _, name in ipairs(transposed) do
    if conv[name] and class.is(module, conv[name]) then return 1 end
  end
  return 0
end

--- A dim of a module's tensor, counted from 0 (false: -1, no dim); raises when there is no such tensor or dim.
---@param dim integer|false
---@return integer
function weight.check_dim(what, module, name, dim)
  local tensor = module[name]
  if not C.is_tensor(tensor) then arguments.fail("%s: %s has no parameter '%s'", what, module._name, name) end
  if dim == false or dim == -1 and what == "weight_norm" then return -1 end
  local dims = tensor:dim()
  if dim < -dims or dim >= dims then
    arguments.fail("%s: dim %d is out of range (expected %d..%d)", what, dim, -dims, dims - 1)
  end
  return dim % dims
end

return weight
