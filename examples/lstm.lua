-- Forecasts a series with an LSTM: it reads a part of a noisy wave and predicts the continuation.
--
--   accelhost examples/lstm.lua
--   accelhost launch --num_processes 2 examples/lstm.lua
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains an LSTM on waves.",
  {"epochs", 5, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 32, "waves per process and step", integer = true, minimum = 1},
  {"train_size", 2000, "number of waves", integer = true, minimum = 1},
  {"hidden", 48, "width of the LSTM", integer = true, minimum = 1},
  {"layers", 2, "LSTMs on top of each other", integer = true, minimum = 1},
  {"ahead", 20, "values to forecast", integer = true, minimum = 1},
  {"lr", 3e-3, "learning rate"},
  {"seed", 1, "seed of weights, order and waves", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size, args.hidden, args.lr = 4, 640, 24, 0.01 end

--- (count, length, 1): sums of two waves of random speed and phase, and a little noise.
local function waves(count, length)
  local time = accelhost.arange(length):float():view(1, -1)
  local speed, phase = accelhost.rand {count, 2} * 0.3 + 0.1, accelhost.rand {count, 2} * 6.283
  local y = (time * speed[{{}, {0, 1}}] + phase[{{}, {0, 1}}]):sin()
    + (time * speed[{{}, {1, 2}}] + phase[{{}, {1, 2}}]):sin() * 0.5
  return (y + accelhost.randn_like(y) * 0.05):unsqueeze(-1)
end

local Forecaster = nn.Module:extend "Forecaster"

function Forecaster:init()
  self.lstm = nn.LSTM(1, args.hidden, {num_layers = args.layers, batch_first = true})
  self.head = nn.Linear(args.hidden, 1)
end

--- The next value at every place of x (batch, time, 1), and the state to continue from.
function Forecaster:forward(x, state)
  local h, after = self.lstm(x, state)
  return self.head(h), after
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local length = 60
local train_set = data.TensorDataset(waves(args.train_size, length))
local test = waves(200, length + args.ahead)

local model = Forecaster()
local optimizer = optim.Adam(model:parameters(), {lr = args.lr})
local loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

for epoch = 1, args.epochs do
  for wave in accelhost.progress(loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    local forecast = model(wave:narrow(1, 0, length - 1))
    accelerator:backward(F.mse_loss(forecast, wave:narrow(1, 1, length - 1)))
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
  end
end

-- One value at a time, each read back in.
model:eval()
local forecasts = accelhost.no_grad(function()
  local out, state = model(test:narrow(1, 0, length))
  local values = {out:narrow(1, length - 1, 1)}
  while #values < args.ahead do values[#values + 1], state = model(values[#values], state) end
  return accelhost.cat(values, 1)
end)
local truth = test:narrow(1, length, args.ahead)
accelerator:print(("Error: %.4f (no forecast: %.4f)"):format(F.mse_loss(forecasts, truth):item(),
  truth:square():mean():item()))
