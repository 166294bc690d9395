--- What every process of this program has already, by the way that leads to it: functions, classes and tables of
--- LuaJIT, of the library and of modules that `require` has loaded from files.
--
-- A way is the name of a loaded module and the fields that follow: {"accelhost.nn.linear", "Linear"}.
local names = {}

local DEEPEST = 3
local LIBRARY = "^=accelhost/"
local STANDARD = {"_G", "string", "table", "math", "io", "os", "coroutine", "debug", "bit", "jit", "jit.opt",
  "jit.util", "package", "ffi", "string.buffer", "table.new", "table.clear"}
local standard = {}
for _, name in ipairs(STANDARD) do standard[name] = true end

local function source_of(fn) return debug.getinfo(fn, "S").source end

local function is_library(module) return module == "accelhost" or module:find "^accelhost[%._]" ~= nil end

local function is_class(value) return type(value) == "table" and rawget(value, "_class") == value end

-- A table that names things: without a metatable, a class, or a namespace (util/namespace).
local function is_listing(value)
  local meta = getmetatable(value)
  return meta == nil or is_class(value) or (type(meta) == "table" and rawget(meta, "names") ~= nil)
end

local function extended(way, key)
  local longer = {}
  for i, step in ipairs(way) do longer[i] = step end
  longer[#longer + 1] = key
  return longer
end

local function is_ours(fn)
  local source = source_of(fn)
  return source == "=[C]" or source:find(LIBRARY) ~= nil
end

-- What LuaJIT brings, and what the library has put beside it; other things there are the script's.
local function walk_standard(index, module)
  local value = package.loaded[module]
  if value == nil then return end
  index[value] = {module}
  if type(value) ~= "table" then return end
  for key, item in next, value do
    if type(item) == "function" and type(key) == "string" and is_ours(item) then
      index[item] = index[item] or {module, key}
    end
  end
end

-- The shortest ways come first, whatever the order of a table's fields: what is near is not found too deep.
local function walk_library(index, modules)
  local queue, count = {}, 0
  local function visit(value, way)
    if index[value] ~= nil then return end
    local kind = type(value)
    if kind == "function" and not is_ours(value) then return end
    if kind == "table" and not is_listing(value) then return end
    index[value] = way
    if kind == "table" and #way <= DEEPEST then
      count = count + 1
      queue[count] = value
    end
  end
  for _, module in ipairs(modules) do
    if is_library(module) then visit(package.loaded[module], {module}) end
  end
  local at = 1
  while queue[at] do
    local way = index[queue[at]]
    for key, item in next, queue[at] do
      local kind = type(item)
      if type(key) == "string" and (kind == "function" or kind == "table" or kind == "cdata") then
        visit(item, extended(way, key))
      end
    end
    at = at + 1
  end
end

-- A module from a file: its functions and classes, and the module itself when it has some; what is only data is the
-- script's, which may have changed it.
local function walk_file(index, module, value, path)
  local source = "@" .. path
  local function is_code(item)
    return type(item) == "function" and (source_of(item) == source or source_of(item) == "=[C]") or is_class(item)
  end
  if is_code(value) then index[value] = index[value] or {module} end
  if type(value) ~= "table" then return end
  for key, item in next, value do
    if type(key) == "string" and is_code(item) then
      index[value] = index[value] or {module}
      index[item] = index[item] or {module, key}
    end
  end
end

local function sorted_modules()
  local list = {}
  for name in pairs(package.loaded) do
    if type(name) == "string" then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- All of it as it is now: value -> way.
---@return table<any, string[]>
function names.index()
  local index, modules = {}, sorted_modules()
  for _, module in ipairs(STANDARD) do walk_standard(index, module) end
  walk_library(index, modules)
  for _, module in ipairs(modules) do
    if not standard[module] and not is_library(module) then
      local path = package.searchpath(module, package.path) or package.searchpath(module, package.cpath)
      if path then walk_file(index, module, package.loaded[module], path) end
    end
  end
  return index
end

--- The value at the end of a way.
---@param way string[]
---@return any
function names.find(way)
  local value = require(way[1])
  for i = 2, #way do value = value[way[i]] end
  return value
end

--- Is this a function of the library itself?
---@param fn function
---@return boolean
function names.is_library_function(fn) return source_of(fn):find(LIBRARY) ~= nil end

return names
