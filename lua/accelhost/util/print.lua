--- `print` that shows the contents of plain tables, such as a tensor's shape, instead of its address.
local plain_print, tostring, type, getmetatable = print, tostring, type, getmetatable

local methods = require("accelhost._C").methods

local limits = {depth = 3, items = 100}

local text_of

local function is_plain(value)
  return type(value) == "table" and getmetatable(value) == nil
end

local function quoted(value, depth, seen)
  if type(value) == "string" then return ("%q"):format(value) end
  return text_of(value, depth, seen)
end

local function table_text(value, depth, seen)
  if depth == 0 or seen[value] then return "{...}" end
  seen[value] = true
  local parts, count, keys = {}, #value, {}
  for i = 1, math.min(count, limits.items) do parts[i] = quoted(value[i], depth - 1, seen) end
  for key in next, value do
    if not (type(key) == "number" and key >= 1 and key <= count and key % 1 == 0) then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "string" or type(a) == "number") then return a < b end
    return tostring(a) < tostring(b)
  end)
  for i = 1, math.min(#keys, limits.items) do
    local key = keys[i]
    local name = type(key) == "string" and key:find "^[%a_][%w_]*$" and key or "[" .. quoted(key, 0, seen) .. "]"
    parts[#parts + 1] = name .. " = " .. quoted(value[key], depth - 1, seen)
  end
  if count > limits.items or #keys > limits.items then parts[#parts + 1] = "..." end
  seen[value] = nil
  return "{" .. table.concat(parts, ", ") .. "}"
end

function text_of(value, depth, seen)
  if is_plain(value) then return table_text(value, depth, seen) end
  return tostring(value)
end

-- A tensor's method that was printed, not called.
local function method_text(value)
  for name, method in next, methods do
    if method == value then return ("method %s of tensors (x:%s() calls it)"):format(name, name) end
  end
  return tostring(value)
end

return function(...)
  local count, values = select("#", ...), {...}
  for i = 1, count do
    if type(values[i]) == "function" then values[i] = method_text(values[i]) end
    if is_plain(values[i]) then values[i] = text_of(values[i], limits.depth, {}) end
  end
  return plain_print(unpack(values, 1, count))
end
