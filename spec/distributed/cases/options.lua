-- Describe the behaviour of an accelerator with given options in this job, as text. usage: options.lua "{split_batches
-- = true}"
local accelhost = require "accelhost"
local averaging = require "accelhost.averaging"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local given = loadstring("local accelhost = require 'accelhost' return " .. arg[1])()
local accelerator = accelhost.Accelerator(given)
local seen = {}
local function see(...) seen[#seen + 1] = table.concat({...}, " ") end

local Moved = nn.Linear:extend "Moved"
function Moved:to(target)
  see("moved to", target.device)
  return nn.Module.to(self, target)
end

accelhost.manual_seed(0)
local ranks = accelerator.num_processes
local model = Moved(64, 4096)
local optimizer = optim.SGD(model:parameters(), {lr = 1})
local scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
local set = data.TensorDataset(accelhost.ones(4 * ranks + 2 * ranks - 1, 64))
local loader
model, optimizer, scheduler, loader = accelerator:prepare(model, optimizer, scheduler,
  data.DataLoader(set, {batch_size = 2 * ranks}))
local handle = averaging.of(accelerator)[1]
see("buckets", #handle.reducer:stats().buckets)
if handle.shard then
  local pieces = accelerator:gather(accelhost.tensor(handle.shard:piece(model.weight).value:numel())):tolist()
  see("shares of", handle.shard.kind, unpack(pieces))
end
for batch in loader do
  accelerator:accumulate(model)
  local sizes = accelerator:gather(accelhost.tensor(#batch)):tolist()
  see("batches", table.concat(sizes, " "), accelerator.sync_gradients and "synchronises" or "waits")
  accelerator:backward(model(batch):mean(), {weight = #batch})
  optimizer:step()
  scheduler:step()
  optimizer:zero_grad()
  see("rate", optimizer.param_groups[1].lr)
end
see("files", accelerator.project_dir or "none", accelerator.logging_dir or "none", unpack(accelerator.log_with))
accelhost.manual_seed(accelerator.process_index)
for _ in accelerator:prepare(data.DataLoader(set, {batch_size = 2, shuffle = true})) do end
local drawn = accelerator:gather(accelhost.randn(1)):tolist()
see("ranks draw", drawn[1] == drawn[2] and "alike" or "apart")
accelerator:print(table.concat(seen, "; "))
