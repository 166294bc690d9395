--- The state of this process's random generators.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local random = {}

-- The devices whose generators this process may have drawn from.
local function devices()
  local default = C.device.get_default_device()
  return default == "cpu" and {"cpu"} or {"cpu", default}
end

--- The states, by device.
---@return table<string, userdata>
function random.capture()
  local states = {}
  for _, device in ipairs(devices()) do states[device] = C.random.get_rng_state(device) end
  return states
end

--- Go on from captured states.
---@param states table<string, userdata>
function random.restore(states)
  for _, device in ipairs(devices()) do
    if states[device] then C.random.set_rng_state(states[device]:clone(), device) end
  end
end

--- The state of Lua's math.random, as digits; nil where this LuaJIT does not tell it.
---@return string?
function random.capture_lua()
  local state = C.random.lua_state()
  return state and (state:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

--- Go on from it.
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
---@return boolean
function random.same(a, b)
  for device, state in pairs(a) do
    if not b[device] or not state:equal(b[device]) then return false end
  end
  return true
end

return random
