-- save_twice.lua DIR MODE HOW: "save" saves a state, changes the weights and saves again while $FAIL_ARMED is there;
-- "load" prints whether the old or the new weights are found. HOW: "named" or "automatic".
local accelhost = require "accelhost"
local dir, mode, how = arg[1], arg[2], arg[3]
local path = how == "named" and dir .. "/state" or nil
local accelerator = accelhost.Accelerator {
  project_config = {project_dir = dir, automatic_checkpoint_naming = true, total_limit = 1},
}
local net = accelerator:prepare(accelhost.nn.Linear(3, 3))

if mode == "load" then
  accelerator:load_state(path)
  print(net.bias[0]:item() == 7 and "new" or "old")
  return
end
accelerator:save_state(path)
accelhost.no_grad(function() net.bias:fill_(7) end)
local armed = os.getenv "FAIL_ARMED"
io.open(armed, "w"):close()
local fine, text = pcall(accelerator.save_state, accelerator, path)
os.remove(armed)
print(fine, text)
