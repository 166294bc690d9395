--- The layers of LoRA: a target module and, for each adapter, the factors of the sum that is added to it. Fields and
--- names in state dicts are peft's.
local C = require "accelhost._C"
local AdapterLayer = require("accelhost.peft.adapter_layer").AdapterLayer
local Conv1D = require("accelhost.models.decoders.gpt2").Conv1D
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local container = require "accelhost.nn.container"
local dropouts = require "accelhost.nn.dropout"
local embeddings = require "accelhost.nn.embedding"
local init = require "accelhost.nn.initializers"
local linalg = require "accelhost.util.later" "accelhost.linalg"
local linears = require "accelhost.nn.linear"
local parameter = require "accelhost.nn.parameter"
local Module = require("accelhost.nn.module").Module
local targets = require "accelhost.peft.targets"

local fail = arguments.fail
local Linear, Identity = linears.Linear, linears.Identity

local function no_grad(fn, ...) return C.autograd.no_grad(fn, ...) end

--- A target module, and the factors of each adapter.
local LoraLayer = AdapterLayer:extend "lora.Layer"

---@param base Module
function LoraLayer:init(base)
  AdapterLayer.init(self, base)
  self.scaling, self.rank = {}, {}
  self.lora_dropout = container.ModuleDict {}
  self:make_dicts()
end

--- Add an adapter.
---@param config LoraConfig
---@param target string the module's name
function LoraLayer:add(name, config, target)
  local rank = targets.value_of("LoraConfig: rank_pattern", config.rank_pattern, target, config.r)
  local alpha = targets.value_of("LoraConfig: alpha_pattern", config.alpha_pattern, target, config.lora_alpha)
  self.rank[name] = rank
  self.scaling[name] = config.use_rslora and alpha / math.sqrt(rank) or alpha / rank
  self.lora_dropout[name] = config.lora_dropout > 0 and dropouts.Dropout(config.lora_dropout) or Identity()
  self:make_factors(name, config, rank)
  self:place(name)
  if config.use_dora then self:add_magnitude(name) end
end

--- Is there an adapter of this name?
function LoraLayer:has(name) return self.scaling[name] ~= nil end

--- Remove an adapter.
function LoraLayer:remove(name)
  for _, dict in ipairs {self.lora_dropout, self.lora_A, self.lora_B, self.lora_embedding_A, self.lora_embedding_B,
    self.lora_magnitude_vector} do
    if dict:contains(name) then dict:pop(name) end
  end
  self.scaling[name], self.rank[name] = nil, nil
end

-- The product of the factors, in the layout of the weight.
local function delta_of(self, name)
  local delta = self:product(name) * self.scaling[name]
  return self.is_transposed and delta:t() or delta
end

-- The length of each row of W + delta, [out]; `delta` is [out, in].
local function row_norms(weight, delta)
  return (weight + delta):norm(2, {1}):to(weight.dtype)
end

local function by_rows(self, factor)
  local column = factor:view(-1, 1)
  return self.is_transposed and column:t() or column
end

-- Add a multiple of the bias of B to the base layer's.
local function add_bias(self, name, sign)
  local bias = self.lora_B:contains(name) and self.lora_B[name].bias
  if not bias then return end
  local base = self.base_layer.bias
  if not base then fail("merge_adapter: '%s' has lora_bias, and a base layer without a bias", name) end
  base:add_((bias * (sign * self.scaling[name])):to(base.dtype))
end

--- Add the product of an adapter to the weight itself.
function LoraLayer:merge_one(name)
  add_bias(self, name, 1)
  local delta = delta_of(self, name)
  local magnitude = self.lora_magnitude_vector:get(name)
  if not magnitude then
    self:change_weight(function(weight) return weight + delta:to(weight.dtype) end)
    return
  end
  local weight = self:base_weight()
  local plain = self.is_transposed and weight:t() or weight
  local rows = self.is_transposed and delta:t() or delta
  local factor = by_rows(self, magnitude.weight / row_norms(plain, rows))
  self.factors = self.factors or {}
  self.factors[name] = factor
  self:change_weight(function(before) return (factor * (before + delta)):to(before.dtype) end)
end

--- Subtract it.
function LoraLayer:unmerge_one(name)
  add_bias(self, name, -1)
  local delta, factor = delta_of(self, name), self.factors and self.factors[name]
  if factor then
    self:change_weight(function(weight) return (weight / factor - delta):to(weight.dtype) end)
    self.factors[name] = nil
  else
    self:change_weight(function(weight) return weight - delta:to(weight.dtype) end)
  end
end

--- Return the result with the active adapters.
function LoraLayer:adapted(x)
  local result = self.base_layer(x)
  local dtype = result.dtype
  for _, name in ipairs(self.active) do
    if self:has(name) then result = self:add_to(result, x, name) end
  end
  return result.dtype == dtype and result or result:to(dtype)
end

-- The length of rows of a weight with DoRA.
local Magnitude = Module:extend "lora.dora.DoraLinearLayer"

function Magnitude:init(weight) self.weight = parameter.new(weight) end

-- Linear maps.

local LoraLinear = LoraLayer:extend "lora.Linear"

--- Make the containers of the factors.
function LoraLinear:make_dicts()
  self.lora_A = container.ModuleDict {}
  self.lora_B = container.ModuleDict {}
  self.lora_embedding_A = container.ParameterDict {}
  self.lora_embedding_B = container.ParameterDict {}
  self.lora_magnitude_vector = container.ModuleDict {}
  self.is_transposed = class.is(self.base_layer, Conv1D)
end

-- Set the factors, [rank, in] and [out, rank], and subtract their product from the weight.
local function split_weight(self, name, a, b)
  C.set_data(self.lora_A[name].weight, a:contiguous())
  C.set_data(self.lora_B[name].weight, b:contiguous())
  local delta = b:matmul(a) * self.scaling[name]
  if self.is_transposed then delta = delta:t() end
  self:change_weight(function(weight) return (weight:to(delta.dtype) - delta):to(weight.dtype) end)
end

local function in_floats(weight) return weight.dtype == "float64" and weight or weight:float() end

-- First factors that are made from the weight, by init_lora_weights.
local from_base = {}

--- PiSSA (arXiv 2404.02948): the largest singular values.
function from_base.pissa(self, name, rank)
  local u, s, v = linalg.svd(in_floats(self:plain_weight()), {full_matrices = false})
  rank = math.min(rank, s:size(0))
  local roots = (s:narrow(0, 0, rank) / self.scaling[name]):sqrt()
  split_weight(self, name, roots:view(-1, 1) * v:narrow(0, 0, rank), u:narrow(1, 0, rank) * roots)
end

--- OLoRA (arXiv 2406.01775): the first columns of Q and rows of R.
function from_base.olora(self, name, rank)
  local q, r = linalg.qr(in_floats(self:plain_weight()))
  split_weight(self, name, r:narrow(0, 0, rank), q:narrow(1, 0, rank))
end

--- Random factors that are orthogonal, whose product is zero.
function from_base.orthogonal(self, name, rank)
  if rank % 2 ~= 0 then fail("LoraConfig: init_lora_weights = \"orthogonal\": expected an even r, got %d", rank) end
  local out, width = self:sizes()
  local q = (linalg.qr(C.randn {rank, rank}))
  local odd, even = q:view(-1, 2, rank):select(1, 0), q:view(-1, 2, rank):select(1, 1)
  C.set_data(self.lora_A[name].weight, (C.randn {width, rank / 2}:matmul(odd):t() / 10):contiguous())
  C.set_data(self.lora_B[name].weight, (C.randn {rank / 2, out}:t():matmul(even) / 10):contiguous())
end

--- Make the factors of an adapter. Both linear maps draw their first weights, also where they are replaced: random
--- numbers are those of peft.
function LoraLinear:make_factors(name, config, rank)
  local out, width = self:sizes()
  local a, b = Linear(width, rank, {bias = false}), Linear(rank, out, {bias = config.lora_bias})
  self.lora_A[name] = a
  self.lora_B[name] = b
  local kind = config.init_lora_weights
  if not kind then return end
  if from_base[kind] then
    no_grad(from_base[kind], self, name, rank)
    return
  end
  if kind == "gaussian" then
    init.normal_(a.weight, 0, 1 / rank)
  else
    init.kaiming_uniform_(a.weight, {a = math.sqrt(5)})
  end
  init.zeros_(b.weight)
  if b.bias then init.zeros_(b.bias) end
end

--- Return the factors.
function LoraLinear:parts(name) return {self.lora_A[name], self.lora_B[name]} end

--- Return B A, [out, in].
function LoraLinear:product(name) return self.lora_B[name].weight:matmul(self.lora_A[name].weight) end

--- Return the weight as [out, in].
function LoraLinear:plain_weight()
  local weight = self:base_weight()
  return self.is_transposed and weight:t() or weight
end

--- Make the lengths of the rows of DoRA from the weight and the factors.
function LoraLinear:add_magnitude(name)
  no_grad(function()
    local delta = self:product(name) * self.scaling[name]
    self.lora_magnitude_vector[name] = Magnitude(row_norms(self:plain_weight():to(delta.dtype), delta))
  end)
end

-- DoRA (arXiv 2402.09353): W + scaling B A with rows of the length `magnitude`; the length of the product counts as a
-- constant for gradients.
local function add_dora(self, result, x, name)
  local a, b, dropout, scaling = self.lora_A[name], self.lora_B[name], self.lora_dropout[name], self.scaling[name]
  local magnitude = self.lora_magnitude_vector[name].weight
  local weight, bias = self:plain_weight():to(x.dtype), self.base_layer.bias
  local norms = no_grad(function() return row_norms(weight, self:product(name):to(x.dtype) * scaling) end)
  local factor = (magnitude / norms):view(1, -1)
  local base
  if class.is(dropout, Identity) or not self.training then
    base = bias and result - bias or result
  else
    x = dropout(x)
    base = F.linear(x, weight)
  end
  return result + (factor - 1) * base + factor * b(a(x)) * scaling
end

--- Add an adapter's part to the result of the base layer.
function LoraLinear:add_to(result, x, name)
  local a = self.lora_A[name]
  if x.dtype ~= a.weight.dtype then x = x:to(a.weight.dtype) end
  if self.lora_magnitude_vector:contains(name) then return add_dora(self, result, x, name) end
  local b, scaling = self.lora_B[name], self.scaling[name]
  local low = a(self.lora_dropout[name](x))
  if b.bias then return result + b(low) * scaling end
  return result + b(low * scaling) -- the narrow side is multiplied: 2 % of a step
end

-- Embeddings.

local LoraEmbedding = LoraLayer:extend "lora.Embedding"

LoraEmbedding.make_dicts = LoraLinear.make_dicts

--- Make the factors of an adapter: A [rank, rows], B [width, rank].
function LoraEmbedding:make_factors(name, config, rank)
  for _, field in ipairs {"use_dora", "lora_bias"} do
    if config[field] then
      fail("LoraConfig: %s: embeddings have none; leave them out of target_modules", field)
    end
  end
  local weight = self.base_layer.weight
  local a, b = C.randn {rank, weight:size(0)}, C.randn {weight:size(1), rank}
  self.lora_embedding_A[name] = parameter.new(a)
  self.lora_embedding_B[name] = parameter.new(b)
  if not config.init_lora_weights then return end
  init.zeros_(self.lora_embedding_A[name])
  init.normal_(self.lora_embedding_B[name])
end

--- Return the factors.
function LoraEmbedding:parts(name) return {self.lora_embedding_A[name], self.lora_embedding_B[name]} end

--- Return (B A)^T, [rows, width].
function LoraEmbedding:product(name)
  return self.lora_embedding_B[name]:matmul(self.lora_embedding_A[name]):t()
end

--- Add an adapter's part to the result of the base layer.
function LoraEmbedding:add_to(result, x, name)
  local rows = F.embedding(x, self.lora_embedding_A[name]:t())
  return result + rows:matmul(self.lora_embedding_B[name]:t()) * self.scaling[name]
end

--- Return the layer with adapters for a target module.
---@param name string the module's
---@return LoraLayer
local function wrap(what, name, module)
  if class.is(module, LoraLayer) then return module end
  if class.is(module, Linear) or class.is(module, Conv1D) then return LoraLinear(module) end
  if class.is(module, embeddings.Embedding) then return LoraEmbedding(module) end
  fail("%s: target_modules: '%s' is a %s; adapters are for linear maps and embeddings", what, name,
    module:class_name())
end

return {wrap = wrap}
