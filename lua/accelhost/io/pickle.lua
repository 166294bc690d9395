--- The safe part of Python's pickle format: the pickles of torch.save and NumPy for tensors, arrays, numbers, texts and
--- containers of them.
--
-- A pickle is a program for a stack machine that may call any function of Python. Here it can only build tables and
-- call the few makers of tensors that the caller lists; any other name in it is an error that contains the name.
-- https://github.com/python/cpython/blob/main/Lib/pickletools.py
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail

local pickle = {}

-- Values on the stack other than numbers, texts and booleans are tables with their kind at [0]. A "list" has its items
-- from [1] on, a "dict" its keys and values in turn. An "object" has `make(self)`, which returns its value, or nil and
-- the reason why there is none here, and may have `build(self, state)`. A "global" has the name and the maker of a name
-- of Python. Other kinds belong to the makers.
local MARK = {} -- begins the items that an opcode collects
local NONE = {} -- Python's None, until it is stored: a table field then has no value
-- All empty containers until one is written to or remembered: an empty one costs an attacker one byte.
local EMPTY_LIST, EMPTY_DICT = {[0] = "list"}, {[0] = "dict"}

local DEEPEST = 200
local MOST_VALUES = 2 ^ 22

local Machine = {}
Machine.__index = Machine

--- Raise an error about the file.
function Machine:fail(format, ...) fail("load: '%s': " .. format, self.name, ...) end

--- Raise an error about a pickle that no program writes.
function Machine:damaged(reason) self:fail("the pickle is damaged: %s", reason) end

--- The next bytes.
function Machine:read(count)
  local from = self.at
  if from + count - 1 > #self.text then self:damaged "it ends early" end
  self.at = from + count
  return self.text:sub(from, from + count - 1)
end

--- Read a little-endian whole number of `count` bytes.
function Machine:number(count, signed)
  local value, bytes = 0, self:read(count)
  for i = count, 1, -1 do value = value * 256 + bytes:byte(i) end
  if signed and count > 0 and bytes:byte(count) >= 128 then value = value - 256 ^ count end
  return value
end

--- The text up to the end of the line.
function Machine:line()
  local stop = self.text:find("\n", self.at, true)
  if not stop then self:damaged "it ends early" end
  local line = self.text:sub(self.at, stop - 1)
  self.at = stop + 1
  return line
end

--- Push a value on the stack.
function Machine:push(value)
  self.values = self.values + 1
  if self.values > MOST_VALUES then self:fail("the pickle makes more than %d values", MOST_VALUES) end
  self.stack[#self.stack + 1] = value
end

--- Remove the topmost value and return it.
function Machine:pop()
  local value = self.stack[#self.stack]
  if value == nil or value == MARK then self:damaged "its stack is empty" end
  self.stack[#self.stack] = nil
  return value
end

--- The topmost value, which must be a container of this kind, to write to.
function Machine:top(kind)
  local value = self.stack[#self.stack]
  if type(value) ~= "table" or value[0] ~= kind then self:damaged("expected a " .. kind .. " on its stack") end
  if value == EMPTY_LIST or value == EMPTY_DICT then
    value = {[0] = kind}
    self.stack[#self.stack] = value
  end
  return value
end

--- A list of everything above the last mark, which is removed too.
function Machine:above_mark()
  local stack, from = self.stack, #self.stack
  while from > 0 and stack[from] ~= MARK do from = from - 1 end
  if from == 0 then self:damaged "a mark is missing" end
  local items = {[0] = "list"}
  for i = from + 1, #stack do items[i - from] = stack[i] end
  for i = #stack, from, -1 do stack[i] = nil end
  return items
end

--- Add the items of a list to a dict, as keys and values in turn.
function Machine:set_all(dict, items)
  if #items % 2 ~= 0 then self:damaged "a dict lacks a value" end
  for i = 1, #items, 2 do self:set(dict, items[i], items[i + 1]) end
end

--- Add a key and a value to a dict.
function Machine:set(dict, key, value)
  if type(key) ~= "string" and type(key) ~= "number" and type(key) ~= "boolean" or key ~= key then
    self:fail "a dict has a key that is neither a text, a number nor a boolean"
  end
  local count = #dict
  dict[count + 1], dict[count + 2] = key, value
end

--- Remember the topmost value under a number.
function Machine:remember(index)
  local value = self.stack[#self.stack]
  if value == nil or value == MARK then self:damaged "its stack is empty" end
  if value == EMPTY_LIST or value == EMPTY_DICT then value = self:top(value[0]) end
  self.memo[index] = value
  self.memo_count = self.memo_count + 1
end

--- Push the value that was memoised under a number.
function Machine:recall(index)
  local value = self.memo[index]
  if value == nil then self:damaged "it asks for something that it did not keep" end
  self:push(value)
end

--- Push the replacement of a name of Python.
function Machine:global(module, name)
  local full = module .. "." .. name
  local maker = self.makers[full]
  if not maker then
    self:fail("it holds a '%s', whose code would have to run; only tensors, numbers, texts and containers are read "
      .. "(in Python: torch.save(model.state_dict(), path))", full)
  end
  self:push({[0] = "global", name = full, maker = maker})
end

--- Call a maker.
function Machine:reduce()
  local list, callee = self:pop(), self:pop()
  if type(callee) ~= "table" or callee[0] ~= "global" or type(callee.maker) ~= "function"
    or type(list) ~= "table" or list[0] ~= "list" then
    self:damaged "it calls a value that is no function"
  end
  self:push(callee.maker(list))
end

local function tuple(count)
  return function(self)
    local items = {[0] = "list"}
    for i = count, 1, -1 do items[i] = self:pop() end
    self:push(items)
  end
end

local function text_of(bytes)
  return function(self) self:push(self:read(self:number(bytes))) end
end

local opcodes = {
  ["\128"] = function(self)
    local protocol = self:number(1)
    if protocol > 5 then self:fail("a pickle of protocol %d, expected at most 5", protocol) end
  end,
  ["\149"] = function(self) self:read(8) end, -- FRAME: a length that needs no checking
  ["("] = function(self) self:push(MARK) end,
  ["0"] = function(self) self:pop() end,
  ["N"] = function(self) self:push(NONE) end,
  ["\136"] = function(self) self:push(true) end,
  ["\137"] = function(self) self:push(false) end,
  ["K"] = function(self) self:push(self:number(1)) end,
  ["M"] = function(self) self:push(self:number(2)) end,
  ["J"] = function(self) self:push(self:number(4, true)) end,
  ["\138"] = function(self)
    local bytes = self:number(1)
    if bytes > 8 then self:fail("a whole number of %d bytes, expected at most 8", bytes) end
    self:push(self:number(bytes, true))
  end,
  ["G"] = function(self) self:push(pickle.double(self:read(8))) end,
  ["X"] = text_of(4), ["\140"] = text_of(1), ["\141"] = text_of(8), ["T"] = text_of(4), ["U"] = text_of(1),
  ["B"] = text_of(4), ["C"] = text_of(1), ["\142"] = text_of(8), ["\150"] = text_of(8),
  ["}"] = function(self) self:push(EMPTY_DICT) end,
  ["]"] = function(self) self:push(EMPTY_LIST) end,
  [")"] = function(self) self:push(EMPTY_LIST) end,
  ["t"] = function(self) self:push(self:above_mark()) end,
  ["l"] = function(self) self:push(self:above_mark()) end,
  ["\133"] = tuple(1), ["\134"] = tuple(2), ["\135"] = tuple(3),
  ["d"] = function(self)
    local items, dict = self:above_mark(), {[0] = "dict"}
    self:set_all(dict, items)
    self:push(dict)
  end,
  ["s"] = function(self)
    local value, key = self:pop(), self:pop()
    self:set(self:top "dict", key, value)
  end,
  ["u"] = function(self)
    local items = self:above_mark()
    self:set_all(self:top "dict", items)
  end,
  ["a"] = function(self)
    local value, list = self:pop(), self:top "list"
    list[#list + 1] = value
  end,
  ["e"] = function(self)
    local items = self:above_mark()
    local list = self:top "list"
    local count = #list
    for i = 1, #items do list[count + i] = items[i] end
  end,
  ["q"] = function(self) self:remember(self:number(1)) end,
  ["r"] = function(self) self:remember(self:number(4)) end,
  ["\148"] = function(self) self:remember(self.memo_count) end,
  ["h"] = function(self) self:recall(self:number(1)) end,
  ["j"] = function(self) self:recall(self:number(4)) end,
  ["c"] = function(self)
    local module = self:line()
    self:global(module, self:line())
  end,
  ["\147"] = function(self)
    local name, module = self:pop(), self:pop()
    if type(name) ~= "string" or type(module) ~= "string" then self:damaged "a name is no text" end
    self:global(module, name)
  end,
  ["R"] = Machine.reduce,
  ["b"] = function(self) -- BUILD: the state of an object, or attributes of a container, which have no use here
    local state, object = self:pop(), self.stack[#self.stack]
    if type(object) ~= "table" or object[0] ~= "dict" and object[0] ~= "list" and object[0] ~= "object" then
      self:damaged "it sets the state of a value that is no object"
    end
    if object.build then object:build(state) end
  end,
  ["Q"] = function(self) self:push(self.persistent(self:pop())) end,
}

--- A big-endian IEEE double of 8 bytes.
---@param bytes string
---@return number
function pickle.double(bytes)
  local first, second = bytes:byte(1, 2)
  local mantissa = second % 16
  for i = 3, 8 do mantissa = mantissa * 256 + bytes:byte(i) end
  local sign = first >= 128 and -1 or 1
  local exponent = first % 128 * 16 + math.floor(second / 16)
  if exponent == 2047 then return mantissa == 0 and sign * math.huge or 0 / 0 end
  if exponent == 0 then return sign * math.ldexp(mantissa, -1074) end
  return sign * math.ldexp(mantissa + 2 ^ 52, exponent - 1075)
end

-- Conversion of the machine's values to plain tables.
local Plain = {}
Plain.__index = Plain

--- The value of an object, once; a reason in its place is added to `left_out` under the path that leads to it.
function Plain:object(object)
  local value, reason = self.done[object], nil
  if value == nil then
    value, reason = object:make()
    self.done[object] = value
  end
  if value == nil then self.left_out[table.concat(self.path, ".")] = reason end
  return value
end

--- A container as a table.
function Plain:container(value)
  if #self.path >= DEEPEST then fail("load: '%s': containers nested deeper than %d", self.name, DEEPEST) end
  local result, depth = {}, #self.path + 1
  if value ~= EMPTY_LIST and value ~= EMPTY_DICT then self.done[value] = result end
  local dict = value[0] == "dict"
  for i = 1, #value, dict and 2 or 1 do
    local key, item = i, value[i]
    if dict then key, item = item, value[i + 1] end
    if type(item) == "table" then
      self.path[depth] = tostring(key)
      item = self:value(item)
      self.path[depth] = nil
    end
    result[key] = item
  end
  return result
end

--- Any value.
function Plain:value(value)
  if type(value) ~= "table" then return value end
  if value == NONE then return nil end
  local kind = value[0]
  if kind == "object" then return self:object(value) end
  if self.done[value] ~= nil then return self.done[value] end
  if kind == "list" or kind == "dict" then return self:container(value) end
  if kind == "global" and type(value.maker) == "table" and value.maker.text then return value.maker.text end
  return fail("load: '%s': it holds %s of Python as a value", self.name,
    kind == "global" and "'" .. value.name .. "'" or "a " .. tostring(kind))
end

--- An empty dict for a maker to return.
---@return table
function pickle.new_dict() return EMPTY_DICT end

--- Convert the result of `run`: tables, and the values that objects make; shared parts stay shared.
---@param name string the file, for messages
---@return any
---@return table<string, string> left_out by the path that leads to it, "" for the value itself: the reason why it is
--- missing
function pickle.plain(value, name)
  local state = setmetatable({name = name, done = {}, path = {}, left_out = {}}, Plain)
  return state:value(value), state.left_out
end

--- Run a pickle.
---@param options {name: string, makers: table<string, function|table>, persistent: function, at: integer?} `name` is
--- the file, for messages; `makers` by "module.name" return a value of the stack, or are a table that other makers
--- read; `persistent(id)` returns the object of an id; `at` is the pickle's first byte, from 1
---@return any value for `plain`
---@return integer next the byte after the pickle
function pickle.run(text, options)
  local machine = setmetatable({
    text = text, at = options.at or 1, stack = {}, memo = {}, memo_count = 0, values = 0, name = options.name,
    makers = options.makers, persistent = options.persistent,
  }, Machine)
  while true do
    local opcode = machine:read(1)
    if opcode == "." then return machine:pop(), machine.at end
    local run = opcodes[opcode]
    if not run then machine:fail("the pickle has an operation (%d) that is not among the safe ones", opcode:byte()) end
    run(machine)
  end
end

return pickle
