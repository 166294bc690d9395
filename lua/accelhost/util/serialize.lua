--- Serialize Lua values for other processes as tensors of bytes: tensors, numbers, texts, booleans, nil and tables of
--- them. Code is not serialized, and received bytes are never run.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local serialize = {}

-- Kinds of the types that have one kind only, as C returns them: without a call from code that is compiled.
local scalar = {}
for _, value in ipairs {0, "", true} do scalar[type(value)] = C.codec.kind(value) end

--- Return the kind of a value that can be serialised (host/bind/format/pack.c): "scalar" (a number, text or boolean),
--- "tensor", or "table" for one without a metatable, whose items decide; nil for any other value. Keys must be scalars.
---@return "scalar"|"tensor"|"table"|nil
function serialize.kind(value) return scalar[type(value)] or C.codec.kind(value) end

--- Return a key as the end of a path: ".name", "[3]", '["two words"]'.
function serialize.key_text(key)
  if type(key) ~= "string" then return ("[%s]"):format(tostring(key)) end
  return key:find "^[%a_][%w_]*$" and "." .. key or ("[%q]"):format(key)
end

-- Raise the error of a value that cannot be serialised, by the refusal of C.codec.
local function refuse(what, name, refusal, reason)
  local value = refusal.value
  if not refusal.why then arguments.fail("%s: %s: %s", what, name, reason) end
  for i = #refusal, 1, -1 do name = name .. serialize.key_text(refusal[i]) end
  if C.is_tensor(value) and refusal.why == "" then
    arguments.fail("%s: %s: expected a tensor with values, got one on %s", what, name, value.device)
  end
  arguments.fail("%s: %s: %s cannot be serialized%s; expected tensors, numbers, texts, booleans and tables of them",
    what, name, arguments.describe(value), refusal.why)
end

--- Raise, naming the place, if a value cannot be serialized.
---@param name string how the value is called there
function serialize.check(what, name, value)
  local refusal = {}
  local fine, reason = C.codec.check(value, true, refusal)
  if not fine then refuse(what, name, refusal, reason) end
end

--- A value as bytes; a tensor is serialised without its history, from a device to the receiver's current one of that
--- type; a table that is referenced twice becomes two. Raises as `check` does.
---@param name string how the value is called there
---@return userdata # uint8 [n]
function serialize.pack(what, name, value)
  local refusal = {}
  local bytes, reason = C.codec.pack(value, true, refusal)
  return bytes or refuse(what, name, refusal, reason)
end

--- Return the value that was packed.
---@param bytes userdata uint8 [n], contiguous
function serialize.unpack(bytes) return C.codec.unpack(bytes) end

return serialize
