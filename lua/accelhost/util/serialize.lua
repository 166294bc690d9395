--- Serialize Lua values for other processes as tensors of bytes: tensors, numbers, texts, booleans, nil and tables of
--- them. Code is not serialized, and received bytes are never run.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local serialize = {}

local DEEPEST = 90

--- Return the kind of a value that can be serialised: "scalar" (a number, text or boolean), "tensor", or "table" for
--- one without a metatable, whose items decide; nil for any other value. Keys must be scalars.
---@param value any
---@return "scalar"|"tensor"|"table"|nil
function serialize.kind(value)
  local kind = type(value)
  if kind == "number" or kind == "string" or kind == "boolean" then return "scalar" end
  if C.is_tensor(value) then return "tensor" end
  return kind == "table" and getmetatable(value) == nil and "table" or nil
end

--- Return a key as the end of a path: ".name", "[3]", '["two words"]'.
---@param key any
---@return string
function serialize.key_text(key)
  if type(key) ~= "string" then return ("[%s]"):format(tostring(key)) end
  return key:find "^[%a_][%w_]*$" and "." .. key or ("[%q]"):format(key)
end

local function refuse(what, path, value, why)
  arguments.fail("%s: %s: %s cannot be serialized%s; expected tensors, numbers, texts, booleans and tables of them",
    what, path, arguments.describe(value), why or "")
end

local function check(what, value, path, above, depth)
  local kind = serialize.kind(value)
  if kind == "scalar" or value == nil then return end
  if kind == "tensor" then
    if value.device == "meta" then
      arguments.fail("%s: %s: expected a tensor with values, got one on meta", what, path)
    end
    return
  end
  if not kind then refuse(what, path, value) end
  if above[value] then refuse(what, path, value, " (it holds itself)") end
  if depth > DEEPEST then refuse(what, path, value, (" (nested deeper than %d tables)"):format(DEEPEST)) end
  above[value] = true
  for key, item in next, value do
    if serialize.kind(key) ~= "scalar" then refuse(what, path, key, " as a key") end
    check(what, item, path .. serialize.key_text(key), above, depth + 1)
  end
  above[value] = nil
end

--- Raise, naming the place, if a value cannot be serialized.
---@param what string the function, for the message
---@param name string how the value is called there
---@param value any
function serialize.check(what, name, value)
  check(what, value, name, {}, 1)
end

--- A value as bytes; a tensor is serialised without its history, from a device to the receiver's current one of that
--- type; a table that is referenced twice becomes two.
---@param value any that serialize.check accepts
---@return userdata # uint8 [n]
function serialize.pack(value) return (assert(C.codec.pack(value, true))) end

--- Return the value that was packed.
---@param bytes userdata uint8 [n], contiguous
---@return any
function serialize.unpack(bytes) return C.codec.unpack(bytes) end

return serialize
