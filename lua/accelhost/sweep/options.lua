--- Options of samplers and pruners: one table, checked, with defaults, as fields of the object.
local arguments = require "accelhost.util.arguments"

local options = {}

--- Set an object's fields from what was given.
---@param object table its class has `option_rows`, a list of {name, kind, default}; `seed` is one of every class
---@param given? table<string, any>
function options.read(object, given)
  given = given or {}
  local known, rows = {}, {{"seed", "integer", 0}, unpack(object.option_rows or {})}
  for i, row in ipairs(rows) do known[i] = row[1] end
  arguments.check_names(object._name, given, known)
  for _, row in ipairs(rows) do
    local name, kind, default = row[1], row[2], row[3]
    local value = given[name]
    if value == nil then value = default else arguments.check(object._name, name, kind, value) end
    object[name] = value
  end
end

return options
