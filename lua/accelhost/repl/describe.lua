--- The description of a name at the prompt (`? name`), and its source (`?? name`): the reference for names of the
--- library, the comment above the definition for names of the user.
local C = require "accelhost._C"
local complete = require "accelhost.repl.complete"
local find = require "accelhost.docs.find"
local help = require "accelhost.docs.help"
local library = require "accelhost.util.library"
local place = require "accelhost.util.hints.place"

local describe = {}

local function lines_of(source)
  local path = source:match "^=(accelhost/.*)$"
  if not path then return place.lines(source, math.huge) end
  local lines = {}
  for line in ((library.text(path) or "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  return lines
end

-- The comment that ends above a line, without its marks.
local function comment_above(lines, number)
  local first = number
  while lines[first - 1] and lines[first - 1]:find "^%s*%-%-" do first = first - 1 end
  local found = {}
  for i = first, number - 1 do found[#found + 1] = (lines[i]:gsub("^%s*%-%-+ ?", "")) end
  return #found > 0 and found or nil
end

local function parameters_of(fn)
  local list, info = {}, debug.getinfo(fn, "u")
  for i = 1, info.nparams do list[i] = debug.getlocal(fn, i) end
  if info.isvararg then list[#list + 1] = "..." end
  return table.concat(list, ", ")
end

local function own_function(e, name, fn)
  local info = debug.getinfo(fn, "S")
  e.write(("%s(%s)   %s:%d\n"):format(name, parameters_of(fn), info.short_src, info.linedefined))
  local lines = lines_of(info.source)
  for _, line in ipairs(lines and comment_above(lines, info.linedefined) or {}) do e.write("  " .. line .. "\n") end
  return true
end

-- Return the class of a value: itself, or the class of which it is an instance.
local function class_of(value)
  local meta = type(value) == "table" and (rawget(value, "_class") == value and value or debug.getmetatable(value))
    or type(value) == "userdata" and debug.getmetatable(value)
  local class = type(meta) == "table" and rawget(meta, "_class")
  return type(class) == "table" and type(rawget(class, "_name")) == "string" and class or nil
end

-- A function of the class, by which its file is found.
local function method_of(class)
  for _, name in ipairs {"init", "forward", "step", "get", "iter"} do
    if type(rawget(class, name)) == "function" then return rawget(class, name) end
  end
  for _, value in next, class do
    if type(value) == "function" and debug.getinfo(value, "S").linedefined > 0 then return value end
  end
end

local function is_library(fn)
  local source = debug.getinfo(fn, "S").source
  return source:find "^=accelhost/" ~= nil or debug.getinfo(fn, "S").linedefined < 0
end

-- The lines of a class's file and the one that makes it.
local function definition_of(class)
  local method = method_of(class)
  local info = method and debug.getinfo(method, "S")
  local lines = info and lines_of(info.source)
  local function place_in(list)
    for i, line in ipairs(list or {}) do
      if line:find("[\"']" .. class._name .. "[\"']") and line:find "=" then return i end
    end
  end
  local at = place_in(lines)
  if at then return lines, at, info.short_src end
  -- A text that was typed line by line is in one chunk per statement; the newest one counts.
  local found, newest = nil, 0
  for source in next, place.sources() do
    local number = tonumber(source:match "^=%[(%d+)%]$")
    if number and number > newest and place_in(lines_of(source)) then found, newest = source, number end
  end
  if not found then return nil end
  return lines_of(found), place_in(lines_of(found)), found:sub(2)
end

local function own_class(e, class)
  local lines, at, path = definition_of(class)
  e.write(("class %s(%s)"):format(class._name, class.init and parameters_of(class.init):gsub("^self,? ?", "") or ""))
  e.write(at and ("   %s:%d\n"):format(path, at) or "\n")
  for _, line in ipairs(at and comment_above(lines, at) or {}) do e.write("  " .. line .. "\n") end
  return true
end

local function reference(e, word)
  local text, problem = help.text(require "accelhost", {}, word)
  if problem then e:complain(problem) else e.write(text) end
  return text ~= nil
end

-- "SGD:step" for the method of an object, under the class of the library that the reference has it at.
local function of_class(e, word)
  local path, name = word:match "^(.*)[%.:]([%w_]+)$"
  local class = path and class_of(complete.value(e, path))
  if not class then return nil end
  local built = complete.reference()
  while type(class) == "table" do
    local found = find(built, class._name .. ":" .. name)
    if found and found.name:find(class._name .. ":", 1, true) then return found.name end
    class = rawget(class, "_parent")
  end
end

--- Print the description of a name.
---@param e Evaluate
---@return boolean # was a description found?
function describe.name(e, word)
  local value = complete.value(e, word)
  local name = type(value) == "function" and C.system.signature(value)
  if type(value) == "function" and not name and not is_library(value) then return own_function(e, word, value) end
  local class = class_of(value)
  local method = class and method_of(class)
  if class and method and not is_library(method) then return own_class(e, class) end
  if class and not word:find "[%.:]" then return reference(e, class._name) end
  local method_name = of_class(e, word)
  if method_name then return reference(e, method_name) end
  if C.is_tensor(value) then return reference(e, "Tensor") end
  if e.living[word] and value ~= nil and not name then
    e.write(("%s is a %s\n"):format(word, type(value)))
    return true
  end
  return reference(e, name and not word:find "[%.:]" and name or word)
end

-- Lines, with the comment above the first one.
local function show_lines(e, lines, first, last)
  while lines[first - 1] and lines[first - 1]:find "^%s*%-%-" do first = first - 1 end
  for i = first, math.min(last, #lines) do e.write(lines[i] .. "\n") end
end

local function function_source(e, fn)
  local info = debug.getinfo(fn, "S")
  local lines = lines_of(info.source)
  if not lines then
    e:complain(("the source (%s) cannot be read"):format(info.short_src))
    return false
  end
  e.write(("%s:%d\n"):format(info.short_src, info.linedefined))
  show_lines(e, lines, info.linedefined, info.lastlinedefined)
  return true
end

-- Return the class's own methods, in the order of their definition.
local function own_methods(class)
  local list = {}
  for _, value in next, class do
    local info = type(value) == "function" and debug.getinfo(value, "S")
    if info and info.linedefined > 0 then list[#list + 1] = info end
  end
  local function number(info) return tonumber(info.source:match "^=%[(%d+)%]$") or 0 end
  table.sort(list, function(a, b)
    if a.source ~= b.source then
      if number(a) ~= number(b) then return number(a) < number(b) end
      return a.source < b.source
    end
    return a.linedefined < b.linedefined
  end)
  return list
end

local function class_source(e, class)
  local lines, at, path = definition_of(class)
  if not at then
    e:complain(("the source of %s is not known"):format(class._name))
    return false
  end
  e.write(("%s:%d\n"):format(path, at))
  local last = at
  local methods = own_methods(class)
  for _, info in ipairs(methods) do
    if info.short_src == path then last = math.max(last, info.lastlinedefined) end
  end
  show_lines(e, lines, at, last)
  for _, info in ipairs(methods) do
    local text = info.short_src ~= path and info.source:find "^=%[" and lines_of(info.source)
    if text then show_lines(e, text, info.linedefined, info.lastlinedefined) end
  end
  return true
end

--- Show the source of a name's value.
---@param e Evaluate
function describe.source(e, word)
  local value = complete.value(e, word)
  if value == nil then
    local entry = find(complete.reference(), word)
    value = entry and complete.value(e, entry.name)
  end
  local class = class_of(value)
  if type(value) == "function" and debug.getinfo(value, "S").linedefined > 0 then
    return function_source(e, require("accelhost.docs.signature").unguarded(value))
  end
  if class then return class_source(e, class) end
  if type(value) == "function" then
    local entry = find(complete.reference(), C.system.signature(value) or word)
    e.write(("%s is written in C%s\n"):format(word, entry and entry.path and (" (%s:%d)"):format(entry.path,
      entry.line or 1) or ""))
    return true
  end
  e:complain(value == nil and ("nothing is called '%s'"):format(word)
    or ("'%s' is a %s, which has no source"):format(word, type(value)))
  return false
end

return describe
