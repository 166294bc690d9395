--- Functions that run before and after an optimizer's step, state_dict and load_state_dict.
local arguments = require "accelhost.util.arguments"
local hook_list = require "accelhost.util.hook_list"

local rows = {
  {"register_step_pre_hook", "step", "before"},
  {"register_step_post_hook", "step", "after"},
  {"register_state_dict_pre_hook", "state_dict", "before"},
  {"register_state_dict_post_hook", "state_dict", "after"},
  {"register_load_state_dict_pre_hook", "load_state_dict", "before"},
  {"register_load_state_dict_post_hook", "load_state_dict", "after"},
}

-- Method -> function that calls a hook with the optimizer and further arguments, and uses its result.
local before = {
  step = function(hook, self, given)
    local changed = hook(self, given)
    return type(changed) == "table" and changed or given
  end,
  state_dict = function(hook, self, given)
    hook(self)
    return given
  end,
  load_state_dict = function(hook, self, given)
    local changed = hook(self, given[1])
    return changed ~= nil and {changed} or given
  end,
}

local after = {
  step = function(hook, self, given, result)
    hook(self, given)
    return result
  end,
  state_dict = function(hook, self, _, result)
    local changed = hook(self, result)
    if changed ~= nil then return changed end
    return result
  end,
  load_state_dict = function(hook, self, _, result)
    hook(self)
    return result
  end,
}

-- The hooks of every optimizer's step, and the optimizers there are: without hooks nothing is in a step's way.
local every = {before = {}, after = {}}
local optimizers = setmetatable({}, {__mode = "k"})
local none = {before = {}, after = {}}

-- The hooks around a method of one optimizer; the first call wraps the method of its class.
local function hooks_of(self, method)
  self._hooks = self._hooks or {}
  if self._hooks[method] then return self._hooks[method] end
  local hooks = {before = {}, after = {}}
  self._hooks[method] = hooks
  local plain, common = self[method], method == "step" and every or none
  self[method] = function(object, ...)
    if object ~= self then return plain(object, ...) end
    local given = {...}
    for _, entry in ipairs(common.before) do given = before[method](entry.call, self, given) end
    for _, entry in ipairs(hooks.before) do given = before[method](entry.call, self, given) end
    local result = plain(self, unpack(given))
    for _, entry in ipairs(hooks.after) do result = after[method](entry.call, self, given, result) end
    for _, entry in ipairs(common.after) do result = after[method](entry.call, self, given, result) end
    return result
  end
  return hooks
end

local function add(hooks, moment, hook, prepend)
  local entry = {call = hook}
  hooks[moment] = hook_list.with(hooks[moment], entry, prepend)
  return {remove = function() hooks[moment] = hook_list.without(hooks[moment], entry) end}
end

local optimizer_hooks = {}

--- Called with each new optimizer.
function optimizer_hooks.made(optimizer)
  optimizers[optimizer] = true
  if #every.before + #every.after > 0 then hooks_of(optimizer, "step") end
end

for name, moment in pairs {register_optimizer_step_pre_hook = "before", register_optimizer_step_post_hook = "after"} do
  local read = arguments.signature(name, {"hook: callable"})
  --- Call `hook(optimizer, arguments)` before or after the step of every optimizer, present and future; remove() of the
  --- returned handle removes it. One before the step may return other arguments, a table. Before a step it runs ahead
  --- of the optimizer's own hooks, after it behind them.
  --
  --   local handle = optim.register_optimizer_step_post_hook(function() print "stepped" end)
  --   optimizer:step()  --> stepped
  --   handle:remove()
  ---@names register_optimizer_step_pre_hook register_optimizer_step_post_hook
  ---@param hook fun(optimizer: Optimizer, arguments: table): table?
  ---@return table # has remove()
  optimizer_hooks[name] = function(...)
    local hook = read(...)
    for optimizer in pairs(optimizers) do hooks_of(optimizer, "step") end
    return add(every, moment, hook)
  end
end

--- Add the hooks to the Optimizer class.
--
--   register_step_pre_hook(hook)             hook(optimizer, arguments): may return other arguments, a table
--   register_step_post_hook(hook)            hook(optimizer, arguments)
--   register_state_dict_pre_hook(hook)       hook(optimizer)
--   register_state_dict_post_hook(hook)      hook(optimizer, state): may return another state
--   register_load_state_dict_pre_hook(hook)  hook(optimizer, state): may return another state
--   register_load_state_dict_post_hook(hook) hook(optimizer)
--
-- Each returns a handle whose remove() removes the hook. Those of the state accept {prepend = true}, to run first.
function optimizer_hooks.extend(Optimizer)
  for _, row in ipairs(rows) do
    local name, method, moment = unpack(row)
    local read = arguments.signature(name, {"hook: callable", method ~= "step" and {"prepend: flag", false} or nil})
    --- Call `hook` before or after a step, a state_dict or a load_state_dict; the returned handle's remove() removes
    --- it. A step's hook gets the optimizer and the arguments, and one before it may return others; a hook of the state
    --- gets the optimizer (after state_dict and before load_state_dict also the state, and may return another).
    --
    --   local handle = optimizer:register_step_post_hook(function() print "stepped" end)
    --   optimizer:step()  --> stepped
    --   handle:remove()
    ---@names register_step_pre_hook register_step_post_hook register_state_dict_pre_hook register_state_dict_post_hook
    --- register_load_state_dict_pre_hook register_load_state_dict_post_hook
    ---@param hook fun(optimizer: Optimizer, ...: any): any
    ---@param prepend? boolean run it before the others; not for a step's
    ---@return table # has remove()
    Optimizer[name] = function(self, ...)
      local hook, prepend = read(...)
      return add(hooks_of(self, method), moment, hook, prepend)
    end
  end
end

return optimizer_hooks
