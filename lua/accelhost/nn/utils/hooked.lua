--- The older weight_norm and spectral_norm: they keep the weight as a plain field that every forward computes again.
-- Files of PyTorch made with them have weight_g and weight_v, or weight_orig, weight_u and weight_v.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local hooks = require "accelhost.nn.hooks"
local parameter = require "accelhost.nn.parameter"
local weight = require "accelhost.nn.utils.weight"

local fail, no_grad = arguments.fail, C.autograd.no_grad
local hooked = {}

-- A hook is an object that computes the weight; a copied module shares it.
local function is_hook(value, kind, name)
  local meta = getmetatable(value)
  return type(meta) == "table" and meta == kind and value.name == name
end

local function kind_of(compute)
  local kind = {}
  kind.__index, kind.compute = kind, compute
  kind.__call = function(self, module) module[self.name] = self:compute(module, module.training) end
  return kind
end

local function find(module, kind, name)
  for _, entry in ipairs(module._forward_pre_hooks or {}) do
    if is_hook(entry.call, kind, name) then return entry.call end
  end
end

local function check_new(what, module, kind, name)
  if find(module, kind, name) then fail("%s: '%s' of %s has one already", what, name, module._name) end
  if module._kind[name] ~= "parameter" then fail("%s: %s has no parameter '%s'", what, module._name, name) end
end

-- Remove the hook; return the current weight.
local function remove_hook(what, module, kind, name)
  local hook = find(module, kind, name)
  if not hook then fail("%s: '%s' of %s has none", what, name, module._name) end
  local value = no_grad(hook.compute, hook, module, false)
  hooks.remove(module, "_forward_pre_hooks", hook)
  module:_drop(name)
  return value:detach()
end

local WeightNorm = kind_of(function(self, module)
  return weight.scaled(module[self.name .. "_v"], module[self.name .. "_g"], self.dim)
end)

local read_weight_norm = weight.read_weight_norm

--- A weight as its length (weight_g) times its direction (weight_v), computed before each forward. New code uses
-- nn.utils.parametrizations.weight_norm.
--
--   nn.utils.weight_norm(nn.Linear(4, 2)).weight_g:size(0)  --> 2
---@param dim integer|false? default 0; false: one length for the whole tensor
---@return Module module
function hooked.weight_norm(...)
  local module, name, dim = read_weight_norm(...)
  check_new("weight_norm", module, WeightNorm, name)
  dim = weight.check_dim("weight_norm", module, name, dim)
  local value = module[name]:detach()
  module:_drop(name)
  module:register_parameter(name .. "_g", parameter.new(weight.norm_except_dim(value, dim)))
  module:register_parameter(name .. "_v", parameter.new(value))
  local hook = setmetatable({name = name, dim = dim}, WeightNorm)
  hook(module)
  module:register_forward_pre_hook(hook)
  return module
end

--- Make the weight a plain parameter again.
--
--   nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(4, 2)))(x):size(1)  --> 2
---@return Module module
hooked.remove_weight_norm = arguments.named("remove_weight_norm", {
  "module: module", {"name: string", "weight"},
}, function(what, module, name)
  local value = remove_hook(what, module, WeightNorm, name)
  module:_drop(name .. "_g")
  module:_drop(name .. "_v")
  module:register_parameter(name, parameter.new(value))
  return module
end)

local SpectralNorm = kind_of(function(self, module, training)
  local original, u, v = module[self.name .. "_orig"], module[self.name .. "_u"], module[self.name .. "_v"]
  local matrix = weight.as_matrix(original, self.dim)
  if training then
    no_grad(function()
      for _ = 1, self.n_power_iterations do
        v:copy_(F.normalize(matrix:transpose(0, 1):matmul(u), {dim = 0, eps = self.eps}))
        u:copy_(F.normalize(matrix:matmul(v), {dim = 0, eps = self.eps}))
      end
    end)
    u, v = u:clone(), v:clone()
  end
  return original / u:dot(matrix:matmul(v))
end)

local read_spectral_norm = weight.read_spectral_norm

--- A weight (weight_orig) divided by its largest singular value, which power iteration finds, computed before each
-- forward. New code uses nn.utils.parametrizations.spectral_norm.
--
--   nn.utils.spectral_norm(nn.Linear(4, 2))(x):size(1)  --> 2
---@param n_power_iterations integer? default 1, in training mode
---@param dim integer? the dim of the outputs: 0, and 1 for transposed convolutions
---@return Module module
function hooked.spectral_norm(...)
  local module, name, n_power_iterations, eps, dim = read_spectral_norm(...)
  check_new("spectral_norm", module, SpectralNorm, name)
  dim = weight.check_dim("spectral_norm", module, name, dim or weight.output_dim(module))
  local value = module[name]
  local u, v = weight.random_vectors(weight.as_matrix(value:detach(), dim), eps)
  module:_drop(name)
  module:register_parameter(name .. "_orig", value)
  module[name] = value:detach()
  module:register_buffer(name .. "_u", u)
  module:register_buffer(name .. "_v", v)
  module:register_forward_pre_hook(setmetatable({name = name, dim = dim, eps = eps,
    n_power_iterations = n_power_iterations}, SpectralNorm))
  return module
end

--- Make the weight a plain parameter again.
--
--   nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(4, 2)))(x):size(1)  --> 2
---@return Module module
hooked.remove_spectral_norm = arguments.named("remove_spectral_norm", {
  "module: module", {"name: string", "weight"},
}, function(what, module, name)
  local value = remove_hook(what, module, SpectralNorm, name)
  for _, part in ipairs {"_orig", "_u", "_v"} do module:_drop(name .. part) end
  module:register_parameter(name, parameter.new(value))
  return module
end)

return hooked
