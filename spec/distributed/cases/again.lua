-- One accelerator that prepares again and again: objects that the script drops are forgotten, on every process alike.
local accelhost = require "accelhost"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data
local averaging = require "accelhost.averaging"

jit.off() -- compiled traces count as memory too
local accelerator = accelhost.accelerator
local set = data.TensorDataset(accelhost.ones(64, 4))

local function cycle(width)
  local model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
  local optimizer, loader
  model, optimizer, loader = accelerator:prepare(model, optim.AdamW(model:parameters()),
    data.DataLoader(set, {batch_size = 8}))
  for batch in loader do -- luacheck: ignore 512
    accelerator:backward(model(batch):sum())
    optimizer:step()
    optimizer:zero_grad()
    break
  end
  return model
end

local kept = cycle(3)
for i = 1, 20 do cycle(4 + i % 3) end
collectgarbage()
local before = collectgarbage "count"
for i = 1, 60 do cycle(4 + i % 3) end
collectgarbage()
local grown = collectgarbage "count" - before
assert(grown < 10, ("%.1f kB of Lua's memory in 60 cycles"):format(grown))
assert(#averaging.of(accelerator) <= 3, #averaging.of(accelerator) .. " models are remembered")

-- A part that is still referenced is still averaged, although its container may have been collected.
local first = kept[1]
kept = nil -- luacheck: ignore
cycle(5)
accelerator:backward((first(accelhost.ones(1, 4)) * (accelerator.process_index + 1)):sum())
local size = accelerator.num_processes
assert(first.bias.grad[0]:item() == (size + 1) / 2, "a part of a dropped container")

-- free_memory lets go of all; gradients stay, as ordinary ones.
local model = cycle(5)
accelerator:backward(model(accelhost.ones(1, 4)):sum())
local grad = model[1].weight.grad:clone()
local a, b, c = accelerator:free_memory(model, set, 3)
assert(a == nil and b == nil and c == nil)
assert(#averaging.of(accelerator) == 0)
assert((model[1].weight.grad - grad):abs():max():item() == 0)
accelerator:clear()
model = accelerator:prepare(model)
model:zero_grad()
accelerator:backward((model[2].bias * (accelerator.process_index + 1)):sum())
assert(model[2].bias.grad[0]:item() == (size + 1) / 2, "prepared once more")
print "ok"
