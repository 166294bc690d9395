-- A job with sharded states that fails: sharding_fail.lua SHARDING WHEN. The last rank is killed before a step
-- ("kill"), behind stepping its share and before it has given it to the others ("within"), or at some moment of steps
-- that hardly do anything but exchange shares ("during"); or all but rank 0 leave out a step ("leave").
local accelhost = require "accelhost"
local ffi = require "ffi"
local nn, optim = accelhost.nn, accelhost.optim
ffi.cdef "int raise(int number);"

local sharding, when = arg[1], arg[2]
local accelerator = accelhost.Accelerator {sharding = sharding}
local width = when == "during" and 200000 or 50
local net = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters()))

-- The mappings of the job's memory in this process.
for line in io.lines "/proc/self/maps" do
  local file = line:match " (%d+) +/memfd:accelhost"
  if file then print("memory " .. file) end
end
io.stdout:flush()

-- Not by a shell, which does not start in a process with a preloaded sanitizer.
local function kill() ffi.C.raise(9) end
for step = 1, 3 do
  accelerator:backward(model(accelhost.ones(2, 4):to(accelerator.device)):sum())
  if step == 2 and accelerator.is_last_process then
    if when == "kill" then kill() end
    if when == "within" then optimizer:register_step_post_hook(kill) end
    if when == "during" then os.execute "(p=$PPID; sleep 0.2; kill -9 $p) > /dev/null 2>&1 &" end
  end
  if step ~= 2 or when ~= "leave" or accelerator.is_main_process then optimizer:step() end
  while step == 2 and when == "during" do optimizer:step() end
  optimizer:zero_grad()
end
print "trained"
