--- The state of an optimizer as a table to save, and back.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local host_updates = require "accelhost.util.host_updates"

local fail, describe = arguments.fail, arguments.describe

--- Add state_dict and load_state_dict to the Optimizer class.
return function(Optimizer)
  --- The state in PyTorch's layout: {state = {[0] = {step = ..., ...}}, param_groups = {{lr = ..., params = {0, 1}}}}.
  -- Parameters are numbered from 0 through the groups. Tensors are those of the optimizer, not copies.
  ---@return table
  function Optimizer:state_dict()
    host_updates.settle()
    local next_id = 0
    local result = {state = {}, param_groups = {}}
    for g, group in ipairs(self.param_groups) do
      local packed = {params = {}}
      for name, value in pairs(group) do
        if name ~= "params" then packed[name] = arguments.copy(value) end
      end
      for i, param in ipairs(group.params) do
        packed.params[i] = next_id
        if self.state[param] then result.state[next_id] = arguments.copy(self.state[param]) end
        next_id = next_id + 1
      end
      result.param_groups[g] = packed
    end
    return result
  end

  -- The saved ids of each group, checked against the groups here: id -> parameter, and its place in messages.
  local function params_by_id(self, saved)
    host_updates.settle()
    if type(saved) ~= "table" or type(saved.param_groups) ~= "table" or type(saved.state) ~= "table" then
      fail("%s: load_state_dict: expected {state = ..., param_groups = ...}, got %s", self._name, describe(saved))
    end
    if #saved.param_groups ~= #self.param_groups then
      fail("%s: load_state_dict: expected %d parameter groups, got %d", self._name, #self.param_groups,
        #saved.param_groups)
    end
    local param_of, place_of = {}, {}
    for g, group in ipairs(self.param_groups) do
      local ids = type(saved.param_groups[g]) == "table" and saved.param_groups[g].params
      if type(ids) ~= "table" then
        fail("%s: load_state_dict: group %d: expected a table with a list `params`, got %s", self._name, g,
          describe(saved.param_groups[g]))
      end
      if #ids ~= #group.params then
        fail("%s: load_state_dict: group %d has %d parameters, the saved one %d", self._name, g, #group.params, #ids)
      end
      for i, id in ipairs(ids) do param_of[id], place_of[id] = group.params[i], i end
    end
    return param_of, place_of
  end

  local function shape_of(value)
    return C.is_tensor(value) and arguments.shape_text(value) or describe(value)
  end

  -- A saved value as the parameter's state holds it: floating tensors in its dtype and on its device (offloaded ones
  -- are pinned before the next step), numbers that the step reads as tensors where they are expected so.
  local function load_value(self, value, param)
    if C.is_tensor(value) then
      local device = self._offloads and "cpu" or param.device
      local cast = value:to {device = device, dtype = value:is_floating_point() and param.dtype or nil}
      return cast == value and value:clone() or cast
    end
    if type(value) ~= "table" then return value end
    local copy = {}
    for key, item in pairs(value) do copy[key] = load_value(self, item, param) end
    return copy
  end

  -- A copy of a parameter's saved state.
  local function load_values(self, values, param, place)
    if type(values) ~= "table" then
      fail("%s: load_state_dict: state of parameter %d: expected a table, got %s", self._name, place, describe(values))
    end
    local states, scalars, single, copy = {}, {}, {step = true}, {}
    if self._kind then states, scalars = C.optim.states(self._kind) end
    for _, name in ipairs(scalars) do single[name] = true end
    for name, value in pairs(values) do
      if single[name] and C.is_tensor(value) then
        copy[name] = value:to "cpu":clone()
      elseif single[name] and type(value) == "number" then
        copy[name] = self._new_scalar(value)
      else
        copy[name] = load_value(self, value, param)
      end
      local reason = C.is_tensor(value) and C.io.check_file(value)
      if reason then
        fail("%s: load_state_dict: state '%s' of parameter %d: %s", self._name, tostring(name), place, reason)
      end
    end
    for _, name in ipairs(states) do
      local value = copy[name]
      if value ~= nil and not (C.is_tensor(value) and C.same_shape(value, param)) then
        fail("%s: load_state_dict: state '%s' of parameter %d: expected shape %s, got %s", self._name, name, place,
          shape_of(param), shape_of(value))
      end
    end
    for _, name in ipairs(self._kind and arguments.sorted_keys(single) or {}) do
      local value = copy[name]
      if value ~= nil and not (C.is_tensor(value) and value:numel() == 1) then
        local got = (C.is_tensor(value) and "shape " or "") .. shape_of(value)
        fail("%s: load_state_dict: state '%s' of parameter %d: expected a number or a tensor with one element, got %s",
          self._name, name, place, got)
      end
    end
    return copy
  end

  --- Load a state_dict: options of the groups, and copies of the state tensors in the parameters' dtypes. When
  -- something does not fit nothing changes.
  function Optimizer:load_state_dict(saved)
    local param_of, place_of = params_by_id(self, saved)
    local state, groups = {}, {}
    for _, id in ipairs(arguments.sorted_keys(saved.state)) do
      local values = saved.state[id]
      if param_of[id] == nil then id = tonumber(id) end
      local param = param_of[id]
      if param then state[param] = load_values(self, values, param, place_of[id]) end
    end
    for g, group in ipairs(self.param_groups) do
      groups[g] = arguments.copy(group)
      for name, value in pairs(saved.param_groups[g]) do
        if name ~= "params" then groups[g][name] = arguments.copy(value) end
      end
      self:check_group(groups[g])
    end
    for g, group in ipairs(self.param_groups) do
      for name, value in pairs(groups[g]) do group[name] = value end
    end
    self.state = state
  end
end
