--- A module's state: parameters and persistent buffers by name, and copying them back.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe

--- Give the Module class its state methods.
---@param Module table
---@param walk {join: function, iterate: function, check_tables: function} of nn/tree.lua
---@return fun(state: table): fun(): string, table state_pairs
return function(Module, walk)
  local join, iterate, check_tables = walk.join, walk.iterate, walk.check_tables

  local read_state = arguments.signature("state_dict", {{"prefix: string", ""}})
  local read_load = arguments.signature("load_state_dict", {"state_dict: table", {"strict: flag", true}})
  local order_of = setmetatable({}, {__mode = "k"})

  --- Name, tensor of a state_dict in its order (names added by hand follow, sorted).
  ---@param state table<string, table>
  ---@return fun(): string, table
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

  --- fn(key, tensor) for every entry of the state, in PyTorch's order, shared ones under each of their names.
  local function each_state(self, prefix, fn)
    if self._sync then self:_sync() end
    for _, name in ipairs(self._parameters) do fn(join(prefix, name), self._fields[name]) end
    for _, name in ipairs(self._buffers) do
      if not self._transient[name] and self._fields[name] ~= nil then fn(join(prefix, name), self._fields[name]) end
    end
    local names, modules = self:_children()
    for i = 1, #modules do each_state(modules[i], join(prefix, names[i]), fn) end
  end

  --- Parameters and persistent buffers by name: {["fc.weight"] = tensor, ...}. The tensors share the module's memory.
  ---@param prefix string|table? put before the names
  ---@return table<string, table>
  function Module:state_dict(...)
    local prefix = read_state(...)
    for _, module in ipairs(self:modules()) do check_tables(module) end
    local state, order = {}, {}
    each_state(self, prefix, function(key, tensor)
      if state[key] == nil then order[#order + 1] = key end
      state[key] = tensor.data
    end)
    order_of[state] = order
    return state
  end

  local function quoted(names)
    local parts = {}
    for i, name in ipairs(names) do parts[i] = '"' .. name .. '"' end
    return table.concat(parts, ", ")
  end

  local function copy_into(tensor, source)
    tensor:copy_(source)
  end

  --- Copy a state_dict into the module's own tensors. With strict (the default) missing and unexpected names are
  -- errors; shapes must agree always. All problems are reported at once, and then nothing was copied.
  ---@param state table<string, table>
  ---@param strict boolean|table? default true
  ---@return table result {missing_keys = {...}, unexpected_keys = {...}}
  function Module:load_state_dict(...)
    local state, strict = read_load(...)
    local missing, unexpected, errors, copies, expected = {}, {}, {}, {}, {}
    each_state(self, "", function(key, tensor)
      if expected[key] then return end
      expected[key] = true
      local source = state[key]
      if source == nil then
        missing[#missing + 1] = key
      elseif not C.is_tensor(source) then
        errors[#errors + 1] = ("%s: expected a tensor, got %s"):format(key, describe(source))
      elseif not C.same_shape(source, tensor) and not (tensor:dim() == 0 and source:numel() == 1) then
        errors[#errors + 1] = ("size mismatch for %s: copying a param with shape %s from checkpoint, the shape in " ..
          "current model is %s."):format(key, arguments.shape_text(source), arguments.shape_text(tensor))
      else
        copies[#copies + 1] = {tensor, tensor:dim() == 0 and source:reshape({}) or source}
      end
    end)
    for key in state_pairs(state) do
      if not expected[key] then unexpected[#unexpected + 1] = tostring(key) end
    end
    if strict and #missing > 0 then
      table.insert(errors, 1, ("Missing key(s) in state_dict: %s. "):format(quoted(missing)))
    end
    if strict and #unexpected > 0 then
      table.insert(errors, 1, ("Unexpected key(s) in state_dict: %s. "):format(quoted(unexpected)))
    end
    if #errors > 0 then
      fail("%s", ("Error(s) in loading state_dict for %s:\n\t%s"):format(self._name, table.concat(errors, "\n\t")))
    end
    for _, copy in ipairs(copies) do C.autograd.no_grad(copy_into, copy[1], copy[2]) end
    return {missing_keys = missing, unexpected_keys = unexpected}
  end

  return state_pairs
end
