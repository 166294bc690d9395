--- Public tables (accelhost, nn, nn.functional, optim, data): names are loaded when they are first used, and an unknown
--- name is an error that names the nearest one.
---@param lazy table
local arguments = require "accelhost.util.arguments"

local namespace = {
  --- fun(title: string, name: string): string? the answer for a name that a namespace does not have; set by init.lua,
  --- since the documentation has the answers
  explain = nil,
}

--- Let names be found in a file that has them, loaded at the first use of one. They are kept as one text: a string, a
--- place in a table for each of a thousand names would be traversed by every collection.
function namespace.add(lazy, file, names)
  lazy[#lazy + 1] = {file, (" %s "):format(table.concat(names, " "))}
end

--- The value of a lazy name, nil when there is no such name.
function namespace.load(lazy, name)
  if type(name) ~= "string" then return nil end
  local entry = lazy[name]
  if entry then
    local file = require(entry[1])
    return entry[2] == nil and file or file[entry[2]]
  end
  for i = #lazy, 1, -1 do
    if lazy[i][2]:find((" %s "):format(name), 1, true) then return require(lazy[i][1])[name] end
  end
  return nil
end

--- All lazy names.
function namespace.names(lazy)
  local list = {}
  for key, entry in pairs(lazy) do
    if type(key) == "string" then
      list[#list + 1] = key
    else
      for name in entry[2]:gmatch "%S+" do list[#list + 1] = name end
    end
  end
  return list
end

--- Make one.
--
--   return namespace.new("nn", {Module = Module}, {functional = {"accelhost.nn.functional"}})
---@param title string for messages
---@param values table<string, any> names that exist already
---@param lazy? table name -> {module to require, field of it; without one the module itself}, and the names that `add`
--- added
---@param more? {find: (fun(name: string): any), names: (fun(): string[]), refused: table<string, string>} further
--- names, and the replacements of some that people search for
---@return table
function namespace.new(title, values, lazy, more)
  lazy, more = lazy or {}, more or {}
  local refused = more.refused or {}
  local function names()
    local list, listed = {}, {}
    local function add(name)
      if not listed[name] then list[#list + 1], listed[name] = name, true end
    end
    for name in pairs(values) do add(name) end
    for _, name in ipairs(namespace.names(lazy)) do add(name) end
    for _, name in ipairs(more.names and more.names() or {}) do add(name) end
    table.sort(list)
    return list
  end
  return setmetatable(values, {
    __index = function(_, name)
      local value = namespace.load(lazy, name)
      if value == nil and more.find and type(name) == "string" then
        value = more.find(name)
      end
      if value == nil then
        name = tostring(name)
        if refused[name] then arguments.fail("%s has no %s: %s", title, name, refused[name]) end
        local answer = namespace.explain and namespace.explain(title, name)
        arguments.fail("%s has no '%s'%s", title, name, answer and (" (%s)"):format(answer)
          or arguments.did_you_mean(name, names()))
      end
      rawset(values, name, value)
      return value
    end,
    __tostring = function() return title end,
    --- All names, for completion.
    names = names,
  })
end

return namespace
