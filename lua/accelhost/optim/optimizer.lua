--- The base of all optimizers: parameter groups, state, state_dict.
--
-- An optimizer of the library is its options with their defaults (`define`) and its step; or, when the step is one pass
-- in C over all parameters of a group (`define_fused`; host/optim/step.c), init_state. One written in a script extends
-- optim.Optimizer, calls self:setup(params, defaults) in init, and defines step(closure).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local hooks = require "accelhost.optim.hooks"
local host_updates = require "accelhost.util.host_updates"

local fail, describe = arguments.fail, arguments.describe

--- The base of optimizers, for one of your own: extend it, call self:setup(params, defaults) in init and define step().
--
--   local Plain = optim.Optimizer:extend "Plain"
--   function Plain:init(params) self:setup(params, {lr = 0.5}) end
--   function Plain:step()
--     for _, group in ipairs(self.param_groups) do
--       for _, p in ipairs(group.params) do
--         if p.grad then p.data:sub_(p.grad * group.lr) end
--       end
--     end
--   end
--   loss:backward()
--   Plain{w}:step()
--   w  --> tensor([0., 0., 0.], requires_grad=true)
---@field param_groups table[] each {params = {tensor, ...}, lr = ..., ...}
---@field state table<table, table> by parameter
---@field defaults table
local Optimizer = class.new "Optimizer"
Optimizer._is_optimizer = true

function Optimizer:init(...) -- luacheck: no unused args
  fail("optim.Optimizer is the base; make optim.SGD, optim.AdamW, ... or a subclass")
end

--- Is this value an optimizer (of the library or a subclass)?
--
--   optim.is_optimizer(optimizer)  --> true
function Optimizer.is_optimizer(value)
  if type(value) ~= "table" then return false end
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._is_optimizer == true
end

--- The optimizer itself; a wrapper (prepare returns such) returns the wrapped one.
---@return Optimizer
function Optimizer:unwrap()
  return self
end

-- Options that choose between PyTorch's implementations of the same step: accepted, so that ported scripts run, where
-- the step is the same.
local hints = {
  foreach = true, fused = true,
  capturable = "steps are not captured into graphs here; leave it out",
  differentiable = "a step is not recorded here, so nothing is differentiated through it; leave it out",
}
local hint_names = {"foreach", "fused", "capturable", "differentiable"}
-- Fields that schedulers keep in a group.
local bookkeeping = {initial_lr = true, max_lr = true, min_lr = true, max_momentum = true, base_momentum = true,
  swa_lr = true, name = true}

local function check_hints(name, given)
  for _, hint in ipairs(hint_names) do
    if given[hint] == true and hints[hint] ~= true then fail("%s: %s: %s", name, hint, hints[hint]) end
  end
  if given.foreach and given.fused then
    fail("%s: expected foreach or fused, got both; the step is the same: leave them out", name)
  end
end

--- Make a class of optimizers: its constructor accepts params and these options (positional or named).
--
--   local Muon = Optimizer:define("Muon", {{"lr: nonnegative|tensor", 1e-3}, {"momentum: nonnegative", 0.95}})
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
  made._option_kinds = kinds
  function made:init(...)
    local values, defaults, given = {read(...)}, {}, {}
    for i, option in ipairs(names) do defaults[option] = values[i + 1] end
    for i, hint in ipairs(hint_names) do given[hint] = values[#names + 1 + i] end
    check_hints(self._name, given)
    if self._lr_without_foreach and given.foreach and C.is_tensor(defaults.lr) then
      fail("%s: lr: expected a number with foreach = true, got %s; leave foreach out", self._name,
        describe(defaults.lr))
    end
    self:setup(values[1], defaults)
  end
  return made
end

-- Options that are tables of two numbers: name, check and expected values of each.
local unit = {function(x) return x >= 0 and x < 1 end, "a number in [0, 1)"}
local size = {function(x) return x >= 0 end, "a number of at least 0"}
local couples = {
  betas = {{"beta1", unit}, {"beta2", unit}},
  etas = {
    {"etaminus", {function(x) return x > 0 and x < 1 end, "a number between 0 and 1"}},
    {"etaplus", {function(x) return x > 1 end, "a number above 1"}},
  },
  step_sizes = {{"the smallest step", size}, {"the largest step", size}},
}
local couple_names = {"betas", "etas", "step_sizes"}

local function check_couple(self, name, value)
  local first, second = couples[name][1], couples[name][2]
  if type(value) ~= "table" or #value ~= 2 then
    fail("%s: %s: expected {%s, %s}, got %s", self._name, name, first[1], second[1], describe(value))
  end
  for i, part in ipairs(couples[name]) do
    if type(value[i]) ~= "number" or not part[2][1](value[i]) then
      fail("%s: %s: expected %s, got %s", self._name, part[1], part[2][2], describe(value[i]))
    end
  end
end

--- Raise unless the options of a group make sense.
function Optimizer:check_group(group)
  local kinds = self._option_kinds or {}
  for _, name in ipairs(arguments.sorted_keys(kinds)) do
    if group[name] ~= nil then arguments.check(self._name, name, kinds[name], group[name]) end
  end
  if C.is_tensor(group.lr) and group.lr:numel() ~= 1 then
    fail("%s: lr: expected a number, got %s", self._name, describe(group.lr))
  elseif C.is_tensor(group.lr) and kinds.lr and group.lr.device ~= "meta" and group.lr:item() < 0 then
    fail("%s: lr: expected a number of at least 0, got a tensor of %g", self._name, group.lr:item())
  end
  for _, name in ipairs(couple_names) do
    if group[name] ~= nil then check_couple(self, name, group[name]) end
  end
end

--- Store groups and defaults; subclasses call it in init.
---@param params table a table of tensors, or of groups {params = {...}, lr = ...}
---@param defaults table option -> value
function Optimizer:setup(params, defaults)
  self.defaults, self.param_groups, self.state = defaults, {}, {}
  self._step_count = 0
  hooks.made(self)
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

--- Add parameters with their own options; missing options are the optimizer's defaults.
--
--   optimizer:add_param_group{params = nn.Linear(2, 2):parameters(), lr = 1e-2}
---@param group table
function Optimizer:add_param_group(group)
  if type(group) ~= "table" or group.params == nil then
    fail("%s: a parameter group is a table {params = {...}, ...}, got %s", self._name, describe(group))
  end
  local added = {}
  for _, name in ipairs(arguments.sorted_keys(group)) do
    local value = group[name]
    local known_option = self.defaults[name] ~= nil or (self._option_kinds or {})[name]
    if name ~= "params" and not known_option and not bookkeeping[name] and not hints[name] then
      local known = arguments.sorted_keys(self.defaults)
      fail("%s: unknown option '%s' in a parameter group (known: %s)%s", self._name, tostring(name),
        table.concat(known, ", "), arguments.did_you_mean(tostring(name), known))
    end
    if not hints[name] then added[name] = arguments.copy(value) end
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
    if not param:is_floating_point() and param.dtype ~= "int8" and param.dtype ~= "uint8" then -- quantised: constants
      fail("%s: parameter %d is %s; only floating tensors can be optimized", self._name, i, param.dtype)
    end
    if param.grad_fn then
      fail("%s: parameter %d is the result of an operation; only leaf tensors can be optimized", self._name, i)
    end
    if seen[param] then fail("%s: parameter %d is given twice (or is in another group)", self._name, i) end
    seen[param] = true
    added.params[i] = param
  end
  -- Groups do not share the table of betas: a scheduler changes it.
  for name, value in pairs(self.defaults) do
    if added[name] == nil then added[name] = arguments.copy(value) end
  end
  check_hints(self._name, group)
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

--- The result of a step's closure, run with gradients enabled; nil without one.
function Optimizer:_run_closure(closure)
  if closure == nil then return nil end
  arguments.check(self._name .. ":step", "closure", "callable", closure)
  return C.autograd.enable_grad(closure)
end

--- For the step of an optimizer that is written in Lua: run the closure, then fn for every parameter that has a
-- gradient, without recording.
---@param closure function?
---@param fn fun(group: table, param: table)
---@return any loss the result of the closure
function Optimizer:each_parameter(closure, fn)
  if host_updates.is_recording() then
    fail("%s:step: its numbers are the host's, so it cannot be captured in a graph; call it outside of the step",
      self._name)
  end
  local loss = self:_run_closure(closure)
  self._step_count = self._step_count + 1
  C.autograd.no_grad(function()
    for _, group in ipairs(self.param_groups) do
      for _, param in ipairs(group.params) do
        if param.grad ~= nil then fn(group, param) end
      end
    end
  end)
  C.optim.stepped()
  return loss
end

local function text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for i = 1, #value do parts[i] = tostring(value[i]) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

function Optimizer:__tostring()
  local lines = {self._name .. " ("}
  for g, group in ipairs(self.param_groups) do
    lines[#lines + 1] = "Parameter Group " .. g - 1
    for _, name in ipairs(arguments.sorted_keys(group)) do
      if name ~= "params" then lines[#lines + 1] = ("    %s: %s"):format(name, text_of(group[name])) end
    end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

require "accelhost.optim.state"(Optimizer)
require "accelhost.optim.fused"(Optimizer)
hooks.extend(Optimizer)

return class.guard(Optimizer)
