-- The losses of a training with each `sharding` given: sharding_losses.lua SHARDING... ("full+cpu": with optimizer
-- state on the host). Rank 0 prints lines of losses, each the mean over the processes, for float64 SGD and for float32
-- AdamW.
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local ways = {
  {dtype = "float64", make = function(net) return optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9}) end},
  {dtype = "float32", make = function(net) return optim.AdamW(net:parameters(), {lr = 1e-2}) end},
}

for _, kind in ipairs(arg) do
  for _, way in ipairs(ways) do
    local sharding, device = kind:match "^(%l+)%+?(%l*)$"
    local accelerator = accelhost.Accelerator {sharding = sharding,
      offload_optimizer_device = device ~= "" and device or "none"}
    accelhost.manual_seed(3)
    local net = nn.Sequential(nn.Linear(7, 67), nn.Tanh(), nn.Linear(67, 67), nn.Tanh(), nn.Linear(67, 1)):to(way.dtype)
    local model, optimizer = accelerator:prepare(net, way.make(net))
    local losses = {}
    for step = 1, 6 do
      accelhost.manual_seed(100 * step + accelerator.process_index)
      local loss = (model(accelhost.randn(5, 7):to(way.dtype):to(accelerator.device)) - 1):square():mean()
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      losses[step] = ("%.17g"):format(accelerator:reduce(loss:detach():double(), "mean"):item())
    end
    accelerator:print(("%s %s: %s"):format(kind, way.dtype, table.concat(losses, " ")))
    accelerator:free_memory()
  end
end
