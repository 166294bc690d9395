--- nn.Module: the class that layers and models are made from.
--
--   local Net = nn.Module:extend "Net"
--   function Net:init(width) self.fc = nn.Linear(784, width) end
--   function Net:forward(x) return self.fc(x) end
--   local net = Net(10)
--
-- What is assigned to an instance never lies in the instance's own table but in `_fields`, so that every assignment
-- passes __newindex: parameters, modules and buffers are registered there in the order of assignment, reassigning
-- keeps the place, nil removes. Only what Module._blank lists is raw. (In `self.a, self.b = x, y` Lua assigns b first.)
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local parameter = require "accelhost.nn.parameter"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature

---@class Module
---@field training boolean
local Module = class.new "Module"
Module._is_module = true

--- Is this value an instance of a module class?
---@param value any
---@return boolean
local function is_module(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_module == true
end

-- Classes and instances.

--- How instances of a class find a field: what was assigned first, then the class.
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
  }, made)
end

--- Set up an instance; classes replace it.
function Module:init() end -- luacheck: ignore

function Module:forward()
  fail("%s has no forward: define function %s:forward(...)", self._name, self._name)
end

local lists = {parameter = "_parameters", buffer = "_buffers", module = "_modules"}

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
end

local function register(self, name, kind)
  local before = self._kind[name]
  if before == kind then return end
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
  forget(self, name)
  local names = self[lists[kind]]
  names[#names + 1] = name
  self._kind[name] = kind
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

--- A registered name takes its own kind or nil, as in PyTorch: anything else was a slip.
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
  self._fields[name] = value
end

local read_buffer = signature("register_buffer", {"name: string", {"tensor: tensor"}, {"persistent: flag", true}})

--- Register a tensor that is part of the state but no parameter (running statistics, masks).
---@param name string
---@param tensor table? nil reserves the name
---@param persistent boolean|table? default true: part of the state_dict
function Module:register_buffer(...)
  local name, tensor, persistent = read_buffer(...)
  if self._fields[name] ~= nil and self._kind[name] ~= "buffer" then
    fail("register_buffer: %s already has a field '%s'", self._name, name)
  end
  register(self, name, "buffer")
  self._transient[name] = not persistent or nil
  self._fields[name] = tensor
end

local read_parameter = signature("register_parameter", {"name: string", {"param: tensor"}})

--- Register a parameter under a name; the same as assigning it.
---@param name string
---@param param table? an nn.Parameter, or nil for "none here"
function Module:register_parameter(...)
  local name, value = read_parameter(...)
  if value ~= nil and not parameter.is_parameter(value) then
    fail("register_parameter: param: expected an nn.Parameter or nil, got %s", describe(value))
  end
  Module._assign(self, name, value)
end

local read_module = signature("add_module", {"name: string", "module: module"})

--- Register a submodule under a name; the same as assigning it.
---@param name string
---@param module Module
function Module:add_module(...)
  Module._assign(self, read_module(...))
end

Module.register_module = Module.add_module

-- Calling.

local next_hook = 0

-- A list of hooks is never changed, only replaced: a hook may add and remove hooks while the list is walked.
local function without(hooks, entry)
  local kept = {}
  for _, other in ipairs(hooks) do
    if other ~= entry then kept[#kept + 1] = other end
  end
  return kept
end

local function add_hook(what, self, list, hook)
  arguments.check(what, "hook", "callable", hook)
  next_hook = next_hook + 1
  local entry = {id = next_hook, call = hook}
  local hooks = without(self[list] or {})
  hooks[#hooks + 1] = entry
  rawset(self, list, hooks)
  return {
    remove = function()
      local kept = without(self[list] or {}, entry)
      rawset(self, list, #kept > 0 and kept or false)
    end,
  }
end

--- Call `hook(module, arguments)` before each forward; it may return new arguments (one value or a table of them).
---@param hook fun(module: Module, arguments: table): any
---@return table handle handle.remove() takes the hook away
function Module:register_forward_pre_hook(hook)
  return add_hook("register_forward_pre_hook", self, "_forward_pre_hooks", hook)
end

--- Call `hook(module, arguments, output)` after each forward; it may return another output.
---@param hook fun(module: Module, arguments: table, output: any): any
---@return table handle
function Module:register_forward_hook(hook)
  return add_hook("register_forward_hook", self, "_forward_hooks", hook)
end

--- Call `hook(module, grad_input, grad_output)` (two arrays) when the gradients with respect to the module's tensor
-- arguments are known. With one such argument the hook may return its new gradient.
---@param hook fun(module: Module, grad_input: table, grad_output: table): any
---@return table handle
function Module:register_full_backward_hook(hook)
  return add_hook("register_full_backward_hook", self, "_backward_hooks", hook)
end

local function pack(...)
  return {n = select("#", ...), ...}
end

--- Put the arguments behind identities whose gradients are seen, and likewise the output.
local function watch_inputs(self, given)
  local state = {grad_input = {}, grad_output = {}, waiting = 0, inputs = 0}
  for i = 1, given.n do
    local value = given[i]
    if C.is_tensor(value) and value.requires_grad then
      state.inputs = state.inputs + 1
      state.waiting = state.waiting + 1
      local watched = value:view_as(value)
      C.autograd.register_hook(watched, function(grad)
        state.grad_input[i] = grad
        state.waiting = state.waiting - 1
        if state.waiting > 0 then return nil end
        local result
        for _, entry in ipairs(self._backward_hooks or {}) do
          local changed = entry.call(self, state.grad_input, state.grad_output)
          if changed ~= nil then
            if state.inputs > 1 then
              fail("a full backward hook can replace the gradient of one tensor argument, %s has %d", self._name,
                state.inputs)
            end
            result = C.is_tensor(changed) and changed or changed[i]
            state.grad_input[i] = result
          end
        end
        return result
      end)
      given[i] = watched
    end
  end
  return state
end

local function watch_outputs(self, state, results)
  for i = 1, results.n do
    local value = results[i]
    if C.is_tensor(value) and value.requires_grad then
      local watched = value:view_as(value)
      C.autograd.register_hook(watched, function(grad)
        state.grad_output[i] = grad
        if state.inputs == 0 and i == 1 then
          for _, entry in ipairs(self._backward_hooks or {}) do entry.call(self, {}, state.grad_output) end
        end
      end)
      results[i] = watched
    end
  end
end

local function call_with_hooks(self, ...)
  local given = pack(...)
  for _, entry in ipairs(self._forward_pre_hooks or {}) do
    local changed = entry.call(self, given)
    if type(changed) == "table" and getmetatable(changed) == nil then
      given = changed
      given.n = given.n or #given
    elseif changed ~= nil then
      given = {n = 1, changed}
    end
  end
  local state = self._backward_hooks and C.autograd.is_grad_enabled() and watch_inputs(self, given)
  local results = pack(self.forward(self, unpack(given, 1, given.n)))
  for _, entry in ipairs(self._forward_hooks or {}) do
    local changed = entry.call(self, given, results.n == 1 and results[1] or results)
    if type(changed) == "table" and getmetatable(changed) == nil then
      results = changed
      results.n = results.n or #results
    elseif changed ~= nil then
      results = {n = 1, changed}
    end
  end
  if state then watch_outputs(self, state, results) end
  return unpack(results, 1, results.n)
end

local function through(...)
  return ...
end

--- __call of instances: hooks and forward. Its frames are how an error finds out which modules are running, so it
-- must stay on the stack while forward runs: no tail call.
function Module._call(self, ...)
  if self._forward_pre_hooks or self._forward_hooks or self._backward_hooks then
    return through(call_with_hooks(self, ...))
  end
  return through(self.forward(self, ...))
end

--- The modules that are running now, as a message names them: "layers.0.fc2 (Linear)"; nil outside of any. It reads
-- the Lua stack, so that calling a module costs nothing for it and a caught error leaves nothing behind.
---@return string?
local function path()
  local running, level = {}, 2
  while true do
    local info = debug.getinfo(level, "f")
    if not info then break end
    if info.func == Module._call then
      local _, module = debug.getlocal(level, 1)
      if is_module(module) then table.insert(running, 1, module) end
    end
    level = level + 1
  end
  if #running == 0 then return nil end
  local names = {}
  for i = 2, #running do
    local name
    for child_name, child in running[i - 1]:named_children() do
      if child == running[i] then
        name = child_name
        break
      end
    end
    if not name then
      -- A grandchild, reached past a module that was not called (a ModuleList, or forward called by hand).
      for deep_name, module in running[i - 1]:named_modules() do
        if module == running[i] then
          name = deep_name
          break
        end
      end
    end
    if name then names[#names + 1] = name end
  end
  local last = running[#running]
  if #names == 0 then return last._name end
  return table.concat(names, ".") .. " (" .. last._name .. ")"
end

-- The binding puts it in front of the text of an error.
debug.getregistry()["accelhost.module_path"] = path

-- Walking the tree.

--- Direct children: arrays of names and modules. Containers replace it; a class with `_sync` is told before it is
-- walked, one with `_item(self, key)` is asked for keys that are neither fields nor methods.
function Module:_children()
  local names, modules = {}, {}
  for i, name in ipairs(self._modules) do
    names[i], modules[i] = name, self._fields[name]
  end
  return names, modules
end

local function join(prefix, name)
  return prefix == "" and name or prefix .. "." .. name
end

--- All modules of the tree, parents first, as arrays of full names and modules.
local function collect_modules(self, prefix, seen, names, modules, duplicates)
  if seen[self] and not duplicates then return end
  seen[self] = true
  if self._sync then self:_sync() end
  names[#names + 1] = prefix
  modules[#modules + 1] = self
  local child_names, children = self:_children()
  for i = 1, #children do
    collect_modules(children[i], join(prefix, child_names[i]), seen, names, modules, duplicates)
  end
end

local function tree(self, prefix, recurse, duplicates)
  local names, modules = {}, {}
  if recurse == false then return {prefix}, {self} end
  collect_modules(self, prefix, {}, names, modules, duplicates)
  return names, modules
end

--- A table may have been filled after it was assigned.
local function check_tables(module)
  for name in pairs(module._tables) do check_table(module, name, module._fields[name]) end
end

--- Members of the tree (kind "_parameters" or "_buffers"), each object once.
local function members(self, kind, prefix, recurse)
  local names, values, seen = {}, {}, {}
  local module_names, modules = tree(self, prefix or "", recurse)
  for m, module in ipairs(modules) do
    check_tables(module)
    for _, name in ipairs(module[kind]) do
      local value = module._fields[name]
      if value ~= nil and not seen[value] then
        seen[value] = true
        names[#names + 1] = join(module_names[m], name)
        values[#values + 1] = value
      end
    end
  end
  return names, values
end

--- for name, value in pairs_of(names, values)
local function iterate(names, values)
  local i = 0
  return function()
    i = i + 1
    if values[i] ~= nil then return names[i], values[i] end
  end
end

local prefix, recurse = {"prefix: string", ""}, {"recurse: flag", true}
local read_parameters, read_buffers = signature("parameters", {recurse}), signature("buffers", {recurse})
local read_named_parameters = signature("named_parameters", {prefix, recurse})
local read_named_buffers = signature("named_buffers", {prefix, recurse})

--- All parameters, each once, in order of registration.
--
--   local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
---@param recurse boolean? default true
---@return table[] tensors a Lua array
function Module:parameters(...)
  local _, values = members(self, "_parameters", "", (read_parameters(...)))
  return values
end

--- for name, parameter in net:named_parameters() do ... end
---@param prefix string|table? put before the names
---@param recurse boolean? default true
---@return fun(): string, table
function Module:named_parameters(...)
  return iterate(members(self, "_parameters", read_named_parameters(...)))
end

--- All buffers, each once.
---@param recurse boolean? default true
---@return table[] tensors
function Module:buffers(...)
  local _, values = members(self, "_buffers", "", (read_buffers(...)))
  return values
end

--- for name, buffer in net:named_buffers() do ... end
---@param prefix string|table?
---@param recurse boolean?
---@return fun(): string, table
function Module:named_buffers(...)
  return iterate(members(self, "_buffers", read_named_buffers(...)))
end

local function unique_children(self)
  local names, modules, seen = {}, {}, {}
  local all_names, all = self:_children()
  for i = 1, #all do
    if not seen[all[i]] then
      seen[all[i]] = true
      names[#names + 1], modules[#modules + 1] = all_names[i], all[i]
    end
  end
  return names, modules
end

--- Direct submodules, each once.
---@return Module[]
function Module:children()
  local _, modules = unique_children(self)
  return modules
end

--- for name, child in net:named_children() do ... end
---@return fun(): string, Module
function Module:named_children()
  return iterate(unique_children(self))
end

--- All modules of the tree, this one first, each once.
---@return Module[]
function Module:modules()
  local _, modules = tree(self, "")
  return modules
end

local read_named_modules = signature("named_modules", {prefix})

--- for name, module in net:named_modules() do ... end; the name of the root is "".
---@param prefix string?
---@return fun(): string, Module
function Module:named_modules(...)
  return iterate(tree(self, (read_named_modules(...))))
end

--- The submodule at a dotted path: net:get_submodule "layers.0".
---@param target string
---@return Module
function Module:get_submodule(target)
  arguments.check("get_submodule", "target", "string", target)
  local module = self
  for name in target:gmatch "[^.]+" do
    local found
    for child_name, child in module:named_children() do
      if child_name == name then found = child end
    end
    if not found then fail("get_submodule: %s has no module '%s'", module._name, name) end
    module = found
  end
  return module
end

--- The parameter at a dotted path.
---@param target string
---@return table tensor
function Module:get_parameter(target)
  arguments.check("get_parameter", "target", "string", target)
  local owner, name = target:match "^(.*)%.([^.]+)$"
  local module = owner and self:get_submodule(owner) or self
  name = name or target
  if module._kind[name] ~= "parameter" then fail("get_parameter: %s has no parameter '%s'", module._name, name) end
  return module._fields[name]
end

--- Call fn(module) on every module, children first; the usual way to initialise weights.
---@param fn fun(module: Module)
---@return Module self
function Module:apply(fn)
  arguments.check("apply", "fn", "callable", fn)
  for _, child in ipairs(self:children()) do child:apply(fn) end
  fn(self)
  return self
end

-- State.

local state_pairs = require "accelhost.nn.state"(Module, {
  join = join, iterate = iterate, check_tables = check_tables,
})

require "accelhost.nn.copy"(Module, is_module)

-- Modes.

local read_mode = signature("train", {{"mode: flag", true}})

--- Training mode: dropout drops, batch normalisation uses the batch.
---@param mode boolean? default true
---@return Module self
function Module:train(...)
  local mode = read_mode(...)
  for _, module in ipairs(self:modules()) do module.training = mode end
  return self
end

--- Evaluation mode.
---@return Module self
function Module:eval()
  return self:train(false)
end

local read_requires_grad = signature("requires_grad_", {{"requires_grad: flag", true}})

--- Freeze (false) or unfreeze all parameters.
---@param requires_grad boolean? default true
---@return Module self
function Module:requires_grad_(...)
  local requires_grad = read_requires_grad(...)
  for _, tensor in ipairs(self:parameters()) do tensor.requires_grad = requires_grad end
  return self
end

local read_zero_grad = signature("zero_grad", {{"set_to_none: flag", true}})

--- Forget the gradients of all parameters.
---@param set_to_none boolean|table? default true; false fills them with zeros
function Module:zero_grad(...)
  local set_to_none = read_zero_grad(...)
  for _, tensor in ipairs(self:parameters()) do
    if set_to_none then
      tensor.grad = nil
    elseif tensor.grad ~= nil then
      tensor.grad:zero_()
    end
  end
end

--- Apply fn to every parameter (in place: the tensor objects stay), gradient and buffer.
local function convert(self, fn)
  local seen = {}
  local function change(tensor)
    if seen[tensor] then return end
    seen[tensor] = true
    local grad = tensor.grad
    local new = C.autograd.no_grad(fn, tensor)
    if new == tensor then return end
    if grad ~= nil then tensor.grad = nil end
    C.set_data(tensor, new)
    if grad ~= nil then tensor.grad = C.autograd.no_grad(fn, grad) end
  end
  for _, module in ipairs(self:modules()) do
    for _, name in ipairs(module._parameters) do change(module._fields[name]) end
    for _, name in ipairs(module._buffers) do
      if module._fields[name] ~= nil then change(module._fields[name]) end
    end
  end
  return self
end

--- Convert parameters and buffers: net:to "float64", net:to "cuda:0", net:to{dtype =, device =}. A dtype reaches
-- floating tensors only. The tensor objects stay, so optimizers made before follow.
---@param target string|table
---@return Module self
function Module:to(target)
  if type(target) == "string" then
    target = C.device.is_name(target) and {device = target} or {dtype = target}
  end
  if not arguments.is_options(target) then
    fail("to: expected a dtype, a device or {dtype =, device =}, got %s", describe(target))
  end
  arguments.check_names("to", target, {"dtype", "device"})
  local everywhere = {device = target.device}
  return convert(self, function(tensor)
    return tensor:to(tensor:is_floating_point() and target or everywhere)
  end)
end

for _, dtype in ipairs {"float", "double", "half", "bfloat16"} do
  Module[dtype] = function(self)
    return self:to{dtype = ({float = "float32", double = "float64", half = "float16"})[dtype] or dtype}
  end
end

--- Move to the CPU.
---@return Module self
function Module:cpu()
  return self:to "cpu"
end

-- Printing.

--- What `pairs` walks: the fields that were assigned. Containers walk their items.
function Module:_pairs()
  return next, self._fields
end

--- What stands between the brackets; classes replace it.
---@return string
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

return {
  Module = Module,
  is_module = is_module,
  path = path,
  state_pairs = state_pairs,
}
