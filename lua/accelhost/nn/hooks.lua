--- Lists of hooks on a module. A list is never changed, only replaced: a hook may add and remove hooks while it is
-- walked. A module without hooks of a kind has false in the field.
local arguments = require "accelhost.util.arguments"

local hooks = {}
local made = 0

local function without(list, entry)
  local kept = {}
  for _, other in ipairs(list) do
    if other ~= entry then kept[#kept + 1] = other end
  end
  return kept
end

--- A method that adds its argument to the list of hooks in a field of the module, behind the others or, with
-- {prepend = true}, before them. It returns a handle: handle.remove() removes the hook.
---@param what string the method's name
---@param field string
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
    local list = without(self[field] or {})
    table.insert(list, prepend and 1 or #list + 1, entry)
    rawset(self, field, list)
    return {
      id = made,
      remove = function()
        local kept = without(self[field] or {}, entry)
        rawset(self, field, #kept > 0 and kept or false)
      end,
    }
  end
end

--- Return true if hooks receive the inputs or outputs of a module.
---@param module table
---@return table|false
function hooks.watch(module)
  return module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
end

return hooks
