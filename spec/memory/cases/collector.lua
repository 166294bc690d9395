-- usage: collector.lua NET: prints the peak of the live memory in steps of one size, and the peak where Lua's collector
-- runs after each op, so that no dropped tensor is alive.
local accelhost = require "accelhost"
local system = require("accelhost._C").system
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local function layers(activation)
  local list = {}
  for _ = 1, 6 do
    list[#list + 1] = nn.Linear(512, 512)
    list[#list + 1] = activation()
  end
  return nn.Sequential(list)
end

local Elementwise = nn.Module:extend "Elementwise"
function Elementwise:init() self.linear = nn.Linear(512, 512) end
function Elementwise:forward(x)
  local y = self.linear(x)
  for _ = 1, 6 do y = (y * 0.5 + x):tanh() - y:sigmoid() end
  return y
end

accelhost.manual_seed(1)
local losses = {} -- tensors, as scripts keep them to print means
local nets = {
  training = {layers(nn.GELU)},
  evaluation = {layers(nn.ReLU), evaluates = true},
  elementwise = {Elementwise()},
}
local net = nets[arg[1]]
local optimizer = optim.SGD(net[1]:parameters(), {lr = 1e-3})
local x, labels = accelhost.randn(4096, 512), accelhost.zeros({4096}, {dtype = "int64"})

accelhost.set_grad_enabled(not net.evaluates)
local function step()
  local output = net[1](x)
  local loss = F.cross_entropy(output, labels)
  losses[#losses + 1] = loss
  if net.evaluates then return end
  loss:backward()
  optimizer:step()
  optimizer:zero_grad()
end

local function peak_of(steps)
  collectgarbage()
  collectgarbage()
  system.empty_cache()
  local prof = accelhost.profiler.profile({profile_memory = true}, function()
    for _ = 1, steps do step() end
  end)
  local total = prof:memory_table():match "total%s+([%d.]+) MB"
  return tonumber(total)
end

step()
print("peak", peak_of(4))
system.collect_stress(true)
print("live", peak_of(2))
