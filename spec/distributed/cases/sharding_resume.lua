-- A run that is saved by one number of processes and resumed by another: sharding_resume.lua save|load FOLDER
-- SHARDING [parts] ("full+cpu": with optimizer state on the host). Prints digests of the weights and of the optimizer's
-- whole state.
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local mode, folder, sharding, parts = arg[1], arg[2], arg[3], arg[4] == "parts"
accelhost.manual_seed(mode == "save" and 1 or 2)
local kind, device = sharding:match "^(%l+)%+?(%l*)$"
local accelerator = accelhost.Accelerator {sharding = kind,
  offload_optimizer_device = device ~= "" and device or "none"}
local net = nn.Sequential(nn.Linear(9, 101), nn.Tanh(), nn.Linear(101, 101), nn.Tanh(), nn.Linear(101, 1))
local model, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters(), {lr = 1e-2, amsgrad = true}))
if mode == "load" then
  accelerator:load_state(folder)
else
  for step = 1, 3 do
    accelhost.manual_seed(step)
    accelerator:backward(model(accelhost.randn(8, 9):to(accelerator.device)):square():mean())
    optimizer:step()
    optimizer:zero_grad()
  end
  local ones = accelhost.ones(8, 9):to(accelerator.device)
  if arg[5] == "pending" then accelerator:backward(model(ones):square():mean()) end
  accelerator:save_state(folder, {sharded = parts or nil})
end
local weights, state = accelhost.sha256(accelerator:get_state_dict(model)), optimizer:state_dict()
local sums = {}
for id = 0, #net:parameters() - 1 do
  for _, name in ipairs {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"} do
    sums[#sums + 1] = accelhost.sha256(state.state[id][name]:cpu())
  end
end
print("digests " .. weights .. " " .. table.concat(sums, " "))
