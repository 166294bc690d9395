--- Lua values that go from process to process, as tensors of bytes: tensors, numbers, texts, booleans, nil and tables
--- of them. No code travels, and nothing that arrives is run.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local travel = {}

local DEEPEST = 90

local function path_of(path, key)
  if type(key) == "string" and key:match "^[%a_][%w_]*$" then return path .. "." .. key end
  return ("%s[%s]"):format(path, type(key) == "string" and ("%q"):format(key) or tostring(key))
end

local function refuse(what, path, value, why)
  arguments.fail("%s: %s: %s cannot travel%s; expected tensors, numbers, texts, booleans and tables of them", what,
    path, arguments.describe(value), why or "")
end

local function check(what, value, path, above, depth)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" or kind == "number" or kind == "string" then return end
  if C.is_tensor(value) then
    if value.device == "meta" then
      arguments.fail("%s: %s: expected a tensor with values, got one on meta", what, path)
    end
    return
  end
  if kind ~= "table" or getmetatable(value) ~= nil then refuse(what, path, value) end
  if above[value] then refuse(what, path, value, " (it holds itself)") end
  if depth > DEEPEST then refuse(what, path, value, (" (nested deeper than %d tables)"):format(DEEPEST)) end
  above[value] = true
  for key, item in next, value do
    local name = path_of(path, key)
    if type(key) ~= "string" and type(key) ~= "number" and type(key) ~= "boolean" then
      refuse(what, path, key, " as a key")
    end
    check(what, item, name, above, depth + 1)
  end
  above[value] = nil
end

--- Raise, naming the place, when a value cannot travel.
---@param what string the function, for the message
---@param name string how the value is called there
---@param value any
function travel.check(what, name, value)
  check(what, value, name, {}, 1)
end

--- A value as bytes; a tensor is serialised without its history, from a device to the receiver's current one of that
--- type; a table that is referenced twice becomes two.
---@param value any that travel.check lets pass
---@return userdata # uint8 [n]
function travel.pack(value) return (assert(C.codec.pack(value, true))) end

--- What was packed.
---@param bytes userdata uint8 [n], contiguous
---@return any
function travel.unpack(bytes) return C.codec.unpack(bytes) end

return travel
