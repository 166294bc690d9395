--- Training with a communication hook: a 1024-2048-2048-10 MLP (6.3 million parameters) on batches of 64, SGD.
--
-- usage: accelhost launch --num_processes N hooks.lua HOOK STEPS      HOOK: none, fp16, bf16, power_sgd,
-- batched_power_sgd; rank 2, from the third step on
-- Rank 0 prints the median time of a step, of STEPS after 5 of warm-up.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now
local nn, F, optim, dist = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.distributed
local hooks = dist.algorithms.ddp_comm_hooks

local name, steps = arg[1], tonumber(arg[2])
dist.init_process_group "gloo"
accelhost.manual_seed(1)
local model = dist.DistributedDataParallel(nn.Sequential(
  nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)))
local optimizer = optim.SGD(model:parameters(), {lr = 1e-3})
local halves = {fp16 = hooks.default_hooks.fp16_compress_hook, bf16 = hooks.default_hooks.bf16_compress_hook}
local power = {power_sgd = "powerSGD_hook", batched_power_sgd = "batched_powerSGD_hook"}
if halves[name] then
  model:register_comm_hook(nil, halves[name])
elseif power[name] then
  local state = hooks.powerSGD_hook.PowerSGDState {matrix_approximation_rank = 2, start_powerSGD_iter = 2}
  model:register_comm_hook(state, hooks.powerSGD_hook[power[name]])
end

local x, y = accelhost.randn(64, 1024), accelhost.randint(0, 10, {64})
local times = {}
for step = -4, steps do
  local begin = now()
  optimizer:zero_grad()
  F.cross_entropy(model(x), y):backward()
  optimizer:step()
  if step > 0 then times[step] = now() - begin end
end
table.sort(times)
if dist.get_rank() == 0 then print("step_ms", times[math.floor(steps / 2) + 1] * 1e3) end
