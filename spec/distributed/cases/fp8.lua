-- Scales of FP8: their amaxes are the largest of all ranks, so that the ranks quantise by the same scales.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn = accelhost.nn

local function train(options, accumulation)
  accelhost.manual_seed(1)
  local accelerator = accelhost.Accelerator {
    mixed_precision = "fp8", kwargs_handlers = {accelhost.TERecipeKwargs(options)},
    gradient_accumulation_steps = accumulation,
  }
  local net = accelerator:prepare(nn.Linear(16, 32))
  local rank = accelerator.process_index
  for step = 1, 2 do
    accelerator:accumulate(net, function()
      local x = accelhost.full({4, 16}, step + 2 * rank, {device = accelerator.device})
      accelerator:backward((net(x) * (1 + rank)):sum())
    end)
  end
  return accelerator, accelerator._precision.fp8.models[net]
end

checks.it("follow from the amaxes of all ranks", function()
  local accelerator, scales = train({amax_history_len = 2, amax_compute_algo = "max"})
  local last = accelerator.num_processes - 1
  checks.same(448 / (2 + 2 * last), scales.scale[0]:item())
  checks.same(57344 / (1 + last), scales.scale[2]:item())
end)

checks.it("follow from all micro-steps of a window", function()
  local accelerator, scales = train({}, 2)
  checks.same(448 / (2 + 2 * (accelerator.num_processes - 1)), scales.scale[0]:item())
  checks.same(0, scales.newest:abs():sum():item())
end)

checks.it("are the same with sharded states of the optimizer and gradients", function()
  local results = {}
  for i, sharding in ipairs {"none", "optimizer", "gradients"} do
    accelhost.manual_seed(1)
    local accelerator = accelhost.Accelerator {mixed_precision = "fp8", sharding = sharding}
    local net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    local optimizer = accelhost.optim.AdamW(net:parameters(), {lr = 0.01})
    net, optimizer = accelerator:prepare(net, optimizer)
    local losses = {}
    for step = 1, 4 do
      local x = accelhost.full({4, 16}, step + accelerator.process_index, {device = accelerator.device})
      local loss = net(x):pow(2):mean()
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      losses[step] = loss:item()
    end
    results[i] = {losses, accelerator._precision.fp8.models[net].scale:tolist()}
    accelerator:free_memory()
  end
  checks.same(results[1], results[2], "optimizer")
  checks.same(results[1], results[3], "gradients")
end)

checks.it("of uneven inputs are refused", function()
  local accelerator = train {}
  local fine, text = pcall(accelerator.join_uneven_inputs, accelerator, {}, function() end)
  assert(not fine and text:find("each update of the scales is a collective", 1, true), text)
end)

checks.finish()
