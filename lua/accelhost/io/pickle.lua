--- The safe part of Python's pickle format: what torch.save makes of tensors, numbers, texts and containers of them.
--
-- A pickle is a program for a stack machine that may call any function of Python. Here it can only build tables and
-- call the few makers of tensors that the caller lists; any other name in it is an error that tells the name.
-- https://github.com/python/cpython/blob/main/Lib/pickletools.py
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail

local pickle = {}

local MARK = {} -- separates what an opcode gathers
local DEEPEST = 200
local NONE = {} -- Python's None, until it is stored: a table field then has no value

local function damaged(reason) fail("load: the pickle is damaged: %s", reason) end

local Machine = {}
Machine.__index = Machine

--- The next bytes.
function Machine:take(count)
  local from = self.at
  if from + count - 1 > #self.text then damaged "it ends early" end
  self.at = from + count
  return self.text:sub(from, from + count - 1)
end

--- A little-endian whole number of so many bytes.
function Machine:number(count, signed)
  local value, bytes = 0, self:take(count)
  for i = count, 1, -1 do value = value * 256 + bytes:byte(i) end
  if signed and count > 0 and bytes:byte(count) >= 128 then value = value - 256 ^ count end
  return value
end

--- The text up to the end of the line.
function Machine:line()
  local stop = self.text:find("\n", self.at, true)
  if not stop then damaged "it ends early" end
  local line = self.text:sub(self.at, stop - 1)
  self.at = stop + 1
  return line
end

--- Put a value on the stack.
function Machine:push(value) self.stack[#self.stack + 1] = value end

--- Take the topmost value off.
function Machine:pop()
  local value = self.stack[#self.stack]
  if value == nil or value == MARK then damaged "its stack is empty" end
  self.stack[#self.stack] = nil
  return value
end

--- The topmost value, which must be of this kind.
function Machine:top(kind)
  local value = self.stack[#self.stack]
  if type(value) ~= "table" or value.kind ~= kind then damaged("expected a " .. kind .. " on its stack") end
  return value
end

--- Everything above the last mark, which goes too.
function Machine:above_mark()
  local stack, from = self.stack, #self.stack
  while from > 0 and stack[from] ~= MARK do from = from - 1 end
  if from == 0 then damaged "a mark is missing" end
  local items = {}
  for i = from + 1, #stack do items[i - from] = stack[i] end
  for i = #stack, from, -1 do stack[i] = nil end
  return items
end

local function new_list(items) return {kind = "list", items = items} end
local function new_dict() return {kind = "dict", items = {}} end

local function set(dict, key, value)
  if type(key) ~= "string" and type(key) ~= "number" and type(key) ~= "boolean" then
    fail("load: a dict has a key that is neither a text, a number nor a boolean")
  end
  dict.items[#dict.items + 1] = {key, value}
end

local function set_all(dict, items)
  if #items % 2 ~= 0 then damaged "a dict lacks a value" end
  for i = 1, #items, 2 do set(dict, items[i], items[i + 1]) end
end

local function tuple(count)
  return function(self)
    local items = {}
    for i = count, 1, -1 do items[i] = self:pop() end
    self:push(new_list(items))
  end
end

local function text_of(bytes)
  return function(self) self:push(self:take(self:number(bytes))) end
end

local function memo_put(self, index)
  local value = self.stack[#self.stack]
  if value == nil then damaged "its stack is empty" end
  self.memo[index] = value
  self.memo_count = self.memo_count + 1
end

local function memo_get(self, index)
  local value = self.memo[index]
  if value == nil then damaged "it asks for something that it did not keep" end
  self:push(value)
end

local function global(self, module, name)
  local maker = self.makers[module .. "." .. name]
  if not maker then
    fail("load: the file holds a '%s.%s', whose code would have to run; only tensors, numbers, texts and containers "
      .. "are read (in Python: torch.save(model.state_dict(), path))", module, name)
  end
  self:push({kind = "global", make = maker})
end

local opcodes = {
  ["\128"] = function(self)
    local protocol = self:number(1)
    if protocol > 5 then fail("load: a pickle of protocol %d, expected at most 5", protocol) end
  end,
  ["\149"] = function(self) self:take(8) end, -- FRAME: a length that needs no checking
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
    if bytes > 8 then fail("load: a whole number of %d bytes", bytes) end
    self:push(self:number(bytes, true))
  end,
  ["G"] = function(self)
    local bytes = self:take(8)
    self:push(pickle.double(bytes))
  end,
  ["X"] = text_of(4), ["\140"] = text_of(1), ["\141"] = text_of(8), ["T"] = text_of(4), ["U"] = text_of(1),
  ["B"] = text_of(4), ["C"] = text_of(1), ["\142"] = text_of(8),
  ["}"] = function(self) self:push(new_dict()) end,
  ["]"] = function(self) self:push(new_list({})) end,
  [")"] = function(self) self:push(new_list({})) end,
  ["t"] = function(self) self:push(new_list(self:above_mark())) end,
  ["l"] = function(self) self:push(new_list(self:above_mark())) end,
  ["\133"] = tuple(1), ["\134"] = tuple(2), ["\135"] = tuple(3),
  ["d"] = function(self)
    local items, dict = self:above_mark(), new_dict()
    set_all(dict, items)
    self:push(dict)
  end,
  ["s"] = function(self)
    local value, key = self:pop(), self:pop()
    set(self:top("dict"), key, value)
  end,
  ["u"] = function(self)
    local items = self:above_mark()
    set_all(self:top("dict"), items)
  end,
  ["a"] = function(self)
    local value, list = self:pop(), self:top("list")
    list.items[#list.items + 1] = value
  end,
  ["e"] = function(self)
    local items = self:above_mark()
    local list = self:top("list").items
    for i = 1, #items do list[#list + 1] = items[i] end
  end,
  ["q"] = function(self) memo_put(self, self:number(1)) end,
  ["r"] = function(self) memo_put(self, self:number(4)) end,
  ["\148"] = function(self) memo_put(self, self.memo_count) end,
  ["h"] = function(self) memo_get(self, self:number(1)) end,
  ["j"] = function(self) memo_get(self, self:number(4)) end,
  ["c"] = function(self)
    local module = self:line()
    global(self, module, self:line())
  end,
  ["\147"] = function(self)
    local name, module = self:pop(), self:pop()
    if type(name) ~= "string" or type(module) ~= "string" then damaged "a name is no text" end
    global(self, module, name)
  end,
  ["R"] = function(self)
    local list, callee = self:pop(), self:pop()
    if type(callee) ~= "table" or callee.kind ~= "global" or type(list) ~= "table" or list.kind ~= "list" then
      damaged "it calls what is no function"
    end
    self:push(callee.make(list.items))
  end,
  ["b"] = function(self) -- BUILD: what a maker wants to know of an object; else attributes that say nothing to us
    local state = self:pop()
    local dict = self:top("dict")
    if dict.build then dict.build(state) end
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

-- Plain tables of what the machine built; shared parts stay shared.
local function plain(value, done, depth)
  if depth > DEEPEST then fail("load: containers nested deeper than %d", DEEPEST) end
  if type(value) ~= "table" then return value end
  if value == NONE then return nil end
  if done[value] ~= nil then return done[value] end
  if value.kind == "made" then return value.value end
  if value.kind == "global" then fail("load: the file holds a function of Python as a value") end
  local result = {}
  done[value] = result
  if value.kind == "list" then
    for i = 1, #value.items do result[i] = plain(value.items[i], done, depth + 1) end
  else
    for _, pair in ipairs(value.items) do result[pair[1]] = plain(pair[2], done, depth + 1) end
  end
  return result
end

--- A value for a maker to return: not a container of the machine's.
---@param value any
---@return table
function pickle.made(value) return {kind = "made", value = value} end

--- What a maker was given, as plain values.
---@param value any
---@return any
function pickle.plain(value) return plain(value, {}, 0) end

--- A dict or a list for a maker to return.
pickle.new_dict, pickle.new_list = new_dict, new_list

--- Run a pickle.
---@param text string
---@param makers table<string, fun(arguments: any[]): any> by "module.name"; their results go on the stack
---@param persistent fun(id: any): any what a persistent id stands for
---@return any
function pickle.load(text, makers, persistent)
  local machine = setmetatable({
    text = text, at = 1, stack = {}, memo = {}, memo_count = 0, makers = makers, persistent = persistent,
  }, Machine)
  while true do
    local opcode = machine:take(1)
    if opcode == "." then return pickle.plain(machine:pop()) end
    local run = opcodes[opcode]
    if not run then fail("load: the pickle has an operation (%d) that is not among the safe ones", opcode:byte()) end
    run(machine)
  end
end

return pickle
