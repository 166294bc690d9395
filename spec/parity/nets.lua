--- The networks of scripts/fixtures/parity.py, by the names of its runs; each is called with "use dropout".
local accelhost = require "accelhost"
local nn, F = accelhost.nn, accelhost.nn.functional

local BasicNet = nn.Module:extend "BasicNet"

function BasicNet:init(dropout)
  self.conv1 = nn.Conv2d(1, 32, 3, 1)
  self.conv2 = nn.Conv2d(32, 64, 3, 1)
  self.dropout1 = nn.Dropout(dropout and 0.25 or 0)
  self.dropout2 = nn.Dropout(dropout and 0.5 or 0)
  self.fc1 = nn.Linear(9216, 128)
  self.fc2 = nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv1(x))
  x = F.relu(self.conv2(x))
  x = self.dropout1(F.max_pool2d(x, 2))
  x = F.relu(self.fc1(x:flatten(1)))
  return F.log_softmax(self.fc2(self.dropout2(x)), 1)
end

local Mlp = nn.Module:extend "Mlp"

function Mlp:init()
  self.fc1 = nn.Linear(784, 128)
  self.fc2 = nn.Linear(128, 10)
end

function Mlp:forward(x)
  return F.log_softmax(self.fc2(F.relu(self.fc1(x:flatten(1)))), 1)
end

return {basic = BasicNet, mlp = function() return Mlp() end}
