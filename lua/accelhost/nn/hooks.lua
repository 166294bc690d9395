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
-- {prepend = true}, before them. It returns a handle: handle.remove() takes the hook away.
---@param what string the method's name
---@param field string
---@return fun(self: table, hook: function, prepend: boolean|table?): {id: integer, remove: fun()}
function hooks.method(what, field)
  local read = arguments.signature(what, {"hook: callable", {"prepend: flag", false}})
  return function(self, ...)
    local hook, prepend = read(...)
    made = made + 1
    local entry = {id = made, call = hook}
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

return hooks
