--- Traversal of a tree of modules: parameters, buffers, children, and names to all of them.
local arguments = require "accelhost.util.arguments"

local fail, signature = arguments.fail, arguments.signature

--- Add the traversal methods to the Module class.
---@param check_table fun(module: table, name: string, value: table) refuses plain tables that hold modules
---@return {join: function, iterate: function, check_tables: function} traversal
return function(Module, check_table)
  --- Direct children: arrays of names and modules. Containers override it. `_sync` of a class is called before a
  -- traversal, `_item(self, key)` for keys that are neither fields nor methods.
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
    if next(module._tables) == nil then return end
    for _, name in ipairs(arguments.sorted_keys(module._tables)) do check_table(module, name, module._fields[name]) end
  end

  --- Members of the tree (kind "_parameters" or "_buffers"), each object once, or under each of its names.
  local function members(self, kind, prefix, recurse, unique)
    local names, values, seen = {}, {}, {}
    local module_names, modules = tree(self, prefix or "", recurse, unique == false)
    for m, module in ipairs(modules) do
      check_tables(module)
      for _, name in ipairs(module[kind]) do
        local value = module._fields[name]
        if value ~= nil and not seen[value] then
          seen[value] = unique ~= false
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
  local remove_duplicate = {"remove_duplicate: flag", true}
  local read_parameters, read_buffers = signature("parameters", {recurse}), signature("buffers", {recurse})
  local read_named_parameters = signature("named_parameters", {prefix, recurse, remove_duplicate})
  local read_named_buffers = signature("named_buffers", {prefix, recurse, remove_duplicate})

  --- All parameters, each once, in order of registration.
  --
  --   local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
  ---@return Tensor[] a Lua array, counted from 1
  function Module:parameters(...)
    local _, values = members(self, "_parameters", "", (read_parameters(...)))
    return values
  end

  --- for name, parameter in net:named_parameters() do ... end
  ---@param prefix string|table? prefix of the names
  ---@param remove_duplicate boolean? default true; false returns shared ones under each name
  ---@return fun(): string, Tensor
  function Module:named_parameters(...)
    return iterate(members(self, "_parameters", read_named_parameters(...)))
  end

  --- All buffers, each once.
  ---@return Tensor[]
  function Module:buffers(...)
    local _, values = members(self, "_buffers", "", (read_buffers(...)))
    return values
  end

  --- for name, buffer in net:named_buffers() do ... end
  ---@return fun(): string, Tensor
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

  local read_named_modules = signature("named_modules", {prefix, remove_duplicate})

  --- for name, module in net:named_modules() do ... end; the name of the root is "".
  ---@return fun(): string, Module
  function Module:named_modules(...)
    local before, unique = read_named_modules(...)
    return iterate(tree(self, before, true, not unique))
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

  -- The module that owns the entry at a dotted path, and its last name.
  local function owner_of(what, self, target)
    arguments.check(what, "target", "string", target)
    local owner, name = target:match "^(.*)%.([^.]+)$"
    return owner and self:get_submodule(owner) or self, name or target
  end

  local function member(what, kind)
    return function(self, target)
      local module, name = owner_of(what, self, target)
      if module._sync then module:_sync() end
      if module._kind[name] ~= kind then fail("%s: %s has no %s '%s'", what, module._name, kind, name) end
      return module._fields[name]
    end
  end

  --- The parameter at a dotted path.
  ---@param target string
  ---@return Tensor
  Module.get_parameter = member("get_parameter", "parameter")

  --- The buffer at a dotted path.
  ---@param target string
  ---@return Tensor
  Module.get_buffer = member("get_buffer", "buffer")

  local read_set = signature("set_submodule", {"target: string", "module: module", {"strict: flag", false}})

  --- Set the module at a dotted path: net:set_submodule("layers.0", nn.Identity()).
  ---@param strict boolean? default false; true refuses a path at which there is no module yet
  function Module:set_submodule(...)
    local target, module, strict = read_set(...)
    local owner, name = owner_of("set_submodule", self, target)
    if strict then self:get_submodule(target) end
    owner[name] = module
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

  return {join = join, iterate = iterate, check_tables = check_tables}
end
