--- The globals that a function reads, from its bytecode and that of the functions in it.
local util = require "jit.util"

local code = {}

-- The operation that reads a global, whatever its number is in this LuaJIT.
local GLOBAL_GET = bit.band(util.funcbc(loadstring "return x", 1), 0xff)

local function gather(prototype, names)
  local info = util.funcinfo(prototype)
  for at = 1, info.bytecodes - 1 do
    local instruction = util.funcbc(prototype, at)
    if bit.band(instruction, 0xff) == GLOBAL_GET then
      names[util.funck(prototype, -bit.rshift(instruction, 16) - 1)] = true
    end
  end
  for at = 1, info.gcconsts do
    local constant = util.funck(prototype, -at)
    if type(constant) == "proto" then gather(constant, names) end
  end
end

--- The names of the globals that a function written in Lua reads by name, sorted.
function code.globals(fn)
  local names, list = {}, {}
  gather(fn, names)
  for name in pairs(names) do list[#list + 1] = name end
  table.sort(list)
  return list
end

return code
