--- What to do about an error that Lua, and not the library, has worded: found from the words, the script's line and the
--- values that its variables hold. Loaded when the first uncaught error is reported (host/bind/error.c).
local C = require "accelhost._C"

local hints = {}

-- The failing place.

-- A line of the script, when it comes from a file.
local function read_line(source, number)
  local path = source:match "^@(.+)$"
  local file = path and io.open(path)
  if not file then return nil end
  local text
  for _ = 1, number do text = file:read "*l" end
  file:close()
  return text
end

-- Name -> value for what a function sees: its locals over its upvalues over the globals.
local function variables_at(level, func)
  local seen = {}
  for i = 1, math.huge do
    local name, value = debug.getupvalue(func, i)
    if not name then break end
    seen[name] = {value}
  end
  for i = 1, math.huge do
    local name, value = debug.getlocal(level + 1, i)
    if not name then break end
    seen[name] = {value}
  end
  return function(name)
    local found = seen[name]
    if found then return found[1] end
    return rawget(_G, name)
  end, seen
end

-- The innermost frame of the script; levels count from the caller of this function.
local function find_place()
  for level = 2, math.huge do
    local info = debug.getinfo(level, "Slf")
    if not info then return nil end
    if info.currentline > 0 and not info.source:find("^=accelhost/") then
      local value_of, seen = variables_at(level, info.func)
      return {line = read_line(info.source, info.currentline) or "", value_of = value_of, seen = seen}
    end
  end
end

-- A field of any value, nil when asking raises.
local function field(value, key)
  local kind = type(value)
  if kind ~= "table" and kind ~= "userdata" and kind ~= "string" then return nil end
  local fine, found = pcall(function() return value[key] end)
  return fine and found or nil
end

-- The value of "model.layers" where the script failed.
local function resolve(place, path)
  local value, first = nil, true
  for name in path:gmatch "[%w_]+" do
    if first then value, first = place.value_of(name), false else value = field(value, name) end
    if value == nil then return nil end
  end
  return value
end

-- Is the value an object: with methods, called with a colon?
local function is_object(value)
  if C.is_tensor(value) then return true end
  local meta = (type(value) == "table" or type(value) == "userdata") and getmetatable(value)
  return type(meta) == "table" and meta._class ~= nil
end

-- Names that a value has: fields and methods, the methods of its classes, of a namespace all.
local function names_of(value)
  local names, meta = {}, getmetatable(value)
  local function add(list)
    for name in next, list do
      if type(name) == "string" and not name:find "^_" then names[#names + 1] = name end
    end
  end
  if type(meta) == "table" and type(meta.names) == "function" then return meta.names() end
  if type(value) == "table" then add(value) end
  if type(value) == "table" and type(rawget(value, "_fields")) == "table" then add(rawget(value, "_fields")) end
  local class = type(meta) == "table" and meta._class
  while type(class) == "table" do
    add(class)
    class = rawget(class, "_parent")
  end
  table.sort(names)
  return names
end

-- What PyTorch and Python call it, and what it is here.
local elsewhere = {
  cuda = ':to "cuda"', numpy = ":tolist()", cpu = ':to "cpu"', type = ":to(dtype)", copy = ":clone()", len = "#",
  append = ":append(...)", environ = ".getenv(name)", load = ":load_state_dict(accelhost.load(path))",
  __len__ = ":len()", backwards = ":backward()",
}
local globals = {
  len = "#x is the length of x", range = "for i = 0, n - 1 do ... end counts", enumerate = "accelhost.enumerate",
  str = "tostring(x)", int = "math.floor(x)", float = "tonumber(x)", list = "{...} is a list",
  isinstance = "type(x) == \"number\", nn.is_module(x), accelhost.is_tensor(x)", super = "Parent.method(self, ...)",
  max = "math.max", min = "math.min", abs = "math.abs", sum = "tensor:sum()", zip = "for i = 1, #list do",
  torch = "local accelhost = require \"accelhost\"",
  nn = "local nn = accelhost.nn", F = "local F = accelhost.nn.functional",
  optim = "local optim = accelhost.optim", data = "local data = accelhost.data",
  accelhost = "local accelhost = require \"accelhost\"", True = "write true", False = "write false", None = "write nil",
  self = "define the method with a colon, function Net:forward(x)", math = "Lua's own library",
  dist = "accelerator:gather, :reduce and :wait_for_everyone", sys = "arg has the script's arguments",
  time = "os.clock() and os.time()", random = "math.random, accelhost.rand",
}

local function class_name(value)
  local meta = getmetatable(value)
  return type(meta) == "table" and type(meta._name) == "string" and meta._name or "it"
end

-- The rules. Each gets the place and what its pattern captured, and gives the hint or nil.

local function missing_global(place, name)
  if globals[name] then return ("'%s' is nothing here: %s"):format(name, globals[name]) end
  for _, from in ipairs {place.seen, _G} do
    local known = {}
    for other in next, from do known[#known + 1] = other end
    table.sort(known)
    local near = C.system.nearest(name, known)
    if near then return ("did you mean '%s'?"):format(near) end
  end
  return ("nothing is called '%s' here; a local is seen after its line, within its block"):format(name)
end

local function missing_field(place, name)
  local path = place.line:match("([%a_][%w_%.]*)%s*[%.:]%s*" .. name .. "%f[^%w_]")
  local value = path and resolve(place, path)
  if value == nil or type(value) == "string" then return nil end
  if elsewhere[name] then return ("write %s%s"):format(path, elsewhere[name]) end
  local names = names_of(value)
  local near = C.system.nearest(name, names)
  local what = is_object(value) and ("%s (%s)"):format(path, class_name(value)) or path
  if near then return ("%s has no '%s'; did you mean '%s'?"):format(what, name, near) end
  return ("%s has no '%s'"):format(what, name)
end

local function function_value(place, name)
  local path = place.line:match("([%a_][%w_%.]*)%s*%.%s*" .. name .. "%f[^%w_]")
  if not path then return ("'%s' is a function: call it"):format(name) end
  return ("'%s' is a method: write %s:%s()"):format(name, path, name)
end

local function zero_index(place)
  local before = place.line:match "([%a_][%w_%.:]*[%w_%(%)]*)%[0%]"
  if before then
    local value = resolve(place, (before:gsub("%(%)", "")))
    if not C.is_tensor(value) then return ("Lua's tables count from 1: %s[1] is the first"):format(before) end
  end
  for path, name in place.line:gmatch "([%a_][%w_%.]*)%[([%a_][%w_]*)%]" do
    local value, index = resolve(place, path), place.value_of(name)
    if type(value) == "table" and index == 0 then
      return ("%s is 0, and Lua's tables count from 1 (data sets are asked from 0): write %s[%s + 1]"):format(name,
        path, name)
    end
  end
end

local function walked(place, walker)
  local call = place.line:match(walker .. "%s*%(%s*([%a_][%w_%.]*:named_[%w_]+)")
  if call then return ("it is an iterator already: for name, value in %s() do"):format(call) end
  local path = place.line:match(walker .. "%s*%(%s*([%a_][%w_%.]*)")
  local value = path and resolve(place, path)
  if C.is_tensor(value) then
    return ("a tensor is walked by its positions: for i = 0, #%s - 1 do local row = %s[i] ... end"):format(path, path)
  end
  if is_object(value) and field(value, "dataset") then
    return ("a loader is walked by itself: for batch in %s do, or for i, batch in accelhost.enumerate(%s) do"):format(
      path, path)
  end
  if is_object(value) and field(value, "get") then
    return ("a data set is walked by a loader, or for i = 0, #%s - 1 do local sample = %s:get(i) ... end"):format(path,
      path)
  end
end

local function called_table(place, name)
  local call = place.line:match "%f[%w_]in%s+([%a_][%w_%.]*:[%w_]+%b())%s+do%f[^%w_]"
  if call then return ("it gives a table, which ipairs walks: for i, value in ipairs(%s) do"):format(call) end
  name = place.line:match "%f[%w_]in%s+([%a_][%w_%.]*)%s+do%f[^%w_]" or name
  local value = name and resolve(place, name)
  if is_object(value) and field(value, "get") and field(value, "len") then
    return ("%s is a data set: data.DataLoader(%s) gives its batches"):format(name, name)
  end
end

local function compared()
  return "a tensor and a number are compared by tensor:lt(x), :le, :gt, :ge, :eq; as numbers by tensor:item()"
end

local function boolean_index(place)
  if place.line:find "[^~<>=]==" or place.line:find "~=" then
    return "== asks for the same tensor; a:eq(b) and a:ne(b) compare the elements"
  end
end

local rules = {
  {"attempt to %a+ global '([%w_]+)' %(a nil value%)", missing_global},
  {"attempt to perform arithmetic on global '([%w_]+)' %(a nil value%)", missing_global},
  {"attempt to call %a+ '([%w_]+)' %(a nil value%)", missing_field},
  {"attempt to index field '([%w_]+)' %(a nil value%)", missing_field},
  {"attempt to perform arithmetic on field '([%w_]+)' %(a nil value%)", missing_field},
  {"field '([%w_]+)' %(a function value%)", function_value},
  {"attempt to index a nil value", zero_index},
  {"attempt to perform arithmetic on a nil value", zero_index},
  {"field '%?' %(a nil value%)", zero_index},
  {"attempt to index a boolean value", boolean_index},
  {"attempt to call method '[%w_]+' %(a nil value%)", boolean_index},
  {"attempt to compare number with userdata", compared},
  {"attempt to compare userdata with number", compared},
  {"bad argument #%d+ to '[%w_?]+' %(number expected, got userdata%)", function()
    return "a tensor is no number: tensor:item() is"
  end},
  {"bad argument #1 to '(i?pairs)' %(table expected", walked},
  {"attempt to call %a+ '([%w_]+)' %(a table value%)", called_table},
  {"attempt to call %a+ '([%w_]+)' %(a userdata value%)", called_table},
  {"attempt to call a %a+ value", called_table},
  {"a floating target holds class probabilities", function()
    return 'class numbers are integers: target:to "int64"'
  end},
  {"target %-?%d+ at position %d+ is outside", function() return "classes count from 0" end},
  {"dtypes differ: (%w+) and", function(_, dtype)
    return ('bring them to one dtype, as by x:to "%s"'):format(dtype)
  end},
  {"inner sizes differ", function()
    return "the last dim of the first meets the last but one of the second; b:t() swaps b's"
  end},
  {"does not fit weight %([%d, ]*%) %(out_features, in_features%)", function()
    return "the input's last dim has to be in_features; x:flatten(1) makes a row of each image"
  end},
  {"stack: tensor %d+ has shape", function()
    return "samples of unequal shapes need a collate_fn of the DataLoader, as one that pads"
  end},
  {"^[^\n]*%f[%w]dim %d+ is out of range", function() return "dims count from 0, or from -1 backwards" end},
  {"a gradient is needed for a tensor of shape", function() return "loss:mean() and loss:sum() are scalars" end},
  {"collective #%d+ differs: rank", function()
    return "every process has to make the same calls in the same order, none inside `if accelerator.is_main_process`"
  end},
  {"ended without it", function()
    return "every process has to take the same number of steps; a prepared loader gives each the same number of batches"
  end},
  {"a tensor has no field or method '([%w_]+)'", function(_, name)
    return elsewhere[name] and "write tensor" .. elsewhere[name]
  end},
}

-- An object's method called with a dot, anywhere in the line.
local function dot_call(place)
  for path, name, first in place.line:gmatch "([%a_][%w_%.]*)%.([%a_][%w_]*)%s*%(%s*([%w_%.]*)" do
    local value = resolve(place, path)
    local own = type(value) == "table" and (rawget(value, "_fields") or value)
    if is_object(value) and first ~= path and type(field(value, name)) == "function"
      and not (own and rawget(own, name)) then
      return ("write %s:%s(...), with a colon"):format(path, name)
    end
  end
end

-- Words of other languages where Lua's parser stops: {message, line, hint}.
local syntax = {
  {"near '!'", "!=", "Lua writes ~= for \"is not equal\", and `not` for !"},
  {"near '[%+%-%*/%.]?=?'", "[%+%-%*/]=", "Lua has no +=: write x = x + 1"},
  {"near '[=%+]'", "%+%+", "Lua has no ++: write x = x + 1"},
  {"near '='", "[%+%-%*/]=", "Lua has no +=: write x = x + 1"},
  {"'then' expected near ':'", "", "an `if` ends its condition with `then`, and its block with `end`"},
  {"'then' expected near '='", "", "a comparison is ==, a single = assigns"},
  {"expected near '{'", "", "a block is do ... end, then ... end or function() ... end, without braces"},
  {"'do' expected near ':'", "", "a loop ends its head with `do`, and its block with `end`"},
  {"near ':'", "^%s*[ew]l?[si][el]", "`else` and `elseif condition then` end with no colon"},
  {"near '[^']+'", "^%s*def%s", "Lua writes function name(arguments) ... end"},
  {"near '[^']+'", "^%s*class%s", 'a class is local Net = nn.Module:extend "Net"'},
  {"near '[^']+'", "^%s*import%s", "Lua writes local accelhost = require \"accelhost\""},
  {"near '[^']+'", "^%s*from%s", "Lua writes local nn = accelhost.nn"},
  {"near '[^']+'", "^%s*with%s", "a `with` block is a function: accelhost.no_grad(function() ... end)"},
  {"near '[^']+'", "^%s*elif%s", "Lua writes elseif condition then"},
  {"near '[^']+'", "^%s*try%s*:", "Lua writes local fine, message = pcall(function() ... end)"},
  {"near '[^']+'", "^%s*raise%s", "Lua writes error(\"what went wrong\")"},
  {"near '[^']+'", "^%s*assert%s", "assert is a function: assert(condition, message)"},
  {"near '[^']+'", "%f[%w_]lambda%f[^%w_]", "Lua writes function(x) return x * 2 end"},
  {"near '[^']+'", "%f[%w_]continue%f[^%w_]",
    "Lua has no continue: goto next_one, with ::next_one:: at the loop's end"},
  {"near '#'", "", "comments begin with --, and # is the length"},
  {"near '%['", "", "a list is {1, 2, 3}, a position of a tensor t[{0, 1}]"},
  {"'}' expected near ':'", "", "a table's names are written {lr = 0.1}"},
  {"near '&'", "", "Lua writes `and`"},
  {"near '|'", "", "Lua writes `or`"},
  {"'<name>' expected near", "[{,]%s*[%w_'\"]+%s*:", "a table's names are written {lr = 0.1}"},
  {"'end' expected .*near '<eof>'", "", "a block (function, if, for, while, do) is not closed by its `end`"},
}

local function explain_syntax(message)
  local path, number, what = message:match "([^%s:]+):(%d+): ([^\n]* near [^\n]*)"
  if not path then return nil end
  -- The parser may have stopped at the first word of the next line.
  for at = tonumber(number), math.max(1, tonumber(number) - 1), -1 do
    local line = read_line("@" .. path, at) or ""
    for _, row in ipairs(syntax) do
      if what:find(row[1]) and line:find(row[2]) and (row[2] ~= "" or at == tonumber(number)) then return row[3] end
    end
  end
end

local function explain(message)
  local hint = explain_syntax(message)
  local place = not hint and find_place()
  if not place then return hint end
  for _, rule in ipairs(rules) do
    local from, _, first = message:find(rule[1])
    hint = from and rule[2](place, first)
    if hint then return hint end
  end
  if not message:find("colon", 1, true) and not message:find("':'", 1, true) then
    return dot_call(place)
  end
end

--- The message with what to do about it, where that is known.
---@param message string
---@return string
function hints.add(message)
  local fine, hint = pcall(explain, message:sub(1, 1000)) -- a script's own words may be endless
  return fine and hint and ("%s (%s)"):format(message, hint) or message
end

return hints
