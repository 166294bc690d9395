--- Hints for uncaught errors: found from the message, the script's line and the values of the variables in it.
--- Loaded when the first uncaught error is reported (host/bind/lua/error.c).
local C = require "accelhost._C"
local advice = require "accelhost.util.hints.advice"
local elsewhere = require "accelhost.util.hints.elsewhere"
local place = require "accelhost.util.hints.place"
local syntax = require "accelhost.util.hints.syntax"
local field, resolve, is_object = place.field, place.resolve, place.is_object

local hints = {}

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

local function class_name(value)
  if C.is_tensor(value) then return "a tensor" end
  local meta = getmetatable(value)
  return type(meta) == "table" and type(meta._name) == "string" and meta._name or "an object"
end

-- Return a public name with its module, for a script that writes it as a global; nil where it is none.
local function public_name(name)
  local accelhost = package.loaded.accelhost
  for _, path in ipairs(type(accelhost) == "table" and {"", "nn", "nn.functional", "optim", "data"} or {}) do
    local fine, value = pcall(function()
      local module = accelhost
      for part in path:gmatch "%a+" do module = module[part] end
      return module[name]
    end)
    if fine and value ~= nil then return "accelhost." .. path .. (path ~= "" and "." or "") .. name end
  end
end

-- The rules. Each gets the place and the captures of its pattern, and returns the hint or nil.

local function missing_global(at, name)
  local known_elsewhere = elsewhere.globals[name]
  if known_elsewhere then return ("'%s' is nothing here: %s"):format(name, known_elsewhere) end
  -- Further names of the prompt (repl/evaluate.lua).
  local more = debug.getregistry()["accelhost.names"]
  for i, from in ipairs {at.seen, more and more() or {}, _G} do
    local public = i == 2 and public_name(name)
    if public then return ("write %s"):format(public) end
    local known = {}
    for other in next, from do known[#known + 1] = other end
    table.sort(known)
    local near = C.system.nearest(name, known)
    if near then return ("did you mean '%s'?"):format(near) end
  end
  return ("nothing is called '%s' here; a local is seen after its line, within its block"):format(name)
end

local function missing_field(at, name)
  local path = at.line:match("([%a_][%w_%.]*)%s*[%.:]%s*" .. name .. "%f[^%w_]")
  local value = path and resolve(at, path)
  if value == nil or type(value) == "string" then return nil end
  if name == "grad" and C.is_tensor(value) then
    return ("%s has no gradient: no backward has reached it since it was made, or since zero_grad"):format(path)
  end
  if type(value) == "table" and C.is_tensor(value[1]) and pcall(function() return value[1][name] end) then
    return ("%s is a table of tensors: %s[1] is the first, unpack(%s) are all"):format(path, path, path)
  end
  if elsewhere.sentences[name] then return elsewhere.sentences[name] end
  if elsewhere.fields[name] then return ("write %s%s"):format(path, elsewhere.fields[name]) end
  local near = C.system.nearest(name, names_of(value))
  local what = is_object(value) and ("%s (%s)"):format(path, class_name(value)) or path
  if near then return ("%s has no '%s'; did you mean '%s'?"):format(what, name, near) end
  return ("%s has no '%s'"):format(what, name)
end

local function known_elsewhere(_, name)
  if elsewhere.sentences[name] then return elsewhere.sentences[name] end
  return elsewhere.fields[name] and "write tensor" .. elsewhere.fields[name]
end

local function function_value(at, name)
  local path = at.line:match("([%a_][%w_%.]*)%s*%.%s*" .. name .. "%f[^%w_]")
  if not path then return ("'%s' is a function: call it"):format(name) end
  return ("'%s' is a method: write %s:%s()"):format(name, path, name)
end

local function field_value(at, name)
  local path = at.line:match("([%a_][%w_%.]*)%s*:%s*" .. name .. "%f[^%w_]")
  return path and ("'%s' is a field: write %s.%s"):format(name, path, name)
end

local function zero_index(at)
  local before = at.line:match "([%a_][%w_%.:]*[%w_%(%)]*)%[0%]"
  if before then
    local value = resolve(at, (before:gsub("%(%)", "")))
    if not C.is_tensor(value) then return ("Lua's tables count from 1: %s[1] is the first"):format(before) end
  end
  for path, name in at.line:gmatch "([%a_][%w_%.]*)%[([%a_][%w_]*)%]" do
    local value, index = resolve(at, path), at.value_of(name)
    if type(value) == "table" and index == 0 then
      return ("%s is 0, and Lua's tables count from 1 (data sets are asked from 0): write %s[%s + 1]"):format(name,
        path, name)
    end
  end
end

local function is_loader(value)
  return is_object(value) and field(value, "dataset") ~= nil
end

local function by_position(path)
  return ("a tensor is iterated by position: for i = 0, #%s - 1 do local row = %s[i] ... end"):format(path, path)
end

local function iterated(at, iterator)
  local call = at.line:match(iterator .. "%s*%(%s*([%a_][%w_%.]*:named_[%w_]+)")
  if call then return ("it is an iterator already: for name, value in %s() do"):format(call) end
  local path = at.line:match(iterator .. "%s*%(%s*([%a_][%w_%.]*)")
  local value = path and resolve(at, path)
  if C.is_tensor(value) then return by_position(path) end
  if is_loader(value) then
    return ("a loader is its own iterator: for batch in %s do, or for i, batch in accelhost.enumerate(%s) do"):format(
      path, path)
  end
  if is_object(value) and field(value, "get") then
    return ("a data set is iterated by a loader, or for i = 0, #%s - 1 do local sample = %s:get(i) ... end"):format(
      path, path)
  end
end

-- A line that begins with a table or a text is the argument of a call that ends the line above.
local function continued_call(at)
  local first = at.line:match "^%s*([{'\"])"
  local above = at.lines[#at.lines - 1]
  if first and above and above:find "[%w_%)%]}'\"]%s*$" then
    return ("this line begins with %s, so it is the argument of a call of the line above: end that line with ;"):format(
      first)
  end
end

local function called_table(at, name)
  local call = at.line:match "%f[%w_]in%s+([%a_][%w_%.]*:[%w_]+%b())%s+do%f[^%w_]"
  if call then return ("it returns a table, which ipairs iterates over: for i, value in ipairs(%s) do"):format(call) end
  if at.line:find "%f[%w_]in%s+%b{}%s+do%f[^%w_]" then
    return "ipairs iterates over a list, pairs over a table of names"
  end
  name = at.line:match "%f[%w_]in%s+([%a_][%w_%.]*)%s+do%f[^%w_]" or name
  local value = name and resolve(at, name)
  if C.is_tensor(value) then return by_position(name) end
  if is_object(value) and field(value, "get") and field(value, "len") then
    return ("%s is a data set: data.DataLoader(%s) yields its batches"):format(name, name)
  end
  if type(value) == "table" and not is_object(value) then
    return ("ipairs iterates over a list: for i, value in ipairs(%s) do"):format(name)
  end
end

local function called_number(at)
  local name, what = at.line:match "%f[%w_]for%s+([%w_]+).-%f[%w_]in%s+(.-)%s+do%f[^%w_]"
  return what and ("counting is for %s = 1, %s do"):format(name, what)
end

local function compared()
  return "a tensor and a number are compared by tensor:lt(x), :le, :gt, :ge, :eq; as numbers by tensor:item()"
end

local function boolean_index(at)
  if at.line:find "[^~<>=]==" or at.line:find "~=" then
    return "== asks for the same tensor; a:eq(b) and a:ne(b) compare the elements"
  end
end

-- f(model(x)) where the model's forward returns nothing.
local function gave_nothing(at)
  for path in at.line:gmatch "[%(,]%s*([%a_][%w_%.]*)%s*%(" do
    local meta = type(resolve(at, path)) == "table" and getmetatable(resolve(at, path))
    if type(meta) == "table" and meta._is_module then
      return ("%s(...) returned nothing: end its forward with `return`"):format(path)
    end
  end
end

local function text_arithmetic()
  return ".. joins texts, (\"loss %.3f\"):format(loss) fills one in"
end

local SEVERAL = "%f[%w_]local%s+([%w_%s,]+,[%w_%s]+)=%s*([%a_][%w_%.]*)[%.:](%a+)[%(%)]*%s*(.*)$"

-- local B, T = x:size(): all sizes are in one table, so that T is nil.
local function sizes_at(at)
  for i = #at.lines, 1, -1 do
    local names, path, method, rest = at.lines[i]:match(SEVERAL)
    local used = i == #at.lines and rest or at.line
    local is_size = (method == "size" or method == "shape") and not rest:find "^[%[%(%.+*/-]"
    for name in is_size and names:gmatch "[%w_]+" or function() end do
      if used:find("%f[%w_]" .. name .. "%f[^%w_]") then
        return ("%s:%s() returns one table: local %s = unpack(%s:%s())"):format(path, method,
          names:match "^(.-)%s*$", path, method)
      end
    end
  end
end

local rules = {
  {"index: item %d of the table is nil", function(at)
    return at.line:find "[{,]%s*%.%.%.%s*[,}]" and 'all dims that are left are "...", a text: x[{"...", 0}]' or nil
  end},
  {"attempt to perform arithmetic on local '[%w_]+' %(a %a+ value%)", sizes_at},
  {"attempt to compare %a+ with %a+", sizes_at},
  {"'for' %a+ must be a number", sizes_at},
  {"expected at most %d+ arguments?, got %d", sizes_at},
  {"got a function", sizes_at},
  {"got nil", sizes_at},
  {"attempt to %a+ global '([%w_]+)' %(a nil value%)", missing_global},
  {"attempt to perform arithmetic on global '([%w_]+)' %(a nil value%)", missing_global},
  {"attempt to call %a+ '([%w_]+)' %(a nil value%)", missing_field},
  {"attempt to %a+ field '([%w_]+)' %(a nil value%)", missing_field},
  {"attempt to perform arithmetic on field '([%w_]+)' %(a nil value%)", missing_field},
  {"field '([%w_]+)' %(a function value%)", function_value},
  {"attempt to call method '([%w_]+)' %(a boolean value%)", field_value},
  {"attempt to call method '([%w_]+)' %(a number value%)", field_value},
  {"attempt to call method '([%w_]+)' %(a string value%)", field_value},
  {"attempt to call method '([%w_]+)' %(a userdata value%)", field_value},
  {"attempt to index a nil value", zero_index},
  {"attempt to perform arithmetic on a nil value", zero_index},
  {"field '%?' %(a nil value%)", zero_index},
  {"attempt to index a boolean value", boolean_index},
  {"attempt to call method '[%w_]+' %(a nil value%)", boolean_index},
  {"attempt to perform arithmetic on a string value", text_arithmetic},
  {"attempt to compare number with userdata", compared},
  {"attempt to compare userdata with number", compared},
  {"bad argument #%d+ to 'unpack' %(table expected, got userdata%)", function()
    return "it is one tensor: a loop gets a batch's parts one by one, for inputs, labels in loader do"
  end},
  {"bad argument #%d+ to '[%w_?]+' %(number expected, got userdata%)", function()
    return "a tensor is no number: tensor:item() is"
  end},
  {"bad argument #1 to '(i?pairs)' %(table expected", iterated},
  {"attempt to call a %a+ value", continued_call},
  {"attempt to call %a+ '([%w_]+)' %(a table value%)", called_table},
  {"attempt to call %a+ '([%w_]+)' %(a userdata value%)", called_table},
  {"attempt to call a table value", called_table},
  {"attempt to call a userdata value", called_table},
  {"attempt to call a number value", called_number},
  {"expected a tensor, got nil", gave_nothing},
  {"a tensor has no field or method '([%w_]+)'", known_elsewhere},
  {"Accelerator has no field or method '([%w_]+)'", known_elsewhere},
}

-- for batch in loader do local inputs, labels = batch[1], batch[2]: the loop gets the batch's parts one by one, so that
-- `batch` is the first.
local function single_variable_at(at)
  for i = #at.lines, 1, -1 do
    local name, path = at.lines[i]:match "%f[%w_]for%s+([%a_][%w_]*)%s+in%s+([%a_][%w_%.]*)%s+do%f[^%w_]"
    if name and is_loader(resolve(at, path)) and C.is_tensor(at.value_of(name)) then
      for k = i, #at.lines do
        if at.lines[k]:find("%f[%w_]" .. name .. "%[%d%]") then
          return ("%s is the first part of each batch: write for inputs, labels in %s do"):format(name, path)
        end
      end
    end
  end
end

local function single_variable()
  for k = 1, 4 do
    local at = place.find(k)
    local hint = at and single_variable_at(at)
    if hint then return k == 1 and hint or ("line %d: %s"):format(#at.lines, hint) end
  end
end

-- The object whose method is called with a dot, anywhere in the line: its path and the method's name.
local function dot_call(at, wanted)
  for path, name, inside in at.line:gmatch "([%a_][%w_%.]*)%.([%a_][%w_]*)%s*%(()" do
    local value = resolve(at, path)
    local own = type(value) == "table" and (rawget(value, "_fields") or value)
    if (not wanted or name == wanted) and is_object(value) and at.line:match("^%s*([%w_%.]*)", inside) ~= path
      and type(field(value, name)) == "function" and not (own and rawget(own, name)) then
      return path, name
    end
  end
end

local function by_rules(at, message)
  for _, rule in ipairs(rules) do
    local from, _, first = message:find(rule[1])
    local hint = from and rule[2](at, first)
    if hint then return hint end
  end
end

local function dot_hint(at)
  local path, name = dot_call(at)
  return path and ("write %s:%s(...), with a colon"):format(path, name)
end

-- The call with a dot may be in a frame further out: a script's own method fails inside.
local function name_object(message, method)
  for k = 1, 3 do
    local at = place.find(k)
    local path = at and dot_call(at, method)
    if path then return (message:gsub("object:" .. method, path .. ":" .. method)) end
  end
end

-- The library of Python that a script requires: the places where it was searched are not the cause.
local function foreign_module(message)
  local first, name = message:match "^([^\n]-module '(%a+)[%w_%.]*' not found):\n"
  local hint = name and elsewhere.modules[name]
  return hint and ("%s (%s)"):format(first, hint)
end

local function explain(message)
  local foreign = foreign_module(message)
  if foreign then return foreign end
  local method = message:match "object:([%w_]+)%(%.%.%.%)"
  if method then return name_object(message, method) end
  local at = place.find(1)
  local hint = syntax.explain(message) or at and (single_variable() or by_rules(at, message) or dot_hint(at))
    or advice.explain(message)
  if not hint or message:find(hint, 1, true) then return nil end -- another process may have added it
  if message:find "has no field or method" then message = message:gsub(" %(did you mean '[%w_]+'%?%)", "", 1) end
  return ("%s (%s)"):format(message, hint)
end

--- Return the message with the remedy, where that is known.
function hints.add(message)
  local fine, explained = pcall(explain, message:sub(1, 1000)) -- a script's own words may be endless
  if not (fine and explained) then return message end
  return explained .. message:sub(1001)
end

return hints
