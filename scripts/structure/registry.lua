-- Names in Lua's registry: each metatable has its own, and none is a key for other values.
local registry = {}

-- The name of a metatable that a line of C defines: a constant of the file, or the argument of luaL_newmetatable.
local function metatable_name(line)
  return line:match '^#define%s+[%u_]+%s+"(accelhost%.[%w_.]+)"$'
    or line:match '^static const char [%l_]+%[%] = "(accelhost%.[%w_.]+)";'
    or line:match 'luaL_newmetatable%(L, "([%w_.]+)"%)'
end

-- The key of a registry field that a line of C or Lua reads or writes.
local function field_name(line)
  return line:match 'LUA_REGISTRYINDEX, "([%w_.]+)"' or line:match 'registry[%(%)]*%["([%w_.]+)"%]'
end

--- Report registry names with two uses.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
function registry.check(list, report)
  local metatables, fields = {}, {}
  for _, file in ipairs(list) do
    if file.path:find "^host/.*%.[ch]$" or file.path:find "^lua/" then
      for number, line in ipairs(file.lines) do
        local metatable, field = metatable_name(line), field_name(line)
        if metatable and metatables[metatable] then
          report(file.path, number, ("'%s' is the metatable of %s"):format(metatable, metatables[metatable]))
        end
        if metatable then metatables[metatable] = file.path end
        if field then fields[#fields + 1] = {field, file.path, number} end
      end
    end
  end
  for _, field in ipairs(fields) do
    local name, path, number = unpack(field)
    if metatables[name] then
      report(path, number, ("the registry field '%s' is the metatable of %s"):format(name, metatables[name]))
    end
  end
end

return registry
