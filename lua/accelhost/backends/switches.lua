--- Tables whose fields are switches of the host: reading one asks for it, setting one changes it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local switches = {}

--- A switch that the host keeps (host/ops/dispatch/precision.h).
---@return {get: (fun(): boolean), set: fun(value: boolean)}
function switches.of_host(name)
  return {get = function() return C.precision.allows(name) end, set = function(on) C.precision.allow(name, on) end}
end

--- Make one.
---@param title string for messages
---@param rows table<string, {get: (fun(): any), set: fun(value: boolean)}>
---@param values? table<string, any> values without a state
---@param refused? table<string, string> names of PyTorch that are absent, with the alternative
function switches.new(title, rows, values, refused)
  values, refused = values or {}, refused or {}
  local names = {}
  for name in pairs(rows) do names[#names + 1] = name end
  for name in pairs(values) do names[#names + 1] = name end
  table.sort(names)
  local function unknown(name)
    name = tostring(name)
    if refused[name] then arguments.fail("%s has no %s: %s", title, name, refused[name]) end
    arguments.fail("%s has no '%s'%s", title, name, arguments.did_you_mean(name, names))
  end
  return setmetatable({}, {
    __index = function(_, name)
      if values[name] ~= nil then return values[name] end
      return rows[name] and rows[name].get() or not rows[name] and unknown(name)
    end,
    __newindex = function(_, name, value)
      if values[name] ~= nil then arguments.fail("%s.%s cannot be set", title, name) end
      if not rows[name] then unknown(name) end
      if type(value) ~= "boolean" then
        arguments.fail("%s.%s: expected true or false, got %s", title, name, arguments.describe(value))
      end
      rows[name].set(value)
    end,
    __tostring = function() return title end,
    names = function() return names end,
  })
end

return switches
