--- The base of all optimizers: parameter groups, state, state_dict.
--
-- An optimizer of the library is its options with their defaults (`define`) and init_state; the step itself is one pass
-- in C over all parameters of a group (host/optim/step.c). An optimizer written in a script extends optim.Optimizer,
-- calls self:setup(params, defaults) in init, and defines step(closure).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe = arguments.fail, arguments.describe
local native = C.optim

---@class Optimizer
---@field param_groups table[] each {params = {tensor, ...}, lr = ..., ...}
---@field state table<table, table> by parameter
---@field defaults table
local Optimizer = class.new "Optimizer"
Optimizer._is_optimizer = true

function Optimizer:init(...) -- luacheck: no unused args
  fail("optim.Optimizer is the base; make optim.SGD, optim.AdamW, ... or a subclass")
end

--- Is this value an optimizer (of the library or a subclass)?
---@param value any
---@return boolean
function Optimizer.is_optimizer(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_optimizer == true
end

--- The optimizer itself: what stands for one (prepare gives such) answers with the one behind it.
---@return Optimizer
function Optimizer:unwrap()
  return self
end

-- Options that choose between PyTorch's implementations of the same step, taken so that ported scripts run.
local hints, hint_names = {foreach = true, fused = true}, {"foreach", "fused"}
-- Fields that schedulers keep in a group.
local bookkeeping = {initial_lr = true, max_lr = true, min_lr = true, max_momentum = true, base_momentum = true,
  name = true}

--- Make the class of an optimizer of the library, which has a fused step under the same name in host/optim/step.c.
--
--   local SGD = Optimizer:define("SGD", {{"lr: nonnegative|tensor", 1e-3}, {"momentum: nonnegative", 0}})
--
-- The class needs init_state(state, param, group), which makes what the options need and the state lacks, and returns
-- true when that holds nothing yet and no step is counted.
---@param name string
---@param options table[] {"name: kind", default}, in PyTorch's order
---@return Optimizer class
function Optimizer.define(parent, name, options)
  local parameters, names, kinds = {"params"}, {}, {}
  for i, option in ipairs(options) do
    parameters[i + 1] = option
    local option_name, kind = option[1]:match "^([%w_]+): (.+)$"
    names[i], kinds[option_name] = option_name, kind
  end
  for _, hint in ipairs(hint_names) do parameters[#parameters + 1] = {hint .. ": flag"} end
  local read, made = arguments.signature(name, parameters), parent:extend(name)
  made._kind, made._option_kinds = name, kinds
  function made:init(...)
    local values, defaults = {read(...)}, {}
    for i, option in ipairs(names) do defaults[option] = values[i + 1] end
    self:setup(values[1], defaults)
  end
  return made
end

local function check_betas(self, betas)
  if type(betas) ~= "table" or #betas ~= 2 then
    fail("%s: betas: expected {beta1, beta2}, got %s", self._name, describe(betas))
  end
  for i = 1, 2 do
    local beta = betas[i]
    if type(beta) ~= "number" or not (beta >= 0 and beta < 1) then
      fail("%s: beta%d: expected a number in [0, 1), got %s", self._name, i, describe(beta))
    end
  end
end

--- Raise unless the options of a group make sense.
function Optimizer:check_group(group)
  for name, kind in pairs(self._option_kinds or {}) do
    if group[name] ~= nil then arguments.check(self._name, name, kind, group[name]) end
  end
  if C.is_tensor(group.lr) and group.lr:numel() ~= 1 then
    fail("%s: lr: expected a number, got %s", self._name, describe(group.lr))
  end
  if group.betas ~= nil then check_betas(self, group.betas) end
end

--- Store groups and defaults; subclasses call it in init.
---@param params table a table of tensors, or of groups {params = {...}, lr = ...}
---@param defaults table option -> value
function Optimizer:setup(params, defaults)
  self.defaults, self.param_groups, self.state = defaults, {}, {}
  self._step_count = 0
  if C.is_tensor(params) then
    fail("%s: expected a table of parameters or of groups, got a tensor; write {tensor}", self._name)
  end
  if type(params) ~= "table" or getmetatable(params) ~= nil then
    fail("%s: expected a table of parameters (net:parameters()) or of groups, got %s", self._name, describe(params))
  end
  if #params == 0 and next(params) == nil then fail("%s: got an empty list of parameters", self._name) end
  if params.params ~= nil then
    fail("%s: expected a table of groups, got one group; write {{params = ...}}", self._name)
  end
  if type(params[1]) == "table" then
    for _, group in ipairs(params) do self:add_param_group(group) end
  else
    self:add_param_group{params = params}
  end
end

--- Add parameters with options of their own; missing options are the optimizer's defaults.
--
--   optimizer:add_param_group{params = net.head:parameters(), lr = 1e-2}
---@param group table
function Optimizer:add_param_group(group)
  if type(group) ~= "table" or group.params == nil then
    fail("%s: a parameter group is a table {params = {...}, ...}, got %s", self._name, describe(group))
  end
  local added = {}
  for name, value in pairs(group) do
    if name ~= "params" and self.defaults[name] == nil and not bookkeeping[name] and not hints[name] then
      local known = {}
      for option in pairs(self.defaults) do known[#known + 1] = option end
      table.sort(known)
      fail("%s: unknown option '%s' in a parameter group (known: %s)", self._name, tostring(name),
        table.concat(known, ", "))
    end
    if not hints[name] then added[name] = value end
  end
  local params = C.is_tensor(group.params) and {group.params} or group.params
  if type(params) ~= "table" then
    fail("%s: params: expected a table of tensors, got %s", self._name, describe(params))
  end
  local seen = {}
  for _, other in ipairs(self.param_groups) do
    for _, param in ipairs(other.params) do seen[param] = true end
  end
  added.params = {}
  for i, param in ipairs(params) do
    if not C.is_tensor(param) then
      fail("%s: parameter %d: expected a tensor, got %s", self._name, i, describe(param))
    end
    if not param:is_floating_point() then
      fail("%s: parameter %d is %s; only floating tensors can be optimized", self._name, i, param.dtype)
    end
    if param.grad_fn then
      fail("%s: parameter %d is the result of an operation; only leaf tensors can be optimized", self._name, i)
    end
    if seen[param] then fail("%s: parameter %d is given twice (or is in another group)", self._name, i) end
    seen[param] = true
    added.params[i] = param
  end
  for name, value in pairs(self.defaults) do
    if added[name] == nil then added[name] = value end
  end
  -- Groups do not share the table of betas: a scheduler changes it.
  if type(added.betas) == "table" then added.betas = {added.betas[1], added.betas[2]} end
  self:check_group(added)
  self.param_groups[#self.param_groups + 1] = added
end

--- Forget all gradients: p.grad is nil afterwards.
---@param options boolean|table? {set_to_none = true}; false fills them with zeros
function Optimizer:zero_grad(options)
  local set_to_none = options
  if type(options) == "table" then
    arguments.check_names("zero_grad", options, {"set_to_none"})
    set_to_none = options.set_to_none
  end
  local groups = self.param_groups
  for g = 1, #groups do
    local params = groups[g].params
    for i = 1, #params do
      if set_to_none == false then
        local grad = params[i].grad
        if grad ~= nil then grad:zero_() end
      else
        params[i].grad = nil
      end
    end
  end
end

-- The fused step.

--- A fresh state tensor for a parameter.
function Optimizer._zeros_like(param)
  return C.zeros_like(param)
end

--- A fresh step counter.
function Optimizer._new_step()
  return C.tensor(0, {dtype = "float32", device = "cpu"})
end

-- State of another dtype or device follows its parameter, which was moved since (net:to "float64").
local function cast_state(self, state, param, place)
  for _, name in ipairs(native.states(self._kind)) do
    local value = state[name]
    if value ~= nil and not C.is_tensor(value) then
      fail("%s: state '%s' of parameter %d: expected a tensor, got %s", self._name, name, place, describe(value))
    end
    if value ~= nil and (value.dtype ~= param.dtype or value.device ~= param.device) then
      state[name] = value:to {dtype = param.dtype, device = param.device}
    end
  end
  local step = state.step
  if type(step) == "number" then
    state.step = C.tensor(step, {dtype = "float32", device = "cpu"})
  elseif step ~= nil and not C.is_tensor(step) then
    fail("%s: state 'step' of parameter %d: expected a number or a tensor, got %s", self._name, place, describe(step))
  end
end

local function make_state(self, group, missing)
  local fresh = {}
  for _, i in ipairs(missing) do
    local param = group.params[i]
    local state = self.state[param] or {}
    if type(state) ~= "table" then
      fail("%s: the state of parameter %d: expected a table, got %s", self._name, i, describe(state))
    end
    self.state[param] = state
    cast_state(self, state, param, i)
    fresh[i] = self:init_state(state, param, group)
  end
  return fresh
end

--- Update all parameters that have a gradient.
---@param closure function? computes the loss anew (and its gradients) first
---@return any loss what closure returned
function Optimizer:step(closure)
  local loss
  if closure then loss = C.autograd.enable_grad(closure) end
  self._step_count = self._step_count + 1
  local kind, groups = self._kind, self.param_groups
  for g = 1, #groups do
    local group = groups[g]
    local missing = native.step(kind, group, group.params, self.state)
    if missing then native.step(kind, group, group.params, self.state, make_state(self, group, missing)) end
  end
  return loss
end

-- State.

local function copy_value(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for k, v in pairs(value) do copy[k] = v end
  return copy
end

--- The state in PyTorch's layout: {state = {[0] = {step = ..., ...}}, param_groups = {{lr = ..., params = {0, 1}}}}.
-- Parameters are numbered from 0 through the groups. Tensors are those of the optimizer, not copies.
---@return table
function Optimizer:state_dict()
  local next_id = 0
  local result = {state = {}, param_groups = {}}
  for g, group in ipairs(self.param_groups) do
    local packed = {params = {}}
    for name, value in pairs(group) do
      if name ~= "params" then packed[name] = copy_value(value) end
    end
    for i, param in ipairs(group.params) do
      packed.params[i] = next_id
      if self.state[param] then result.state[next_id] = copy_value(self.state[param]) end
      next_id = next_id + 1
    end
    result.param_groups[g] = packed
  end
  return result
end

-- The saved ids of each group, checked against the groups here: id -> parameter, and its place in messages.
local function params_by_id(self, saved)
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

-- A copy of a parameter's saved state, in its dtype.
local function load_values(self, values, param, place)
  if type(values) ~= "table" then
    fail("%s: load_state_dict: state of parameter %d: expected a table, got %s", self._name, place, describe(values))
  end
  local copy = {}
  for name, value in pairs(values) do
    if C.is_tensor(value) then
      local wanted = {device = name == "step" and "cpu" or param.device}
      if name ~= "step" and value:is_floating_point() then wanted.dtype = param.dtype end
      local cast = value:to(wanted)
      copy[name] = cast == value and value:clone() or cast
    elseif name == "step" and type(value) == "number" then
      copy[name] = C.tensor(value, {dtype = "float32", device = "cpu"})
    else
      copy[name] = copy_value(value)
    end
  end
  for _, name in ipairs(self._kind and native.states(self._kind) or {}) do
    local value = copy[name]
    if value ~= nil and not (C.is_tensor(value) and C.same_shape(value, param)) then
      fail("%s: load_state_dict: state '%s' of parameter %d: expected shape %s, got %s", self._name, name, place,
        shape_of(param), shape_of(value))
    end
  end
  local step = copy.step
  if self._kind and step ~= nil and not (C.is_tensor(step) and step:numel() == 1) then
    fail("%s: load_state_dict: state 'step' of parameter %d: expected a number or a tensor with one element, got %s",
      self._name, place, (C.is_tensor(step) and "shape " or "") .. shape_of(step))
  end
  return copy
end

--- Take over a state_dict: options of the groups, and copies of the state tensors in the parameters' dtypes. When
-- something does not fit nothing changes.
---@param saved table
function Optimizer:load_state_dict(saved)
  local param_of, place_of = params_by_id(self, saved)
  local state, groups = {}, {}
  for id, values in pairs(saved.state) do
    if param_of[id] == nil then id = tonumber(id) end
    local param = param_of[id]
    if param then state[param] = load_values(self, values, param, place_of[id]) end
  end
  for g, group in ipairs(self.param_groups) do
    groups[g] = copy_value(group)
    for name, value in pairs(saved.param_groups[g]) do
      if name ~= "params" then groups[g][name] = copy_value(value) end
    end
    self:check_group(groups[g])
  end
  for g, group in ipairs(self.param_groups) do
    for name, value in pairs(groups[g]) do group[name] = value end
  end
  self.state = state
end

function Optimizer:__tostring()
  local lines = {self._name .. " ("}
  for g, group in ipairs(self.param_groups) do
    lines[#lines + 1] = "Parameter Group " .. g - 1
    local names = {}
    for name in pairs(group) do
      if name ~= "params" then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do
      local value = group[name]
      if type(value) == "table" then value = "(" .. table.concat(value, ", ") .. ")" end
      lines[#lines + 1] = ("    %s: %s"):format(name, tostring(value))
    end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

return class.guard(Optimizer)
