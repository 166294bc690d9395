--- nn.Module: the class that layers and models are made from.
--
--   local Net = nn.Module:extend "Net"
--   function Net:init(width) self.fc = nn.Linear(784, width) end
--   function Net:forward(x) return self.fc(x) end
--   local net = Net(10)

-- A value assigned to an instance is not stored in the instance's own table but in `_fields`, so that every assignment
-- passes __newindex: parameters, modules and buffers are registered there in the order of assignment, reassigning
-- keeps the place, nil removes. Only the fields that Module._blank lists are raw. (In `self.a, self.b = x, y` Lua
-- assigns b first.)
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local parameter = require "accelhost.nn.parameter"

local fail, describe, signature, method = arguments.fail, arguments.describe, arguments.signature, arguments.method

--- The base of all modules: parameters, buffers and submodules that are assigned to fields are registered. A class is
--- made by extend and needs init and forward; calling an object runs its hooks and forward.
--
--   local Net = nn.Module:extend "Net"
--   function Net:init() self.fc = nn.Linear(4, 2) end
--   function Net:forward(input) return F.relu(self.fc(input)) end
--   Net()(x):shape()[2]  --> 2
---@field training boolean
local Module = class.new "Module"
Module._is_module = true

--- Is this value an instance of a module class?
--
--   nn.is_module(net)  --> true
local function is_module(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_module == true
end

--- The name of the module's class: "Linear", or the name given to extend.
--
--   net.fc1:class_name()  --> Linear
---@return string
function Module:class_name()
  return self._name
end

-- Classes and instances.

--- Return the __index of a class's instances: assigned fields first, then the class.
function Module._make_index(made)
  return function(self, key)
    local value = self._fields[key]
    if value == nil then value = made[key] end
    if value == nil and made._item then return made._item(self, key) end
    return value
  end
end

Module.__index = Module._make_index(Module)

--- The empty instance of a class, before init.
function Module._blank(made)
  return setmetatable({
    training = true,
    _fields = {},        -- name -> value, everything that was assigned
    _kind = {},          -- name -> "parameter", "buffer" or "module"
    _parameters = {},    -- names in order of registration
    _buffers = {},
    _modules = {},
    _transient = {},     -- names of buffers that are not part of the state_dict
    _tables = {},        -- names of plain tables, searched for lost modules
    _forward_pre_hooks = false,
    _forward_hooks = false,
    _backward_hooks = false,
    _backward_pre_hooks = false,
    _state_dict_pre_hooks = false,
    _state_dict_hooks = false,
    _load_state_dict_pre_hooks = false,
    _load_state_dict_post_hooks = false,
  }, made)
end

--- Set up an instance; classes replace it.
function Module:init() end -- luacheck: ignore

function Module:forward()
  fail("%s has no forward: define function %s:forward(...)", self._name, self._name)
end

local lists = {parameter = "_parameters", buffer = "_buffers", module = "_modules"}

-- The number of insertions, removals and replacements of parameters and modules in any module.
local changes = 0

local function forget(self, name)
  local kind = self._kind[name]
  if not kind then return end
  local names = self[lists[kind]]
  for i = 1, #names do
    if names[i] == name then
      table.remove(names, i)
      break
    end
  end
  self._kind[name] = nil
  changes = changes + 1
end

--- Remove a parameter, buffer or field and its name.
function Module:_drop(name)
  forget(self, name)
  self._fields[name], self._transient[name], self._tables[name] = nil, nil, nil
end

--- Raise unless a parameter, buffer or module can be registered under a name.
function Module:_check_name(name, kind)
  if type(name) ~= "string" then
    fail("%s: expected a name for a %s, got %s; use nn.ModuleList or nn.Sequential for numbered ones", self._name, kind,
      describe(name))
  end
  if name == "" or name:find(".", 1, true) then
    fail("%s: '%s' cannot be the name of a %s (empty, or with a dot)", self._name, name, kind)
  end
  if type(getmetatable(self)[name]) == "function" then
    fail("%s: '%s' is a method; choose another name for this %s", self._name, name, kind)
  end
end

local function register(self, name, kind)
  local before = self._kind[name]
  if before == kind then return end
  self:_check_name(name, kind)
  forget(self, name)
  local names = self[lists[kind]]
  names[#names + 1] = name
  self._kind[name] = kind
  changes = changes + 1
end

--- Does a plain table hold modules or parameters, up to a few levels down?
local function lost_in(value, depth)
  for _, item in next, value do
    if is_module(item) then return "modules", "nn.ModuleList or nn.ModuleDict" end
    if parameter.is_parameter(item) then return "parameters", "nn.ParameterList or nn.ParameterDict" end
    if depth > 1 and type(item) == "table" and getmetatable(item) == nil then
      local what, instead = lost_in(item, depth - 1)
      if what then return what, instead end
    end
  end
end

local function check_table(self, name, value)
  local what, instead = lost_in(value, 3)
  if what then
    fail("%s.%s is a plain table that holds %s, which the module would not find; use %s", self._name, tostring(name),
      what, instead)
  end
end

local expected = {parameter = "an nn.Parameter", buffer = "a tensor", module = "a module"}

--- A registered name accepts its own kind or nil, as in PyTorch; anything else is an error.
local function check_kept(self, name, value)
  local kind = self._kind[name]
  if kind then
    fail("%s.%s is a %s: expected %s or nil, got %s", self._name, name, kind, expected[kind],
      C.is_tensor(value) and "a plain tensor" or describe(value))
  end
end

--- __newindex of instances.
function Module._assign(self, name, value)
  self._tables[name] = nil
  if C.is_tensor(value) then
    if parameter.is_parameter(value) then
      register(self, name, "parameter")
    elseif self._kind[name] ~= "buffer" then
      check_kept(self, name, value)
    end
  elseif is_module(value) then
    register(self, name, "module")
  elseif value == nil then
    -- A buffer keeps its name, so that a tensor assigned later is a buffer again.
    if self._kind[name] ~= "buffer" then forget(self, name) end
  else
    if type(value) == "table" and getmetatable(value) == nil then
      check_table(self, name, value)
      self._tables[name] = true
    end
    check_kept(self, name, value)
  end
  if self._kind[name] ~= "buffer" and self._kind[name] ~= nil and self._fields[name] ~= value then
    changes = changes + 1
  end
  self._fields[name] = value
end

--- Register a tensor that is part of the state but no parameter (running statistics, masks).
---@param tensor Tensor? nil reserves the name
---@param persistent boolean|table? default true: part of the state_dict
Module.register_buffer = method("register_buffer", {
  "name: string", {"tensor: tensor"}, {"persistent: flag", true},
}, function(self, name, tensor, persistent)
  local held = self._fields[name]
  if held == nil and self._item then held = self:_item(name) end
  if held ~= nil and self._kind[name] ~= "buffer" then
    fail("register_buffer: %s already has a field '%s'", self._name, name)
  end
  register(self, name, "buffer")
  self._transient[name] = not persistent or nil
  self._fields[name] = tensor
end)

--- Register a parameter under a name; the same as assigning it.
---@param param Tensor? an nn.Parameter, or nil for "none here"
Module.register_parameter = method("register_parameter", {
  "name: string", {"param: tensor"},
}, function(self, name, value)
  if value ~= nil and not parameter.is_parameter(value) then
    fail("register_parameter: param: expected an nn.Parameter or nil, got %s", describe(value))
  end
  getmetatable(self).__newindex(self, name, value)
end)

local read_module = signature("add_module", {"name: string", "module: module"})

--- Register a submodule under a name; the same as assigning it. In a Sequential or ModuleList it is the next item, or
--- replaces the item of that name.
function Module:add_module(...)
  getmetatable(self).__newindex(self, read_module(...))
end

--- The same as add_module.
Module.register_module = Module.add_module

-- Calling, traversal of the tree, state, copies.

local path = require "accelhost.nn.call"(Module, is_module)
local state_pairs = require "accelhost.nn.state"(Module, require "accelhost.nn.tree"(Module, check_table))
require "accelhost.nn.copy"(Module, is_module)

-- Modes.

--- Training mode: dropout drops, batch normalisation uses the batch.
---@return Module self
Module.train = method("train", {{"mode: flag", true}}, function(self, mode)
  for _, module in ipairs(self:modules()) do module.training = mode end
  return self
end)

--- Evaluation mode.
---@return Module self
function Module:eval()
  return self:train(false)
end

--- Freeze (false) or unfreeze all parameters.
---@return Module self
Module.requires_grad_ = method("requires_grad_", {{"requires_grad: flag", true}}, function(self, requires_grad)
  for _, tensor in ipairs(self:parameters()) do tensor.requires_grad = requires_grad end
  return self
end)

--- Forget the gradients of all parameters.
---@param set_to_none boolean|table? default true; false fills them with zeros
Module.zero_grad = method("zero_grad", {{"set_to_none: flag", true}}, function(self, set_to_none)
  for _, tensor in ipairs(self:parameters()) do
    if set_to_none then
      tensor.grad = nil
    elseif tensor.grad ~= nil then
      tensor.grad:zero_()
    end
  end
end)

-- Bytes of replaced tensors after which they are returned to the system. Their blocks are of other sizes than the new
-- ones, which would not reuse them.
local RELEASED_BYTES = 64 * 2 ^ 20

-- Count the bytes of a tensor of another size that has been replaced; return those not yet returned to the system.
local function release(bytes, count, width, new_width)
  if width == new_width then return bytes end
  bytes = bytes + count * width
  if bytes < RELEASED_BYTES then return bytes end
  C.system.empty_cache()
  return 0
end

--- Apply fn to every parameter (in place: the tensor objects stay), gradient and buffer.
local function convert(self, fn)
  local seen, bytes = {}, 0
  local function change(tensor)
    if seen[tensor] then return end
    seen[tensor] = true
    local grad = tensor.grad
    local new = C.autograd.no_grad(fn, tensor)
    if new == tensor then return end
    local count, width = tensor:numel(), tensor:element_size()
    if grad ~= nil then tensor.grad = nil end
    C.set_data(tensor, new)
    if grad ~= nil then tensor.grad = C.autograd.no_grad(fn, grad) end
    bytes = release(bytes, count, width, tensor:element_size())
  end
  for _, module in ipairs(self:modules()) do
    for _, name in ipairs(module._parameters) do change(module._fields[name]) end
    for _, name in ipairs(module._buffers) do
      if module._fields[name] ~= nil then change(module._fields[name]) end
    end
  end
  return self
end

local formats = "'channels_last'|'channels_last_3d'|'contiguous_format'|'preserve_format'"

--- Convert parameters and buffers: net:to "float64", net:to "cuda:0", net:to{dtype =, device =}. A dtype reaches
-- floating tensors only. The tensor objects stay, so optimizers made before follow. memory_format is accepted and
-- changes nothing: layers order their weights and results for their kernels by themselves (accelhost.channels_last).
---@param target string|table
---@return Module self
function Module:to(target)
  if type(target) == "string" then
    target = C.device.is_name(target) and {device = target} or {dtype = target}
  end
  if not arguments.is_options(target) then
    fail("to: expected a dtype, a device or {dtype =, device =}, got %s", describe(target))
  end
  arguments.check_names("to", target, {"dtype", "device", "memory_format"})
  if target.memory_format ~= nil then arguments.check("to", "memory_format", formats, target.memory_format) end
  target = {dtype = target.dtype, device = target.device}
  local everywhere = {device = target.device}
  return convert(self, function(tensor)
    return tensor:to(tensor:is_floating_point() and target or everywhere)
  end)
end

local function converter(dtype)
  return function(self) return self:to {dtype = dtype} end
end

--- Convert floating parameters and buffers to float32, in place.
---@return Module self
Module.float = converter "float32"

--- Convert floating parameters and buffers to float64, in place.
---@return Module self
Module.double = converter "float64"

--- Convert floating parameters and buffers to float16, in place.
---@return Module self
Module.half = converter "float16"

--- Convert floating parameters and buffers to bfloat16, in place.
---@return Module self
Module.bfloat16 = converter "bfloat16"

--- Move to the CPU.
---@return Module self
function Module:cpu()
  return self:to "cpu"
end

--- Move to a CUDA device: net:cuda() is net:to "cuda".
---@param device integer? its number
---@return Module self
function Module:cuda(device)
  return self:to(device and "cuda:" .. tostring(device) or "cuda")
end

--- Convert all parameters and buffers to a dtype, also those of integers.
---@return Module self
Module.type = method("type", {"dst_type: dtype"}, function(self, dtype)
  return convert(self, function(tensor) return tensor:to(dtype) end)
end)

--- Move to a device without the values: parameters and buffers are there, unset.
---@return Module self
Module.to_empty = method("to_empty", {"device: device"}, function(self, device)
  return convert(self, function(tensor) return C.empty_like(tensor, {device = device}) end)
end)

--- Raise an error: not here. `compile`: there is no compiler, ops are native code already (`accelerator:compile(step)`
--- captures a training step as one graph). `share_memory`: ranks share gradients through the accelerator, and the
--- memory of a module belongs to its process. `register_backward_hook`: use `register_full_backward_hook`.
---@names compile share_memory register_backward_hook
for name, reason in pairs {
  compile = "there is no compiler here: ops are native code already",
  share_memory = "ranks share gradients through the accelerator; a module's memory is its process's own",
  register_backward_hook = "use register_full_backward_hook, as PyTorch advises",
} do
  Module[name] = function(self) fail("%s: not here: %s (%s)", name, reason, self._name) end
end

-- Printing.

--- Implement `pairs`: iterate over the assigned fields. Containers iterate over their items.
function Module:_pairs()
  return next, self._fields
end

--- The text between the brackets; classes override it.
function Module:extra_repr() -- luacheck: ignore
  return ""
end

function Module:_repr()
  local lines = {}
  local extra = self:extra_repr()
  for line in extra:gmatch "[^\n]+" do lines[#lines + 1] = line end
  local extras = #lines
  for _, line in ipairs(self:_child_lines()) do lines[#lines + 1] = line end
  if #lines == 0 then return self._name .. "()" end
  if #lines == 1 and extras == 1 then return self._name .. "(" .. lines[1] .. ")" end
  return self._name .. "(\n  " .. table.concat(lines, "\n  ") .. "\n)"
end

--- "(fc): Linear(...)" for each child, further lines indented.
function Module:_child_lines()
  local lines = {}
  local names, modules = self:_children()
  for i = 1, #modules do
    lines[i] = "(" .. names[i] .. "): " .. (tostring(modules[i]):gsub("\n", "\n  "))
  end
  return lines
end

Module.__newindex = Module._assign
Module.__pairs = function(self) return self:_pairs() end
Module.__call = Module._call
Module.__tostring = function(self) return self:_repr() end

class.guard(Module)

return {
  Module = Module,
  is_module = is_module,
  path = path,
  state_pairs = state_pairs,
  --- A number that grows when parameters or modules are added, removed or replaced anywhere, but for the items of
  --- modules that are arrays (`_is_array`).
  changes = function() return changes end,
}
