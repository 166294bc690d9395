--- The user's modules at the prompt: loading them again, and noticing that their files have changed.
local class = require "accelhost.util.class"

local modules = {}

-- Return the path of a module of the user's, nil of any other.
local function path_of(name)
  return not name:find "^accelhost" and package.searchpath(name, package.path) or nil
end

--- Return the names of the loaded modules that were read from files of the user's, sorted.
function modules.loaded()
  local list = {}
  for name in next, package.loaded do
    if type(name) == "string" and path_of(name) then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

local own_fields = {_class = true, _parent = true, _below = true, __index = true}

-- Copy the methods of a class that was loaded again to the one that instances have; false where they differ in more.
local function update_class(before, now)
  if rawget(before, "_name") ~= rawget(now, "_name") or rawget(before, "_parent") ~= rawget(now, "_parent") then
    return false
  end
  for key in next, before do
    if not own_fields[key] and rawget(now, key) == nil then before[key] = nil end
  end
  for key, value in next, now do
    if not own_fields[key] then rawset(before, key, value) end
  end
  return true
end

local function both_classes(before, now) return class.is_class(before) and class.is_class(now) end

-- Variables that hold the module's table see its new fields, and instances of its classes the new methods.
local function update(before, now)
  if both_classes(before, now) then return update_class(before, now) and before or now end
  local both = type(before) == "table" and type(now) == "table"
  if not both or getmetatable(before) ~= nil or getmetatable(now) ~= nil then return now end
  for key, value in next, now do
    local held = rawget(before, key)
    if both_classes(held, value) and update_class(held, value) then now[key] = held end
  end
  for key in next, before do before[key] = nil end
  for key, value in next, now do before[key] = value end
  return before
end

--- Load a module again. A module that fails stays as it was.
---@return boolean fine
---@return string? message
function modules.reload(name)
  local before = package.loaded[name]
  package.loaded[name] = nil
  local fine, message = pcall(require, name)
  if not fine then
    package.loaded[name] = before
    return false, message
  end
  package.loaded[name] = update(before, package.loaded[name])
  return true
end

local function contents(name)
  local path = path_of(name)
  local file = path and io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

--- Record the contents of the files of loaded modules that are not in `known` yet.
---@param known table<string, string> contents by the module's name
function modules.record(known)
  for _, name in ipairs(modules.loaded()) do known[name] = known[name] or contents(name) end
end

--- Load the modules again whose files differ from `known`, and record their contents.
---@param known table<string, string>
---@return string[] reloaded
---@return {[1]: string, [2]: string}[] failed names and messages
function modules.reload_changed(known)
  local reloaded, failed = {}, {}
  for _, name in ipairs(modules.loaded()) do
    local text = known[name] and contents(name)
    if text and text ~= known[name] then
      known[name] = text
      local fine, message = modules.reload(name)
      if fine then reloaded[#reloaded + 1] = name else failed[#failed + 1] = {name, message} end
    end
  end
  return reloaded, failed
end

return modules
