--- The state of this process's random generators.
local C = require "accelhost._C"

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
