--- The one way to make a class.
--
--   local Point = class.new "Point"
--   function Point:init(x) self.x = x end
--   local Pixel = Point:extend "Pixel"
--   local pixel = Pixel(3)                     -- runs init
--
-- A class is the metatable of its instances. Fields and methods are inherited through the class's own metatable,
-- metamethods by copy when the class is made, since Lua reads them from the metatable alone.
local arguments = require "accelhost.util.arguments"
local later = require "accelhost.util.later"

local class = {}

local events = {"__call", "__tostring", "__newindex", "__len", "__pairs"}

-- init function -> the most arguments it accepts
local most = setmetatable({}, {__mode = "k"})

local function arity(init)
  if most[init] == nil then
    local info = debug.getinfo(init, "u")
    most[init] = info.isvararg and math.huge or math.max(0, info.nparams - 1)
  end
  return most[init]
end

local function check_count(cls, ...)
  local given = select("#", ...)
  local limit = cls.init and arity(cls.init) or 0
  if given <= limit then return end
  while given > limit and (select(given, ...)) == nil do given = given - 1 end
  if given > limit then
    arguments.fail("%s: expected at most %d argument%s, got %d (%s(...) makes a new one; to call one that exists, "
      .. "call the object)", cls._name, limit, limit == 1 and "" or "s", given, cls._name)
  end
end

local function construct(cls, ...)
  check_count(cls, ...)
  local self = cls:_blank()
  if self.init then self:init(...) end
  return self
end

local function blank_table(cls)
  return setmetatable({}, cls)
end

local function length_of(self)
  return self:len()
end

-- fields -> the object that they belong to, of classes whose objects are read by position
local objects = setmetatable({}, {__mode = "kv"})

-- In this Lua `#` of a table never asks the metatable, and ipairs and pairs iterate over any table: a userdata in front
-- of the fields makes the first right and the others an error.
local function blank_sized(cls)
  local self = newproxy(true)
  local meta, fields = getmetatable(self), setmetatable({}, cls)
  for _, event in ipairs(events) do meta[event] = cls[event] end
  meta.__index, meta.__newindex, meta.__len = fields, fields, length_of
  setmetatable(meta, cls)
  if cls._has_positions then objects[fields] = self end
  return self
end

local function text_of(self)
  return ("%s(%s)"):format(self._name, self.extra_repr and self:extra_repr() or "")
end

local function length_text(self)
  local fine, length = pcall(self.len, self)
  return fine and ("len=%d"):format(length) or ""
end

local function extend(parent, name)
  if type(name) ~= "string" then
    arguments.fail("extend: expected the name of the class, got %s", arguments.describe(name))
  end
  return class.new(name, parent)
end

local function class_name(self)
  return self._name
end

local function class_text(cls)
  return "class " .. cls._name
end

-- The metatable of the classes with one parent.
local function metatable_below(parent)
  local meta = parent and rawget(parent, "_below")
  if not meta then
    meta = {__index = parent, __call = construct, __tostring = class_text}
    if parent then rawset(parent, "_below", meta) end
  end
  return meta
end

--- Make a class: calling it makes an instance and runs `init`; more arguments than init accepts are an error.
---@param parent? table
---@return table # has extend(name) and class_name(); `_name` and `_class` are those of an instance
function class.new(name, parent)
  local made = {_name = name, _parent = parent}
  made._class = made
  -- A parent whose instances have another lookup of fields has `_make_index`.
  made.__index = parent and parent._make_index and parent._make_index(made) or made
  for _, event in ipairs(events) do made[event] = parent and parent[event] end
  if not parent then
    made.extend, made._blank, made.__tostring, made.class_name = extend, blank_table, text_of, class_name
  end
  return setmetatable(made, metatable_below(parent))
end

--- Make a class whose instances, and those of its subclasses, have a length: `#object` is object:len().
---@return table
function class.sized(name)
  local made = class.new(name)
  made._blank, made.extra_repr = blank_sized, length_text
  return made
end

-- Look up keys that neither an instance nor its class has by a getter, or by `missing(class, instance, key)`, in
-- subclasses too.
local function look_up_by(cls, missing)
  cls._make_index = function(made)
    return function(self, key)
      local value = made[key]
      if value ~= nil then return value end
      local get = made._getters and made._getters[key]
      if get then return get(self) end
      return missing(made, self, key)
    end
  end
  cls.__index = cls._make_index(cls)
  return cls
end

--- Let object[i] return `read(object, i)` for each number i, in a class of class.sized and its subclasses.
---@param read fun(object: table, i: number): any
---@return table cls
function class.with_positions(cls, read)
  cls._has_positions = true
  return look_up_by(cls, function(_, fields, key)
    if type(key) == "number" then return read(objects[fields], key) end
  end)
end

--- Make reading a position that an instance does not have, object[0], an error with the correct form.
---@param advice string
---@return table cls
function class.without_positions(cls, advice)
  return look_up_by(cls, function(made, _, key)
    if type(key) == "number" then arguments.fail("%s: there is no [%s]; %s", made._name, tostring(key), advice) end
  end)
end

--- Is a value a class, not an object?
function class.is_class(value) return type(value) == "table" and rawget(value, "_class") == value end

--- The class of an instance, nil for anything else.
---@return table?
function class.of(value)
  local meta = getmetatable(value)
  return type(meta) == "table" and meta._class or nil
end

--- Is `value` an instance of `cls` or of a subclass?
function class.is(value, cls)
  local at = class.of(value)
  while at do
    if at == cls then return true end
    at = rawget(at, "_parent")
  end
  return false
end

-- Is `value` the class itself or one made from it?
local function is_class(value, cls)
  while type(value) == "table" and value ~= cls do value = rawget(value, "_parent") end
  return value == cls
end

local function fail_dotted(cls, self)
  local name, method = "?", debug.getinfo(2, "f").func
  for at, value in pairs(cls) do
    if value == method then name = at end
  end
  arguments.fail("%s: expected %s as the object, got %s; write object:%s(...), with a colon", name,
    (cls._name:find "^[AEIOU]" and "an " or "a ") .. cls._name, arguments.describe(self), name)
end

--- Make calling a method with a dot instead of a colon an error with a hint. To be called when all methods are defined;
--- `is_...` is a question about any value, no method.
---@return table cls
function class.guard(cls)
  local names = {}
  for name, value in pairs(cls) do
    if type(value) == "function" and not name:find "^_" and not name:find "^is_" and name ~= "init"
      and name ~= "extend" then
      names[#names + 1] = name
    end
  end
  for _, name in ipairs(names) do
    local method = cls[name]
    cls[name] = function(self, ...)
      if getmetatable(self) ~= cls and not class.is(self, cls) and not is_class(self, cls) then
        fail_dotted(cls, self)
      end
      return method(self, ...)
    end
  end
  return cls
end

--- Make reading a field that an instance does not have an error with the nearest name. `may_be_nil` lists the fields
--- that an instance may lack.
---@param may_be_nil? string[]
---@return table cls
function class.strict(cls, may_be_nil)
  local absent = {}
  for _, name in ipairs(may_be_nil or {}) do absent[name] = true end
  return look_up_by(cls, function(made, self, key)
    if absent[key] or type(key) ~= "string" then return nil end
    local known = {}
    local function add(names)
      for name in pairs(names) do known[#known + 1] = name end
    end
    add(self)
    add(made._getters or {})
    local from = made
    while from do
      add(from)
      from = rawget(from, "_parent")
    end
    add(absent)
    arguments.fail("%s has no field or method '%s'%s", made._name, key, arguments.did_you_mean(key, known))
  end)
end

--- Add a computed field to a strict class; its instances can be assigned to it where `set` is
--- given, by a class whose __newindex asks class.assign.
---@param get fun(self: table): any
---@param set? fun(self: table, value: any)
function class.property(cls, name, get, set)
  cls._getters, cls._setters = cls._getters or {}, cls._setters or {}
  cls._getters[name], cls._setters[name] = get, set
end

local delegates = {} -- method -> {file that has it, its name}

--- Add a part to a strict class: an object of another class with its own state, made by the first use of its field.
--- `methods` of the class delegate to it. A part is made with the object it belongs to, as part(object, options).
---@param file string that returns the part's class
---@param methods string[]
---@param options? string the field of the object that holds the options
function class.part(cls, field, file, methods, options)
  class.property(cls, field, function(self)
    local made = require(file)(self, options and self[options])
    rawset(self, field, made)
    return made
  end)
  for _, name in ipairs(methods) do
    cls[name] = function(self, ...)
      local part = self[field]
      return part[name](part, ...)
    end
    delegates[cls[name]] = {file, name}
  end
end

--- Give a class methods without further state, in a file that returns a table of them: it is loaded by the first
--- call of one.
---@param methods string[]
function class.methods(cls, file, methods)
  local loaded = later(file)
  for _, name in ipairs(methods) do
    cls[name] = function(...) return loaded[name](...) end
    delegates[cls[name]] = {file, name}
  end
end

--- The method of another file that a method delegates to (class.part, class.methods), nil for any other function.
---@param method function
---@return function?
function class.delegated(method)
  local delegate = delegates[method]
  return delegate and require(delegate[1])[delegate[2]]
end

--- __newindex of a strict class whose instances have the fields that init made and properties, and no others: names
--- that begin with _ are the class's own.
function class.assign(self, name, value)
  name = tostring(name)
  local setters, getters = self._setters, self._getters
  if setters[name] then return setters[name](self, value) end
  if name:find "^_" then return rawset(self, name, value) end
  if getters[name] then arguments.fail("%s.%s is read-only: it cannot be set", self._name, name) end
  local known = {}
  for field in pairs(self) do
    if not field:find "^_" then known[#known + 1] = field end
  end
  for field in pairs(setters) do known[#known + 1] = field end
  arguments.fail("%s has no field '%s' to be set%s", self._name, name, arguments.did_you_mean(name, known))
end

return class
