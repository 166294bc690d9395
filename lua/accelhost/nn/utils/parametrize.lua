--- accelhost.nn.utils.parametrize: a parameter or buffer of a module as a function of others.
--
--   local Symmetric = nn.Module:extend "Symmetric"
--   function Symmetric:forward(x) return x:triu() + x:triu(1):transpose(0, 1) end
--   local layer = nn.Linear(3, 3)
--   nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
--   print(layer.weight)                               -- computed from layer.parametrizations.weight.original
--
-- The module becomes an instance of a new class, whose instances compute the tensor when it is read; the original is
-- stored in module.parametrizations[name], a ParametrizationList.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local container = require "accelhost.nn.container"
local namespace = require "accelhost.util.namespace"
local nn_module = require "accelhost.nn.module"
local parameter = require "accelhost.nn.parameter"
local protect = require "accelhost.util.protect"

local fail, describe, no_grad = arguments.fail, arguments.describe, C.autograd.no_grad
local Module = nn_module.Module
local parametrize = {}

local function shape_and_dtype(tensor)
  return ("%s %s"):format(tensor.dtype, arguments.shape_text(tensor))
end

local function put(module, name, tensor)
  if parameter.is_parameter(tensor) then
    module:register_parameter(name, tensor)
  else
    module:register_buffer(name, tensor)
  end
end

-- Another value for a tensor that optimizers and others may hold.
local function overwrite(tensor, value)
  value = value:detach()
  no_grad(function()
    if C.same_shape(tensor, value) and tensor.dtype == value.dtype then
      tensor:copy_(value)
    else
      C.set_data(tensor, value:clone())
    end
  end)
end

-- Apply the inverses of the parametrizations, the last one first; one without, or which returns nil, is an identity
-- or, with `strict`, an error.
local function invert(list, strict, ...)
  local values = {...}
  for i = #list, 1, -1 do
    local new = list[i].right_inverse and {list[i]:right_inverse(unpack(values))} or {}
    if new[1] ~= nil then
      values = new
    elseif strict then
      fail("%s: it has no right_inverse, which assigning to a parametrized tensor needs", list[i]._name)
    end
  end
  for i = 1, math.max(#values, 1) do
    if not C.is_tensor(values[i]) then
      fail("right_inverse: expected tensors, got %s", describe(values[i]))
    end
  end
  return values
end

--- The class of module.parametrizations[name]: the parametrizations in order, and the tensor that they are applied to
--- as
-- `original` (`original0`, `original1`, ... when the right_inverse of the last one returns several).
local List = container.ModuleList:extend "ParametrizationList"

local function check_fit(what, tensor, like)
  if not C.is_tensor(tensor) then fail("%s: expected it to return a tensor, got %s", what, describe(tensor)) end
  if tensor.dtype ~= like.dtype or not C.same_shape(tensor, like) then
    fail("%s: expected it to return a %s as the tensor is, got %s; {unsafe = true} allows it", what,
      shape_and_dtype(like), shape_and_dtype(tensor))
  end
end

function List:init(modules, original, unsafe)
  container.ModuleList.init(self, modules)
  self.unsafe = unsafe
  local like, values = original:detach(), no_grad(invert, self, false, original)
  self.count = #values
  if self.count == 1 then
    if values[1].dtype ~= original.dtype then
      fail("right_inverse: expected a %s tensor, got %s", original.dtype, values[1].dtype)
    end
    if values[1] ~= original then overwrite(original, values[1]) end
    put(self, "original", original)
  else
    for i, value in ipairs(values) do
      value = value:detach():clone()
      if parameter.is_parameter(original) then value = parameter.new(value, original.requires_grad) end
      put(self, "original" .. i - 1, value)
    end
  end
  if not unsafe then check_fit("register_parametrization: " .. modules[1]._name, self(), like) end
end

--- Assign a value to the parametrized tensor: the originals become the inverses' results.
---@param value Tensor
function List:right_inverse(value)
  arguments.check("right_inverse", "value", "tensor", value)
  local values = no_grad(invert, self, true, value)
  if #values ~= self.count then
    fail("right_inverse: expected %d tensor%s, got %d", self.count, self.count == 1 and "" or "s", #values)
  end
  for i, new in ipairs(values) do
    local name = self.count == 1 and "original" or "original" .. i - 1
    if new.dtype ~= self[name].dtype then
      fail("right_inverse: %s: expected a %s tensor, got %s", name, self[name].dtype, new.dtype)
    end
    overwrite(self[name], new)
  end
end

function List:forward()
  local value
  if self.count == 1 then
    value = self[1](self.original)
  else
    local originals = {}
    for i = 1, self.count do originals[i] = self["original" .. i - 1] end
    value = self[1](unpack(originals))
  end
  for i = 2, #self do value = self[i](value) end
  return value
end

-- Values that were computed while `cached` runs, by list.
local depth, cache = 0, {}

local function value_of(list)
  if depth == 0 then return list() end
  if cache[list] == nil then cache[list] = list() end
  return cache[list]
end

--- Run fn(...) with every parametrized tensor computed only once, when it is first used.
--
--   local output = nn.utils.parametrize.cached(function() return model(input) end)
---@param fn fun(...): ...
---@return any # the results of fn
function parametrize.cached(fn, ...)
  arguments.check("cached", "fn", "callable", fn)
  depth = depth + 1
  return protect(function()
    depth = depth - 1
    if depth == 0 then cache = {} end
  end, fn, ...)
end

local function lists_of(module)
  local lists = rawget(module, "_fields").parametrizations
  return class.is(lists, container.ModuleDict) and lists or nil
end

local function list_of(module, name)
  local lists = lists_of(module)
  local list = lists and rawget(lists, "_fields")[name]
  return class.is(list, List) and list or nil
end

-- The class that a module gets with its first parametrization.
local function inject(module)
  local base = getmetatable(module)
  local made = class.new("Parametrized" .. base._name, base)
  local plain = Module._make_index(made)
  made._parametrized = true
  made.__index = function(self, key)
    local list = type(key) == "string" and list_of(self, key)
    if list then return value_of(list) end
    return plain(self, key)
  end
  made.__newindex = function(self, key, value)
    local list = type(key) == "string" and list_of(self, key)
    if list then return list:right_inverse(value) end
    return base.__newindex(self, key, value)
  end
  setmetatable(module, made)
  module.parametrizations = container.ModuleDict()
end

--- Has the module a parametrization, or one of the tensor of this name?
--
--   nn.utils.parametrize.is_parametrized(net.fc1)  --> false
parametrize.is_parametrized = arguments.checked("is_parametrized", {
  "module: module", {"tensor_name: string"},
}, function(module, name)
  if name then return list_of(module, name) ~= nil end
  local lists = lists_of(module)
  return lists ~= nil and lists:len() > 0
end)

local function register_another(list, module, name, parametrization, unsafe)
  if not unsafe then
    local value = module[name]
    local new = parametrization(value)
    check_fit("register_parametrization: " .. parametrization._name, new, value)
    if parametrization.right_inverse then
      check_fit("register_parametrization: the right_inverse of " .. parametrization._name,
        parametrization:right_inverse(new), value)
    end
  end
  list:append(parametrization)
  list.unsafe = list.unsafe or unsafe
end

--- Make module[tensor_name] the value of parametrization(original). A parametrization may have a method
-- right_inverse(value), which returns the original (or several) of a value: it is called for the first original, and
-- when a value is assigned to module[tensor_name]. Several parametrizations of a tensor are applied in order. Create
-- the optimizer afterwards, because the parameters are replaced.
--
--   nn.utils.parametrize.register_parametrization(net.fc1, "weight", nn.Tanh())
--   nn.utils.parametrize.is_parametrized(net.fc1, "weight")  --> true
---@param tensor_name string a parameter or buffer
---@param unsafe boolean? default false: dtype and shape have to stay; true: nothing is checked
---@return Module module
parametrize.register_parametrization = arguments.checked("register_parametrization", {
  "module: module", "tensor_name: string", "parametrization: module", {"unsafe: flag", false},
}, function(module, name, parametrization, unsafe)
  parametrization:train(module.training)
  local list = list_of(module, name)
  if list then
    register_another(list, module, name, parametrization, unsafe)
    return module
  end
  local kind, original = module._kind[name], module[name]
  if (kind ~= "parameter" and kind ~= "buffer") or original == nil then
    fail("register_parametrization: %s has no parameter or buffer '%s'", module._name, name)
  end
  list = List({parametrization}, original, unsafe)
  module:_drop(name)
  if not lists_of(module) then inject(module) end
  module.parametrizations[name] = list
  return module
end)

--- Make module[tensor_name] a plain parameter or buffer again.
--
--   nn.utils.parametrize.register_parametrization(net.fc1, "weight", nn.Tanh())
--   nn.utils.parametrize.remove_parametrizations(net.fc1, "weight")
--   nn.utils.parametrize.is_parametrized(net.fc1)  --> false
---@param leave_parametrized boolean? default true: it keeps its value; false: it gets the original's
---@return Module module
parametrize.remove_parametrizations = arguments.checked("remove_parametrizations", {
  "module: module", "tensor_name: string", {"leave_parametrized: flag", true},
}, function(module, name, leave)
  local list = list_of(module, name)
  if not list then fail("remove_parametrizations: '%s' of %s is not parametrized", name, module._name) end
  local original = list.count == 1 and list.original or nil
  if not original and not leave then
    fail("remove_parametrizations: '%s' of %s is made of %d tensors, so leave_parametrized = false has none to leave",
      name, module._name, list.count)
  end
  if leave then
    local value = module[name]
    if original then
      overwrite(original, value)
    else
      original = value.requires_grad and parameter.new(value) or value:detach()
    end
  end
  local lists = lists_of(module)
  lists[name] = nil
  if lists:len() == 0 then
    module.parametrizations = nil
    setmetatable(module, parametrize.type_before_parametrizations(module))
  end
  put(module, name, original)
  return module
end)

--- Copy the parametrizations of another module to a module, of one tensor or of all, and the originals' values.
---@return Module to_module
parametrize.transfer_parametrizations_and_params = arguments.checked("transfer_parametrizations_and_params", {
  "from_module: module", "to_module: module", {"tensor_name: string"},
}, function(from, to, only)
  local lists = lists_of(from)
  for _, name in ipairs(only and {only} or lists and lists:keys() or {}) do
    local list = list_of(from, name)
    if list then
      if to[name] == nil then to[name] = parameter.new(from[name]:detach():clone()) end
      for i = 1, #list do parametrize.register_parametrization(to, name, list[i], {unsafe = true}) end
      local mine = list_of(to, name)
      for i = 1, list.count do
        local part = list.count == 1 and "original" or "original" .. i - 1
        overwrite(mine[part], list[part])
      end
    end
  end
  return to
end)

local read_type = arguments.signature("type_before_parametrizations", {"module: module"})

--- The class of a module without its parametrizations.
--
--   nn.utils.parametrize.type_before_parametrizations(net.fc1)  --> class Linear
---@return table class
function parametrize.type_before_parametrizations(...)
  local found = getmetatable((read_type(...)))
  while rawget(found, "_parametrized") do found = rawget(found, "_parent") end
  return found
end

parametrize.ParametrizationList = List

return namespace.new("nn.utils.parametrize", parametrize)
