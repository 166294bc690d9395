-- A short training run whose ranks all announce its phases, each after a barrier so that the lines are joined.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local seconds = tonumber(arg[1] or "0.04")

local accelerator = accelhost.Accelerator()
local function phase(name)
  accelerator:wait_for_everyone()
  print("phase " .. name)
  io.flush()
  return os.clock() + seconds
end

local until_then = phase "prepare"
accelhost.manual_seed(0)
local model, optimizer, loader
repeat
  model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
  optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
  local set = data.TensorDataset(accelhost.randn(64, 16), accelhost.randint(0, 4, {64}))
  loader = data.DataLoader(set, {batch_size = 8, shuffle = true})
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
until accelerator:reduce(accelhost.tensor(os.clock() < until_then), "max"):item() == false

until_then = phase "training"
repeat
  for x, y in loader do
    accelerator:backward(F.cross_entropy(model(x), y))
    optimizer:step()
    optimizer:zero_grad()
  end
until accelerator:reduce(accelhost.tensor(os.clock() < until_then), "max"):item() == false

until_then = phase "barrier"
repeat
  for _ = 1, 20 do accelerator:wait_for_everyone() end
until accelerator:reduce(accelhost.tensor(os.clock() < until_then), "max"):item() == false

until_then = phase "evaluation"
model:eval()
repeat
  accelhost.no_grad(function()
    for x, y in loader do accelerator:gather_for_metrics(model(x):argmax(1):eq(y)) end
  end)
until accelerator:reduce(accelhost.tensor(os.clock() < until_then), "max"):item() == false

phase "exit"
-- One after the other.
until_then = os.clock() + 0.004 * accelerator.process_index
repeat until os.clock() >= until_then
