--- Sums of adapters, as peft's add_weighted_adapter computes them: task arithmetic, TIES (arXiv 2306.01708), DARE
--- (arXiv 2311.03099).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local layers = require "accelhost.peft.adapter_layer"
local linalg = require "accelhost.util.later" "accelhost.linalg"

local fail, describe = arguments.fail, arguments.describe
local WHAT = "add_weighted_adapter"
local weighted_adapter = {}

-- Keep the largest elements of a tensor.
local function prune_magnitude(tensor, density)
  if density >= 1 then return tensor end
  local flat = tensor:reshape(-1)
  local kept = math.floor(density * flat:numel())
  local _, places = flat:abs():topk(kept)
  return (flat * C.zeros_like(flat):index_fill_(0, places, 1)):view(tensor:size())
end

-- Keep random elements, and divide them by their part.
local function prune_random(tensor, density)
  if density >= 1 then return tensor end
  return tensor * C.bernoulli(C.full_like(tensor, density)) / density
end

local function pruned(list, density, prune)
  local found = {}
  for i, tensor in ipairs(list) do found[i] = prune(tensor, density) end
  return found
end

local function sum(list, weights)
  local total
  for i, tensor in ipairs(list) do
    local part = tensor * weights[i]
    total = total and total + part or part
  end
  return total
end

-- The mean of the elements whose sign is that of most.
local function disjoint(list, weights, method)
  local votes
  for _, tensor in ipairs(list) do
    local vote = method == "frequency" and tensor:sign() or tensor
    votes = votes and votes + vote or vote
  end
  local majority, total, count = votes:ge(0):to(votes.dtype) * 2 - 1, nil, nil
  for i, tensor in ipairs(list) do
    local mask = tensor:sign():eq(majority):to(tensor.dtype)
    local part = tensor * weights[i] * mask
    total, count = total and total + part or part, count and count + mask or mask
  end
  return total / count:clamp(1)
end

-- By the combination's name without _svd.
local combine = {
  linear = sum, svd = sum,
  magnitude_prune = function(list, weights, o) return sum(pruned(list, o.density, prune_magnitude), weights) end,
  dare_linear = function(list, weights, o) return sum(pruned(list, o.density, prune_random), weights) end,
  ties = function(list, weights, o)
    return disjoint(pruned(list, o.density, prune_magnitude), weights, o.majority_sign_method)
  end,
  dare_ties = function(list, weights, o)
    return disjoint(pruned(list, o.density, prune_random), weights, o.majority_sign_method)
  end,
}

-- The two factors of an adapter as tensors.
local function factors(layer, name)
  local a, b = unpack(layer:parts(name))
  if C.is_tensor(a) then return a:detach(), b:detach() end
  return a.weight:detach(), b.weight:detach()
end

local function present(layer, adapters, weights)
  local names, own = {}, {}
  for i, name in ipairs(adapters) do
    if layer:has(name) then names[#names + 1], own[#own + 1] = name, weights[i] end
  end
  return names, own
end

-- Write the factors side by side.
local function concatenate(layer, names, weights, a, b)
  local row = 0
  for i, name in ipairs(names) do
    local own_a, own_b = factors(layer, name)
    local rank = own_a:size(0)
    a:narrow(0, row, rank):copy_(own_a * (weights[i] * layer.scaling[name]))
    b:narrow(1, row, rank):copy_(own_b)
    row = row + rank
  end
end

-- Write sums of each factor.
local function add_factors(layer, names, weights, a, b, options)
  local list_a, list_b, weights_a, weights_b = {}, {}, {}, {}
  for i, name in ipairs(names) do
    list_a[i], list_b[i] = factors(layer, name)
    local weight = weights[i] * layer.scaling[name]
    weights_b[i] = math.sqrt(math.abs(weight))
    weights_a[i] = weight < 0 and -weights_b[i] or weights_b[i]
  end
  local fn = combine[options.combination_type]
  local sum_a, sum_b = fn(list_a, weights_a, options), fn(list_b, weights_b, options)
  if not C.same_shape(sum_a, a) then
    fail("%s: adapters of one rank in each module are expected with \"%s\"; use \"cat\" or \"svd\"", WHAT,
      options.combination_type)
  end
  a:copy_(sum_a)
  b:copy_(sum_b)
end

-- Write the factors that are nearest to the sum of the products.
local function add_products(layer, names, weights, a, b, options)
  local deltas = {}
  for i, name in ipairs(names) do
    local own_a, own_b = factors(layer, name)
    deltas[i] = own_b:matmul(own_a) * layer.scaling[name]
  end
  local total = combine[options.combination_type:gsub("_svd$", "")](deltas, weights, options)
  local u, s, v = linalg.svd(total, {full_matrices = false})
  local rank = math.min(a:size(0), s:size(0))
  u, v = u:narrow(1, 0, rank) * s:narrow(0, 0, rank), v:narrow(0, 0, rank)
  if options.svd_clamp then
    local high = C.cat({u:reshape(-1), v:reshape(-1)}):quantile(options.svd_clamp):item()
    u, v = u:clamp(-high, high), v:clamp(-high, high)
  end
  a:narrow(0, 0, rank):copy_(v)
  b:narrow(1, 0, rank):copy_(u)
end

-- The largest rank of an adapter.
local function rank_of(config)
  local rank = config.r
  for _, other in pairs(config.rank_pattern) do rank = math.max(rank, other) end
  return rank
end

local function rank_of_sum(configs, options)
  local kind, ranks = options.combination_type, {}
  local largest, total, is_one = 0, 0, true
  for i, config in ipairs(configs) do
    ranks[i] = rank_of(config)
    largest, total, is_one = math.max(largest, ranks[i]), total + ranks[i], is_one and ranks[i] == ranks[1]
  end
  if kind == "cat" then return total end
  if kind:find "svd$" then return options.svd_rank or largest end
  if not is_one then
    fail("%s: adapters of one rank are expected with \"%s\", got r = %s; use \"cat\" or \"svd\"", WHAT, kind,
      table.concat(ranks, ", "))
  end
  return largest
end

-- The targets of all: a list, or a regular expression.
local function union(configs)
  local names, seen, kind = {}, {}, type(configs[1].target_modules)
  for _, config in ipairs(configs) do
    local own = config.target_modules
    if type(own) ~= kind then fail("%s: target_modules are a list in one adapter and a text in another", WHAT) end
    for _, name in ipairs(kind == "string" and {own} or own) do
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
  end
  if kind ~= "string" then return names end
  return #names == 1 and names[1] or "(" .. table.concat(names, ")|(") .. ")"
end

local option_types = {
  combination_type = "'svd'|'linear'|'cat'|'ties'|'ties_svd'|'magnitude_prune'|'magnitude_prune_svd'|'dare_linear'"
    .. "|'dare_linear_svd'|'dare_ties'|'dare_ties_svd'",
  svd_rank = "size", svd_clamp = "number", density = "number", majority_sign_method = "'total'|'frequency'",
}

local function read_options(adapters, weights, options)
  arguments.check(WHAT, "adapters", "list", adapters)
  arguments.check(WHAT, "weights", "list", weights)
  if #adapters == 0 or #weights ~= #adapters then
    fail("%s: expected a weight for each adapter, got %d adapters and %d weights", WHAT, #adapters, #weights)
  end
  arguments.check_names(WHAT, options or {}, arguments.sorted_keys(option_types))
  local read = {combination_type = "svd", majority_sign_method = "total"}
  for name, value in pairs(options or {}) do
    read[name] = arguments.check(WHAT, name, option_types[name], value)
  end
  if #adapters == 1 then read.combination_type = "linear" end
  local kind = read.combination_type
  if (kind:find "^ties" or kind:find "^dare" or kind:find "prune") and not read.density then
    fail("%s: density: expected a number from 0 to 1 with \"%s\"", WHAT, kind)
  end
  return read
end

--- Add an adapter to a model that is the weighted sum of others.
---@param model PeftModel
---@param adapters string[]
---@param weights number[]
---@param adapter_name string
---@param options? table
function weighted_adapter.add(model, adapters, weights, adapter_name, options)
  options = read_options(adapters, weights, options)
  local configs = {}
  for i, name in ipairs(adapters) do
    configs[i] = model.peft_config[name]
    if not configs[i] then fail("%s: unknown adapter %s", WHAT, describe(name)) end
    if configs[i].peft_type ~= "LORA" then fail("%s: '%s' is no LoRA", WHAT, name) end
    if configs[i].use_dora or configs[i].lora_bias then
      fail("%s: '%s' has %s, which has no sum", WHAT, name, configs[i].use_dora and "use_dora" or "lora_bias")
    end
  end
  local config = arguments.copy(configs[1])
  config.r = rank_of_sum(configs, options)
  config.lora_alpha, config.target_modules = config.r, union(configs)
  config.rank_pattern, config.alpha_pattern, config.use_rslora = {}, {}, false
  -- the random numbers are peft's, and a first factor made from the weight would change the weight
  if config.init_lora_weights then config.init_lora_weights = true end
  model:add_adapter(adapter_name, setmetatable(config, getmetatable(configs[1])))
  local kind = options.combination_type
  local write = kind == "cat" and concatenate or kind:find "svd$" and add_products or add_factors
  C.autograd.no_grad(function()
    for _, layer in model:named_modules() do
      if class.is(layer, layers.AdapterLayer) and layer:has(adapter_name) then
        local names, own = present(layer, adapters, weights)
        local a, b = factors(layer, adapter_name)
        a:zero_()
        b:zero_()
        if #names > 0 then write(layer, names, own, a, b, options) end
      end
    end
  end)
end

return weighted_adapter
