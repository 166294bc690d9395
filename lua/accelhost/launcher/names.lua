--- Index the objects that every process of this program has already, by their access path: functions, classes and
--- tables of LuaJIT, of the library and of modules that `require` has loaded from files.
--
-- A way is the name of a loaded module and the fields that follow: {"accelhost.nn.linear", "Linear"}.
local class = require "accelhost.util.class"

local names = {}

--- Is this a function of the library itself?
function names.is_library_function(fn) return debug.getinfo(fn, "S").source:find "^=accelhost/" ~= nil end

local DEEPEST = 3
local STANDARD = {"_G", "string", "table", "math", "io", "os", "coroutine", "debug", "bit", "jit", "jit.opt",
  "jit.util", "package", "ffi", "string.buffer", "table.new", "table.clear"}
local standard = {}
for _, name in ipairs(STANDARD) do standard[name] = true end

local function source_of(fn) return debug.getinfo(fn, "S").source end

local function is_library(module) return module == "accelhost" or module:find "^accelhost[%._]" ~= nil end

local is_class = class.is_class

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
  return source == "=[C]" or source:find "^=accelhost/" ~= nil
end

-- Names of LuaJIT, and those that the library has added to its tables; other names there are the script's.
local function index_standard(index, module)
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

-- Traverse the library breadth first, so that each value has its shortest path, independent of the fields' order.
local function index_library(index, modules)
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

-- Index a module from a file: its functions and classes, and the module itself when it has some. Mere data is not
-- indexed: the script may have changed it.
local function index_file(index, module, value, path)
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

--- The present index: value -> way.
---@return table<any, string[]>
function names.index()
  local index, modules = {}, sorted_modules()
  for _, module in ipairs(STANDARD) do index_standard(index, module) end
  index_library(index, modules)
  for _, module in ipairs(modules) do
    if not standard[module] and not is_library(module) then
      local path = package.searchpath(module, package.path) or package.searchpath(module, package.cpath)
      if path then index_file(index, module, package.loaded[module], path) end
    end
  end
  return index
end

--- Functions and classes of the library that no module exports, by the functions that use them: a step of their ways
--- that is a number is an upvalue.
---@param index table<any, string[]> from names.index
---@return table<any, (string|integer)[]>
function names.hidden(index)
  local hidden, queue = {}, {}
  for value in next, index do
    if type(value) == "function" and names.is_library_function(value) then queue[#queue + 1] = value end
  end
  local function visit(value, way)
    local one = type(value) == "function" and names.is_library_function(value) or is_class(value)
    if not one or index[value] or hidden[value] or #way > 2 * DEEPEST then return end
    hidden[value] = way
    queue[#queue + 1] = value
  end
  local at = 1
  while queue[at] do
    local value = queue[at]
    local way = index[value] or hidden[value]
    if type(value) == "function" then
      for number = 1, math.huge do
        local name, held = debug.getupvalue(value, number)
        if not name then break end
        visit(held, extended(way, number))
      end
    else
      for key, item in next, value do
        if type(key) == "string" then visit(item, extended(way, key)) end
      end
    end
    at = at + 1
  end
  return hidden
end

--- The value at the end of a way.
---@param way (string|integer)[]
function names.find(way)
  local value = require(way[1])
  for i = 2, #way do
    local step = way[i]
    if type(step) == "number" then
      local _, held = debug.getupvalue(value, step)
      value = held
    else
      value = value[step]
    end
  end
  return value
end

--- Is this a class that the library itself has made?
function names.is_library_class(value)
  if not is_class(value) then return false end
  for key, item in next, value do
    local named = type(key) == "string" and not key:find "^__"
    if named and type(item) == "function" and names.is_library_function(item) then return true end
  end
  return false
end

return names
