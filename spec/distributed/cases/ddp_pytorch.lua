-- The results of PyTorch's DistributedDataParallel in two processes (scripts/fixtures/ddp.py). Prints "ok".
local accelhost = require "accelhost"
local nn, optim, dist = accelhost.nn, accelhost.optim, accelhost.distributed
local hooks = dist.algorithms.ddp_comm_hooks
local expected = require("spec.support.fixtures").load "ddp"
local IN, OUT, BATCH = 6, 5, 3

dist.init_process_group {timeout = 50}
local rank = dist.get_rank()

local function sines(shape, start, dtype)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return (accelhost.arange(count, {dtype = "float64"}) + start):sin():reshape(shape):to(dtype or "float64")
end

local function new_model(dtype, bias)
  local model = nn.Linear(IN, OUT, {bias = bias ~= false, dtype = dtype or "float64"})
  accelhost.no_grad(function()
    model.weight:copy_(sines({OUT, IN}, 1))
    if bias ~= false then model.bias:copy_(sines({OUT}, 2)) end
  end)
  return model
end

local function loss_of(model, step, dtype)
  return (model(sines({BATCH, IN}, 100 * step + 10 * rank, dtype)) ^ 2):sum()
end

local function check(what, tensor, values, tolerance)
  local difference = (tensor:detach():to "float64":reshape(-1) - accelhost.tensor(values, {dtype = "float64"})):abs()
  assert(difference:max():item() <= (tolerance or 1e-12), ("%s: differs by %g"):format(what, difference:max():item()))
end

local ddp = dist.DistributedDataParallel(new_model())
local optimizer = optim.SGD(ddp:parameters(), {lr = 0.01, momentum = 0.9})
for step = 0, 3 do
  optimizer:zero_grad()
  ddp:no_sync(function() loss_of(ddp, 10 + step):backward() end)
  loss_of(ddp, step):backward()
  optimizer:step()
end
check("weight", ddp.module.weight, expected.plain.weight)
check("bias", ddp.module.bias, expected.plain.bias)
check("gradient", ddp.module.weight.grad, expected.plain.gradient)

for name, by_all in pairs {join = true, join_by_active = false} do
  ddp = dist.DistributedDataParallel(new_model())
  optimizer = optim.SGD(ddp:parameters(), {lr = 0.01})
  ddp:join(function()
    for step = 0, 1 + 3 * rank do
      optimizer:zero_grad()
      loss_of(ddp, step):backward()
      optimizer:step()
    end
  end, {divide_by_initial_world_size = by_all})
  check(name, ddp.module.weight, expected[name].weight)
  check(name, ddp.module.bias, expected[name].bias)
end

for name, hook in pairs {
  fp16 = hooks.default_hooks.fp16_compress_hook, bf16 = hooks.default_hooks.bf16_compress_hook,
} do
  ddp = dist.DistributedDataParallel(new_model "float32")
  ddp:register_comm_hook(nil, hook)
  loss_of(ddp, 1, "float32"):backward()
  -- The same bits where the products of float32 have them; else a half may round the other way.
  local tolerance = name == "fp16" and 0.01 or 0.07
  check(name, ddp.module.weight.grad, expected[name].weight, tolerance)
  check(name, ddp.module.bias.grad, expected[name].bias, tolerance)
end

local function check_steps(name, trained)
  for step = 0, 5 do
    trained:zero_grad()
    loss_of(trained, step):backward()
    local gradients = {}
    for i, parameter in ipairs(trained:parameters()) do gradients[i] = parameter.grad:reshape(-1) end
    check(name .. " step " .. step, accelhost.cat(gradients, 0), expected[name][step + 1], 1e-9)
  end
end

for name, options in pairs {
  power_1 = {matrix_approximation_rank = 1}, power_2 = {matrix_approximation_rank = 2},
  power_2_plain = {matrix_approximation_rank = 2, use_error_feedback = false},
} do
  options.start_powerSGD_iter, options.min_compression_rate = 2, 0
  local columns = options.matrix_approximation_rank
  local state = hooks.powerSGD_hook.PowerSGDState(options)
  state.ps[0], state.qs[0] = accelhost.zeros(OUT * columns, {dtype = "float64"}), sines({IN * columns}, 0.5)
  ddp = dist.DistributedDataParallel(new_model(nil, false))
  ddp:register_comm_hook(state, hooks.powerSGD_hook.powerSGD_hook)
  check_steps(name, ddp)
end

for name, options in pairs {
  batched_1 = {matrix_approximation_rank = 1},
  batched_2_plain = {matrix_approximation_rank = 2, use_error_feedback = false},
} do
  options.start_powerSGD_iter = 2
  local columns = options.matrix_approximation_rank
  local state = hooks.powerSGD_hook.PowerSGDState(options)
  state.ps[0], state.qs[0] = accelhost.zeros(6 * columns, {dtype = "float64"}), sines({6 * columns}, 0.5)
  ddp = dist.DistributedDataParallel(new_model())
  ddp:register_comm_hook(state, hooks.powerSGD_hook.batched_powerSGD_hook)
  check_steps(name, ddp)
end
print "ok"
