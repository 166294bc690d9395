--- Values as the prompt shows them: tensors and modules as they print, texts quoted, tables sorted and bounded (depth,
--- items, width), functions with their place.
local C = require "accelhost._C"
local columns_of = require("accelhost.util.columns").of

local limits = {depth = 4, items = 40, text = 2000}

local show

local controls = {["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\0"] = "\\0", ["\27"] = "\\27", ["\127"] = "\\127"}

local function quoted(text)
  local rest = #text - limits.text
  if rest > 0 then text = text:sub(1, limits.text) end
  local shown = text:gsub('[\\"]', "\\%0"):gsub("[%c]", function(byte)
    return controls[byte] or ("\\%d"):format(byte:byte())
  end)
  return ('"%s"%s'):format(shown, rest > 0 and (" ... (%d more bytes)"):format(rest) or "")
end

local function function_text(value)
  local name, arguments = C.system.signature(value)
  if name then return ("function %s(%s)"):format(name, arguments) end
  local info = debug.getinfo(value, "S")
  if info.source:find "util/arguments%.lua$" then
    info = debug.getinfo(require("accelhost.docs.signature").unguarded(value), "S")
  end
  if info.linedefined < 0 then return "function (built in)" end
  return ("function (%s:%d)"):format(info.short_src, info.linedefined)
end

-- Return the text of the value's __tostring, or a remark that it failed; nil without one.
local function own_text(value)
  local meta = debug.getmetatable(value)
  local teller = type(meta) == "table" and rawget(meta, "__tostring")
  if not teller then return nil end
  local fine, text = pcall(tostring, value)
  if fine and type(text) == "string" then return text end
  return ("%s (its __tostring failed)"):format(type(value))
end

local order = {string = 1, number = 2, boolean = 3}

-- Names, numbers, then the rest.
local function less(a, b)
  local left, right = order[type(a)] or 4, order[type(b)] or 4
  if left ~= right then return left < right end
  return left < 3 and a < b
end

local function array_length(value)
  local count = 0
  while rawget(value, count + 1) ~= nil do count = count + 1 end
  return count
end

-- The keys that are no positions of the list, sorted.
local function named_keys(value, count)
  local keys = {}
  for key in next, value do
    if not (type(key) == "number" and key >= 1 and key <= count and key % 1 == 0) then keys[#keys + 1] = key end
  end
  table.sort(keys, less)
  return keys
end

local function key_text(key, seen)
  if type(key) == "string" and key:find "^[%a_][%w_]*$" then return key end
  return "[" .. show(key, 0, math.huge, seen) .. "]"
end

-- In one line if it fits; else short items in lines as full as they can be, and an item a line after a long one.
local function joined(parts, indent, width)
  local line = "{" .. table.concat(parts, ", ") .. "}"
  if not line:find "\n" and indent + columns_of(line) <= width then return line end
  local rows, used = {}, math.huge
  for i, part in ipairs(parts) do
    if i < #parts then part = part .. "," end
    local columns = part:find "\n" and math.huge or columns_of(part)
    if columns <= 24 and indent + 2 + used + 1 + columns <= width then
      rows[#rows], used = rows[#rows] .. " " .. part, used + 1 + columns
    else
      rows[#rows + 1], used = part, columns <= 24 and columns or math.huge
    end
  end
  local inner = "\n" .. (" "):rep(indent + 2)
  return "{" .. inner .. table.concat(rows, inner) .. "\n" .. (" "):rep(indent) .. "}"
end

local function table_text(value, depth, width, seen, indent)
  if next(value) == nil then return "{}" end
  if depth == 0 or seen[value] then return "{...}" end
  seen[value] = true
  local parts, count = {}, array_length(value)
  local function put(head, item)
    local text = show(item, depth - 1, width, seen, indent + 2)
    -- A value of several lines, a tensor or a module, continues below its first line.
    if text:find "\n" and own_text(item) then
      text = text:gsub("\n", "\n" .. (" "):rep(indent + 2 + columns_of(head)))
    end
    parts[#parts + 1] = head .. text
  end
  for i = 1, math.min(count, limits.items) do put("", rawget(value, i)) end
  if count > limits.items then parts[#parts + 1] = ("... (%d more)"):format(count - limits.items) end
  local keys = named_keys(value, count)
  for i = 1, math.min(#keys, limits.items) do
    put(key_text(keys[i], seen) .. " = ", rawget(value, keys[i]))
  end
  if #keys > limits.items then parts[#parts + 1] = ("... (%d more)"):format(#keys - limits.items) end
  seen[value] = nil
  return joined(parts, indent, width)
end

function show(value, depth, width, seen, indent)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "function" then return function_text(value) end
  if kind == "table" then return own_text(value) or table_text(value, depth, width, seen, indent or 0) end
  return own_text(value) or tostring(value)
end

--- The text of a value.
---@param width? integer columns of the terminal, 80
---@return string
return function(value, width)
  return show(value, limits.depth, width or 80, {}, 0)
end
