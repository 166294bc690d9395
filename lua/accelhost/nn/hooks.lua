--- Lists of hooks on a module (util/hook_list.lua). A module without hooks of a kind has false in the field.
local arguments = require "accelhost.util.arguments"
local hook_list = require "accelhost.util.hook_list"

local hooks = {}
local made = 0

--- A method that adds its argument to the list of hooks in a field of the module, behind the others or, with
-- {prepend = true}, before them. It returns a handle: handle.remove() removes the hook.
---@param what string the method's name
---@param ... string flags that the method accepts in addition, and that the hook's entry holds
---@return fun(self: table, hook: function, prepend: boolean|table?): {id: integer, remove: fun()}
function hooks.method(what, field, ...)
  local flags, parameters = {...}, {"hook: callable", {"prepend: flag", false}}
  for _, flag in ipairs(flags) do parameters[#parameters + 1] = {flag .. ": flag", false} end
  local read = arguments.signature(what, parameters)
  return function(self, ...)
    local values = {read(...)}
    local hook, prepend = values[1], values[2]
    made = made + 1
    local entry = {id = made, call = hook}
    for i, flag in ipairs(flags) do entry[flag] = values[i + 2] end
    rawset(self, field, hook_list.with(self[field] or {}, entry, prepend))
    return {
      id = made,
      remove = function()
        local kept = hook_list.without(self[field] or {}, entry)
        rawset(self, field, #kept > 0 and kept or false)
      end,
    }
  end
end

--- Remove a hook without its handle: copies of a module have its hooks, but not their handles.
---@param module table
---@param hook function|table
function hooks.remove(module, field, hook)
  local kept = {}
  for _, entry in ipairs(module[field] or {}) do
    if entry.call ~= hook then kept[#kept + 1] = entry end
  end
  rawset(module, field, #kept > 0 and kept or false)
end

--- Return true if hooks receive the inputs or outputs of a module.
---@param module table
---@return table|false
function hooks.watch(module)
  return module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
end

return hooks
