--- accelhost.nn.utils.prune: elements or channels of a parameter set to 0 by a mask, as torch.nn.utils.prune does it.
--
--   local layer = nn.Linear(4, 2)
--   nn.utils.prune.l1_unstructured(layer, "weight", {amount = 0.5})
--   layer.weight:eq(0):sum()  --> tensor(4)
--
-- The parameter becomes NAME_orig, the buffer NAME_mask has ones and zeros, and NAME is their product, computed before
-- each forward. An amount below 1 is a fraction, one of 1 or more a number of elements or channels.
---@param name string the parameter
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local hooks = require "accelhost.nn.hooks"
local namespace = require "accelhost.util.namespace"
local other_dims = require("accelhost.nn.utils.weight").other_dims

local fail, no_grad, signature = arguments.fail, C.autograd.no_grad, arguments.signature
local checked, named = arguments.checked, arguments.named
local prune = {}

--- The base of pruning methods. A subclass has PRUNING_TYPE ("unstructured", "structured" or "global") and
--- compute_mask; a structured one also `dim`.
--
--   local Every = nn.utils.prune.BasePruningMethod:extend "Every"
--   Every.PRUNING_TYPE = "unstructured"
--   function Every:compute_mask(t, default_mask)
--     return default_mask * accelhost.arange(t:numel()):remainder(2):view_as(t)
--   end
--   Every:apply(nn.Linear(4, 2), "weight").name  --> weight
---@field PRUNING_TYPE string
---@field name string the parameter
local Base = class.new "BasePruningMethod"
prune.BasePruningMethod = Base

-- The hook: NAME = NAME_orig * NAME_mask.
Base.__call = function(self, module) module[self.name] = self:apply_mask(module) end

--- The new mask.
---@param t Tensor the importance of the elements; of a parameter that is pruned already those that are left
---@param default_mask Tensor like t: ones, or the mask so far
---@return Tensor like t, of ones and zeros
function Base:compute_mask(t, default_mask) -- luacheck: ignore 212
  fail("%s has no compute_mask: define function %s:compute_mask(t, default_mask)", self._name, self._name)
end

--- The masked parameter.
---@return Tensor
function Base:apply_mask(module)
  local original = module[self.name .. "_orig"]
  return module[self.name .. "_mask"]:to(original.dtype) * original
end

--- A tensor with the elements pruned that this method would choose.
---@param t Tensor
---@param default_mask Tensor? like t
---@param importance_scores Tensor? like t; default t
---@return Tensor
function Base:prune(t, default_mask, importance_scores)
  return t * self:compute_mask(importance_scores or t, default_mask or C.ones_like(t))
end

-- The pruning of a parameter, if there is one.
local function method_of(module, name)
  for _, entry in ipairs(module._forward_pre_hooks or {}) do
    if class.is(entry.call, Base) and entry.call.name == name then return entry.call end
  end
end

--- Methods that were applied to one parameter, in order; a new one chooses among the elements that are left.
local Container = Base:extend "PruningContainer"
prune.PruningContainer = Container

---@param ... BasePruningMethod
function Container:init(name, ...)
  self.name, self.methods = name, {...}
end

--- Append a method.
function Container:add_pruning_method(method)
  if not class.is(method, Base) then
    fail("add_pruning_method: expected a pruning method, got %s", arguments.describe(method))
  end
  self.methods[#self.methods + 1] = method
end

-- The mask of all elements, from that of the elements that are left.
local function combine_unstructured(method, t, mask)
  local left = mask:eq(1)
  return mask:masked_scatter(left, method:compute_mask(t:masked_select(left), mask:masked_select(left)))
end

-- The mask of all channels, from that of the channels that are left.
local function combine_structured(method, t, mask)
  if not method.dim then fail("%s: a structured method needs a field dim", method._name) end
  local dim = method.dim % t:dim()
  local left = mask:sum(other_dims(t, dim)):ne(0):nonzero():view(-1)
  return mask:index_copy(dim, left, method:compute_mask(t:index_select(dim, left), mask:index_select(dim, left)))
end

-- PRUNING_TYPE -> function(method, t, mask): the mask of t
local combine = {
  unstructured = combine_unstructured, structured = combine_structured,
  ["global"] = function(method, t, mask) return method:compute_mask(t, mask) end,
}

function Container:compute_mask(t, default_mask)
  local method = self.methods[#self.methods]
  local combined = combine[method.PRUNING_TYPE]
  if not combined then
    fail("%s: PRUNING_TYPE: expected 'unstructured', 'structured' or 'global', got %s", method._name,
      arguments.describe(method.PRUNING_TYPE))
  end
  return combined(method, t, default_mask:to(t.dtype))
end

local function check_mask(method, module, name, mask, like)
  if not (C.is_tensor(mask) and C.same_shape(mask, like)) then
    fail("%s: expected a mask like '%s' of %s, of shape %s, got %s", method._name, name, module._name,
      arguments.shape_text(like), arguments.describe(mask))
  end
end

-- Prune a parameter by a method.
local function apply(method, module, name, importance_scores)
  local old = method_of(module, name)
  if not old and module._kind[name] ~= "parameter" then
    fail("%s: %s has no parameter '%s'", method._name, module._name, name)
  end
  local original = old and module[name .. "_orig"] or module[name]
  if importance_scores then check_mask(method, module, name, importance_scores, original) end
  method.name = name
  local hook = method
  if old then
    hook = class.is(old, Container) and Container(name, unpack(old.methods)) or Container(name, old)
    hook:add_pruning_method(method)
  end
  local mask = no_grad(hook.compute_mask, hook, importance_scores or module[name]:detach(),
    old and module[name .. "_mask"] or C.ones_like(original:detach()))
  check_mask(method, module, name, mask, original)
  if old then
    hooks.remove(module, "_forward_pre_hooks", old)
    module[name .. "_mask"] = mask
  else
    module:_drop(name)
    module:register_parameter(name .. "_orig", original)
    module:register_buffer(name .. "_mask", mask)
  end
  hook(module)
  module:register_forward_pre_hook(hook)
  return hook
end

--- Prune a parameter by a new object of this class.
--
--   nn.utils.prune.L1Unstructured:apply(nn.Linear(4, 2), "weight", 3).name  --> weight
---@param ... any arguments of the constructor
---@return BasePruningMethod
function Base:apply(module, name, ...) return apply(self(...), module, name) end

-- The number of units to prune among `count`.
local function units_of(what, amount, count)
  local units = amount
  if amount < 1 then
    units = math.floor(amount * count + 0.5)
    if units - amount * count == 0.5 then units = units - units % 2 end -- halves to even, as Python's round
  end
  if units ~= math.floor(units) then
    fail("%s: amount: expected a fraction below 1 or a whole number, got %g", what, amount)
  end
  if units > count then fail("%s: amount: expected at most %d, got %d", what, count, units) end
  return units
end

--- No element is pruned; the parameter gets a mask.
prune.Identity = Base:extend "Identity"
prune.Identity.PRUNING_TYPE = "unstructured"

function prune.Identity:compute_mask(_, default_mask) -- luacheck: ignore 212
  return default_mask
end

-- A class that prunes the elements of the least or largest scores.
local function unstructured(name, largest, scores_of)
  local Method = Base:extend(name)
  Method.PRUNING_TYPE = "unstructured"
  local read = signature(name, {"amount: nonnegative"})
  function Method:init(...) self.amount = read(...) end
  function Method:compute_mask(t, default_mask)
    local mask, units = default_mask:clone(), units_of(self._name, self.amount, t:numel())
    if units > 0 then
      local _, indices = scores_of(t):reshape(-1):topk(units, {largest = largest})
      mask:view(-1):index_fill_(0, indices, 0)
    end
    return mask
  end
  prune[name] = Method
end

--- Elements of the least absolute value.
---@names L1Unstructured
unstructured("L1Unstructured", false, function(t) return t:abs() end)

--- Elements drawn at random.
---@names RandomUnstructured
unstructured("RandomUnstructured", true, function(t) return C.rand_like(t) end)

-- The mask of whole channels along `dim`: 1 for those that are kept.
local function of_channels(self, t, default_mask, kept_of)
  if t:dim() < 2 then
    fail("%s: expected a parameter of at least 2 dims, got shape %s", self._name, arguments.shape_text(t))
  end
  local dim = self.dim
  if dim < -t:dim() or dim >= t:dim() then
    fail("%s: dim: expected one of %d..%d, got %d", self._name, -t:dim(), t:dim() - 1, dim)
  end
  dim = dim % t:dim()
  local units = units_of(self._name, self.amount, t:size(dim))
  if units == 0 then return default_mask end
  local mask = C.zeros_like(t)
  mask:index_fill_(dim, kept_of(t, dim, units), 1)
  return mask * default_mask:to(mask.dtype)
end

--- Channels of the least norm along `dim`.
local LnStructured = Base:extend "LnStructured"
prune.LnStructured, LnStructured.PRUNING_TYPE = LnStructured, "structured"

local read_ln = signature("LnStructured", {"amount: nonnegative", "n: number", {"dim: integer", -1}})

function LnStructured:init(...) self.amount, self.n, self.dim = read_ln(...) end

function LnStructured:compute_mask(t, default_mask)
  return of_channels(self, t, default_mask, function(_, dim, units)
    local _, kept = t:norm(self.n, other_dims(t, dim)):topk(t:size(dim) - units)
    return kept
  end)
end

--- Channels along `dim` drawn at random.
local RandomStructured = Base:extend "RandomStructured"
prune.RandomStructured, RandomStructured.PRUNING_TYPE = RandomStructured, "structured"

local read_random = signature("RandomStructured", {"amount: nonnegative", {"dim: integer", -1}})

function RandomStructured:init(...) self.amount, self.dim = read_random(...) end

function RandomStructured:compute_mask(t, default_mask)
  return of_channels(self, t, default_mask, function(_, dim, units)
    local draws = C.rand(t:size(dim), {device = t.device})
    return draws:gt((draws:kthvalue(units))):nonzero():view(-1)
  end)
end

--- A mask that is given.
local CustomFromMask = Base:extend "CustomFromMask"
prune.CustomFromMask, CustomFromMask.PRUNING_TYPE = CustomFromMask, "global"

local read_mask = signature("CustomFromMask", {"mask: tensor"})

function CustomFromMask:init(...) self.mask = read_mask(...) end

function CustomFromMask:compute_mask(t, default_mask)
  check_mask(self, {_name = "the module"}, "the parameter", self.mask, t)
  return default_mask * self.mask:to(default_mask.dtype)
end

-- A function of this namespace: parameters are module, name, the method's own, and whether scores may be given.
local function add_function(what, Method, own, scored)
  local parameters = {"module: module", "name: string"}
  for _, parameter in ipairs(own) do parameters[#parameters + 1] = parameter end
  if scored then parameters[#parameters + 1] = {"importance_scores: tensor"} end
  local read, count = signature(what, parameters), #own
  prune[what] = function(...)
    local values = {read(...)}
    apply(Method(unpack(values, 3, count + 2)), values[1], values[2], values[count + 3])
    return values[1]
  end
end

--- Add a mask of ones to a parameter: nothing is pruned.
--
--   nn.utils.prune.is_pruned(nn.utils.prune.identity(nn.Linear(4, 2), "weight"))  --> true
---@return Module module
---@names identity
add_function("identity", prune.Identity, {})

--- Prune elements drawn at random.
--
--   nn.utils.prune.random_unstructured(nn.Linear(4, 2), "weight", 3).weight_mask:sum()  --> tensor(5.)
---@param amount number a fraction below 1, or a number of elements
---@return Module module
---@names random_unstructured
add_function("random_unstructured", prune.RandomUnstructured, {"amount: nonnegative"})

--- Prune the elements of the least absolute value, or of the least importance.
--
--   nn.utils.prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.25).weight_mask:sum()  --> tensor(6.)
---@param amount number a fraction below 1, or a number of elements
---@param importance_scores Tensor? like the parameter; default: the parameter
---@return Module module
---@names l1_unstructured
add_function("l1_unstructured", prune.L1Unstructured, {"amount: nonnegative"}, true)

--- Prune channels drawn at random.
--
--   nn.utils.prune.random_structured(nn.Linear(4, 2), "weight", 1, 1).weight_mask:sum()  --> tensor(6.)
---@param amount number a fraction below 1, or a number of channels
---@param dim integer the dim of the channels
---@return Module module
---@names random_structured
add_function("random_structured", RandomStructured, {"amount: nonnegative", "dim: integer"})

--- Prune the channels of the least Ln norm.
--
--   nn.utils.prune.ln_structured(nn.Linear(4, 2), "weight", 0.5, 2, 0).weight_mask:sum(1):amin()  --> tensor(0.)
---@param amount number a fraction below 1, or a number of channels
---@param n number the order of the norm; math.huge for the largest element
---@param dim integer the dim of the channels
---@param importance_scores Tensor? like the parameter; default: the parameter
---@return Module module
---@names ln_structured
add_function("ln_structured", LnStructured, {"amount: nonnegative", "n: number", "dim: integer"}, true)

--- Prune the elements whose mask is 0.
--
--   local mask = accelhost.tensor{{1, 0, 1, 0}, {0, 1, 0, 1}}
--   nn.utils.prune.custom_from_mask(nn.Linear(4, 2), "weight", mask).weight:ne(0):sum()  --> tensor(4)
---@param mask Tensor like the parameter, of ones and zeros
---@return Module module
---@names custom_from_mask
add_function("custom_from_mask", CustomFromMask, {"mask: tensor"})

--- Prune the elements of several parameters together, by one method: those of the least importance among all.
--
--   local net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
--   local prune = nn.utils.prune
--   prune.global_unstructured({{net[1], "weight"}, {net[2], "weight"}}, prune.L1Unstructured, {amount = 0.5})
--   net[1].weight_mask:sum() + net[2].weight_mask:sum()  --> tensor(12.)
---@param parameters {[1]: Module, [2]: string}[] modules and names of their parameters
---@param pruning_method table an unstructured class, such as L1Unstructured
---@param amount number? the argument of its constructor
---@param importance_scores Tensor[]? one like each parameter; default: the parameters
prune.global_unstructured = named("global_unstructured", {
  "parameters: list", "pruning_method: any", {"amount: nonnegative"}, {"importance_scores: tensor_list"},
}, function(what, parameters, Method, amount, importance_scores)
  if not (class.is_class(Method) and Method.PRUNING_TYPE == "unstructured") then
    fail("global_unstructured: pruning_method: expected a class of unstructured pruning such as L1Unstructured, got %s",
      arguments.describe(Method))
  end
  local scores, masks = {}, {}
  for i, pair in ipairs(parameters) do
    local module, name = unpack(type(pair) == "table" and pair or {})
    arguments.check(what, ("parameters[%d][1]"):format(i), "module", module)
    arguments.check(what, ("parameters[%d][2]"):format(i), "string", name)
    local tensor = module[name]
    if not C.is_tensor(tensor) then fail("global_unstructured: %s has no parameter '%s'", module._name, name) end
    local given = importance_scores and importance_scores[i] or tensor
    check_mask(Method, module, name, given, tensor)
    scores[i] = given:detach():reshape(-1)
    masks[i] = (module[name .. "_mask"] or C.ones_like(tensor:detach())):reshape(-1)
  end
  if #scores == 0 then fail "global_unstructured: parameters: expected {module, name} pairs, got none" end
  local container = Container("all", Method(amount))
  local mask, at = no_grad(container.compute_mask, container, C.cat(scores), C.cat(masks)), 0
  for _, pair in ipairs(parameters) do
    local module, name = pair[1], pair[2]
    local tensor = module[name]
    prune.custom_from_mask(module, name, mask:narrow(0, at, tensor:numel()):view(tensor:shape()))
    at = at + tensor:numel()
  end
end)

--- Make the pruning permanent: the parameter has its name again, with zeros, and is not masked any more.
--
--   local layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
--   nn.utils.prune.remove(layer, "weight")
--   layer.weight:eq(0):sum()  --> tensor(4)
---@return Module module
prune.remove = checked("remove", {"module: module", "name: string"}, function(module, name)
  local method = method_of(module, name)
  if not method then fail("remove: '%s' of %s is not pruned", name, module._name) end
  local original, value = module[name .. "_orig"], no_grad(method.apply_mask, method, module)
  no_grad(original.copy_, original, value)
  hooks.remove(module, "_forward_pre_hooks", method)
  for _, field in ipairs {name, name .. "_orig", name .. "_mask"} do module:_drop(field) end
  module:register_parameter(name, original)
  return module
end)

local read_is_pruned = signature("is_pruned", {"module: module"})

--- Is a parameter of the module, or of one below it, pruned?
--
--   nn.utils.prune.is_pruned(net)  --> false
function prune.is_pruned(...)
  for _, module in ipairs(read_is_pruned(...):modules()) do
    for _, entry in ipairs(module._forward_pre_hooks or {}) do
      if class.is(entry.call, Base) then return true end
    end
  end
  return false
end

return namespace.new("nn.utils.prune", prune)
