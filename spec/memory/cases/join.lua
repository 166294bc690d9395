-- Two ranks in one backward: rank 0 passes the limit of garbage at its start, where rank 1 has made `arg[1]` MiB since
-- its last collection. Prints whether rank 1 collected too while it waited for the average.
local accelhost = require "accelhost"
local accelerator = accelhost.Accelerator()
local model = accelerator:prepare(accelhost.nn.Linear(4, 4))
local first = accelerator.is_main_process

local kept = {} -- rank 0's: its collection lasts longer than a slice of the other's sleep
for i = 1, first and 2500000 or 1 do kept[i] = {i} end

local function step()
  accelerator:backward(model(accelhost.ones(2, 4)):sum())
end
step()
collectgarbage()
collectgarbage "stop" -- LuaJIT's own pace is no part of this

-- In three parts of less than 8 MiB: more in one step is collected where the process would grow.
local dead = setmetatable({}, {__mode = "v"})
for turn = 1, 3 do
  dead[turn] = accelhost.zeros(1)
  for _ = 1, first and 7 or tonumber(arg[1]) / 3 do accelhost.empty(1048576 / 4) end
  step()
end
assert(#kept > 0)
if not first then print(dead[1] and "kept" or "collected") end
