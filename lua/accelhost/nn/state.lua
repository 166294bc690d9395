--- A module's state: parameters and persistent buffers by name, and copying them back.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local hooks = require "accelhost.nn.hooks"
local parameter = require "accelhost.nn.parameter"

local fail, describe = arguments.fail, arguments.describe

--- Add the state methods to the Module class.
---@param traversal {join: function, iterate: function, check_tables: function} of nn/tree.lua
---@return fun(state: table): fun(): string, table state_pairs
return function(Module, traversal)
  local join, iterate, check_tables = traversal.join, traversal.iterate, traversal.check_tables

  local read_state = arguments.signature("state_dict", {{"prefix: string", ""}, {"keep_vars: flag", false}})
  local read_load = arguments.signature("load_state_dict",
    {"state_dict: table", {"strict: flag", true}, {"assign: flag", false}})
  local order_of = setmetatable({}, {__mode = "k"})

  --- Name, tensor of a state_dict in its order (names added by hand follow, sorted).
  --
  --   for name, tensor in nn.utils.state_pairs(net:state_dict()) do assert(tensor:numel() > 0, name) end
  ---@param state table<string, Tensor>
  ---@return fun(): string, Tensor
  local function state_pairs(state)
    arguments.check("state_pairs", "state", "table", state)
    local names, values, seen, extra = {}, {}, {}, {}
    for _, name in ipairs(order_of[state] or {}) do
      if state[name] ~= nil then
        seen[name] = true
        names[#names + 1], values[#values + 1] = name, state[name]
      end
    end
    for name in pairs(state) do
      if not seen[name] then extra[#extra + 1] = name end
    end
    table.sort(extra, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(extra) do
      names[#names + 1], values[#values + 1] = name, state[name]
    end
    return iterate(names, values)
  end

  -- A module's name as hooks get it: with a dot behind, unless it is the root's.
  local function dotted(prefix)
    return prefix == "" and "" or prefix .. "."
  end

  local function run(list, ...)
    for _, entry in ipairs(list or {}) do entry.call(...) end
  end

  --- fn(key, value, module, name, kind) for every entry of one module's own state: parameters, buffers, extra state.
  local function own_state(self, prefix, fn)
    for _, name in ipairs(self._parameters) do fn(join(prefix, name), self._fields[name], self, name, "parameter") end
    for _, name in ipairs(self._buffers) do
      if not self._transient[name] and self._fields[name] ~= nil then
        fn(join(prefix, name), self._fields[name], self, name, "buffer")
      end
    end
    if self.get_extra_state ~= Module.get_extra_state then
      fn(join(prefix, "_extra_state"), nil, self, "_extra_state", "extra")
    end
  end

  --- Traverse the tree in PyTorch's order: before(module, prefix), its own state, its children, after(module, prefix).
  -- Shared modules are visited under each of their names.
  local function each_state(self, prefix, before, fn, after)
    if self._sync then self:_sync() end
    before(self, prefix)
    own_state(self, prefix, fn)
    local names, modules = self:_children()
    for i = 1, #modules do each_state(modules[i], join(prefix, names[i]), before, fn, after) end
    after(self, prefix)
  end

  --- Parameters and persistent buffers by name: {["fc.weight"] = tensor, ...}. The tensors share the module's memory;
  -- they have no history unless keep_vars = true returns the module's own.
  ---@param prefix string|table? prefix of the names
  ---@return table<string, Tensor>
  function Module:state_dict(...)
    local prefix, keep_vars = read_state(...)
    for _, module in ipairs(self:modules()) do check_tables(module) end
    local state, order = {}, {}
    each_state(self, prefix, function(module, name)
      run(module._state_dict_pre_hooks, module, dotted(name), keep_vars)
    end, function(key, value, module, _, kind)
      if state[key] == nil then order[#order + 1] = key end
      if kind == "extra" then
        state[key] = module:get_extra_state()
      else
        state[key] = keep_vars and value or value.data
      end
    end, function(module, name)
      run(module._state_dict_hooks, module, state, dotted(name))
    end)
    order_of[state] = order
    return state
  end

  --- Return the state of a class other than its tensors (a number, a string, a table). A class that defines it defines
  -- set_extra_state as well.
  function Module:get_extra_state()
    fail("%s has no extra state: define function %s:get_extra_state()", self._name, self._name)
  end

  --- Restore the extra state that get_extra_state returned.
  ---@param state any
  function Module:set_extra_state(state) -- luacheck: ignore 212
    fail("%s has no extra state: define function %s:set_extra_state(state)", self._name, self._name)
  end

  --- Call `hook(module, prefix, keep_vars)` before state_dict collects the module's tensors.
  ---@param hook fun(module: Module, prefix: string, keep_vars: boolean)
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_state_dict_pre_hook = hooks.method("register_state_dict_pre_hook", "_state_dict_pre_hooks")

  --- Call `hook(module, state, prefix)` when state_dict has collected the module's tensors and those of its children;
  -- it may change the table.
  ---@param hook fun(module: Module, state: table, prefix: string)
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_state_dict_post_hook = hooks.method("register_state_dict_post_hook", "_state_dict_hooks")

  --- Call `hook(module, state, prefix, strict, missing, unexpected, errors)` before load_state_dict reads the module's
  -- tensors from `state`, a copy of the table that was given, which it may change.
  ---@param hook fun(module: Module, state: table, prefix: string, strict: boolean, ...: string[])
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_load_state_dict_pre_hook =
    hooks.method("register_load_state_dict_pre_hook", "_load_state_dict_pre_hooks")

  --- Call `hook(module, {missing_keys = , unexpected_keys = })` when the module and its children are loaded; names that
  -- it removes from these are no error. With such hooks tensors are copied before missing names are reported.
  ---@param hook fun(module: Module, incompatible: table)
  ---@return {remove: fun()} # its remove() removes the hook
  Module.register_load_state_dict_post_hook =
    hooks.method("register_load_state_dict_post_hook", "_load_state_dict_post_hooks")

  local function quoted(names)
    local parts = {}
    for i, name in ipairs(names) do parts[i] = '"' .. name .. '"' end
    return table.concat(parts, ", ")
  end

  -- Replace a parameter or buffer by a tensor.
  local function assign(module, name, kind, source)
    if kind == "parameter" then source = parameter.new(source, module._fields[name].requires_grad) end
    module[name] = source
  end

  local function copy_into(tensor, source)
    tensor:copy_(source)
  end

  -- Return the function that loads one entry of the state into the module, to be called when all entries fit; or nil
  -- and the reason why it does not fit.
  local function fitted(key, source, tensor, module, name, kind, assigning)
    if kind == "extra" then
      return function() module:set_extra_state(source) end
    elseif not C.is_tensor(source) then
      return nil, ("%s: expected a tensor, got %s"):format(key, describe(source))
    elseif not C.same_shape(source, tensor) and not (tensor:dim() == 0 and source:numel() == 1) then
      return nil, ("size mismatch for %s: copying a param with shape %s from checkpoint, the shape in current model is "
        .. "%s."):format(key, arguments.shape_text(source), arguments.shape_text(tensor))
    end
    source = tensor:dim() == 0 and source:reshape({}) or source
    return function()
      if assigning then return assign(module, name, kind, source) end
      C.autograd.no_grad(copy_into, tensor, source)
    end
  end

  local function report(self, errors, missing, unexpected, strict)
    if strict and #missing > 0 then
      table.insert(errors, 1, ("Missing key(s) in state_dict: %s. "):format(quoted(missing)))
    end
    if strict and #unexpected > 0 then
      table.insert(errors, 1, ("Unexpected key(s) in state_dict: %s. "):format(quoted(unexpected)))
    end
    if #errors > 0 then
      fail("%s", ("Error(s) in loading state_dict for %s:\n\t%s"):format(self._name, table.concat(errors, "\n\t")))
    end
  end

  -- Raise when a tensor is stored in a file that was overwritten while it was mapped.
  local function check_files(state)
    for key, source in state_pairs(state) do
      local reason = C.is_tensor(source) and C.io.check_file(source)
      if reason then fail("load_state_dict: '%s': %s", tostring(key), reason) end
    end
  end

  local function copy_of(state)
    local copy = {}
    for key, value in pairs(state) do copy[key] = value end
    order_of[copy] = order_of[state]
    return copy
  end

  --- Copy a state_dict into the module's own tensors, or with assign = true replace them by its tensors. With strict
  -- (the default) missing and unexpected names are errors; shapes must agree always. All problems are reported at once,
  -- and then nothing was copied.
  ---@param state table<string, Tensor>
  ---@return table result {missing_keys = {...}, unexpected_keys = {...}}
  function Module:load_state_dict(...)
    local given, strict, assigning = read_load(...)
    local state, missing, unexpected, errors = copy_of(given), {}, {}, {}
    local steps, expected, hooked = {}, {}, {}
    each_state(self, "", function(module, name)
      run(module._load_state_dict_pre_hooks, module, state, dotted(name), strict, missing, unexpected, errors)
    end, function(key, tensor, module, name, kind)
      if expected[key] then return end
      expected[key] = true
      if state[key] == nil then
        missing[#missing + 1] = key
        return
      end
      steps[#steps + 1], errors[#errors + 1] = fitted(key, state[key], tensor, module, name, kind, assigning)
    end, function(module)
      if module._load_state_dict_post_hooks then hooked[#hooked + 1] = module end
    end)
    for key in state_pairs(state) do
      if not expected[key] then unexpected[#unexpected + 1] = tostring(key) end
    end
    report(self, errors, missing, unexpected, strict and #hooked == 0)
    for _, step in ipairs(steps) do step() end
    check_files(state)
    local result = {missing_keys = missing, unexpected_keys = unexpected}
    for _, module in ipairs(hooked) do run(module._load_state_dict_post_hooks, module, result) end
    report(self, errors, missing, unexpected, strict)
    return result
  end

  return state_pairs
end
