--- Public tables (accelhost, nn, nn.functional, optim, data): names are loaded when they are first used, and an unknown
--- name is an error that tells the nearest one.
local arguments = require "accelhost.util.arguments"

local namespace = {}

--- Make one.
--
--   return namespace.new("nn", {Module = Module}, {Linear = {"accelhost.nn.linear", "Linear"}})
---@param title string for messages
---@param values table<string, any> names that exist already
---@param lazy? table<string, table> name -> {module to require, field of it; without one the module itself}
---@param more? {find: (fun(name: string): any), names: (fun(): string[]), refused: table<string, string>} further
--- names, and what there is instead of some that people look for
---@return table
function namespace.new(title, values, lazy, more)
  lazy, more = lazy or {}, more or {}
  local refused = more.refused or {}
  local function names()
    local list = more.names and more.names() or {}
    for name in pairs(values) do list[#list + 1] = name end
    for name in pairs(lazy) do
      if rawget(values, name) == nil then list[#list + 1] = name end
    end
    table.sort(list)
    return list
  end
  return setmetatable(values, {
    __index = function(_, name)
      local entry, value = lazy[name], nil
      if entry then
        value = require(entry[1])
        if entry[2] then value = value[entry[2]] end
      elseif more.find and type(name) == "string" then
        value = more.find(name)
      end
      if value == nil then
        name = tostring(name)
        if refused[name] then arguments.fail("%s has no %s: %s", title, name, refused[name]) end
        arguments.fail("%s has no '%s'%s", title, name, arguments.did_you_mean(name, names()))
      end
      rawset(values, name, value)
      return value
    end,
    __tostring = function() return title end,
    --- All names, for completion.
    names = names,
  })
end

--- The lazy entries of several names of one file.
---@param lazy table<string, table> gets them
---@param file string
---@param names string[]
function namespace.add(lazy, file, names)
  for _, name in ipairs(names) do lazy[name] = {file, name} end
end

return namespace
