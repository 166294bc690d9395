--- The state of this process's random generators.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local random = {}

-- Is this device here?
local function is_here(device)
  local kind, index = device:match "^(%a+):?(%d*)$"
  return C.device.device_count(kind) > (tonumber(index) or 0)
end

--- The states, by device, of all devices that this process has used.
---@return table<string, userdata>
function random.capture()
  local states = {}
  for _, device in ipairs(C.device.opened()) do states[device] = C.random.get_rng_state(device) end
  return states
end

--- Restore captured states, on the devices that are here.
---@param states table<string, userdata>
function random.restore(states)
  for _, device in ipairs(arguments.sorted_keys(states)) do
    if is_here(device) then C.random.set_rng_state(states[device]:clone(), device) end
  end
end

--- The state of Lua's math.random, as digits; nil where this LuaJIT does not expose it.
---@return string?
function random.capture_lua()
  local state = C.random.lua_state()
  return state and (state:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

--- Restore the state of Lua's generator.
---@param digits string
function random.restore_lua(digits)
  local state = digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end)
  if not C.random.set_lua_state(state) then
    arguments.fail("load_state: the state of math.random is not one of this program's LuaJIT")
  end
end

--- Are the generators of two processes in the same state?
---@param a table<string, userdata>
---@param b table<string, userdata>
function random.same(a, b)
  for device, state in pairs(a) do
    if not b[device] or not state:equal(b[device]) then return false end
  end
  return true
end

return random
