-- Training in mixed precision.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

-- y = 2 x + 3 + noise, as Accelerate's own check has it.
accelhost.manual_seed(1)
local x = accelhost.randn(64, 1)
local y = x * 2 + 3 + accelhost.randn(64, 1) * 0.1

local set = data.TensorDataset(x, y)

local function line()
  local model = nn.Linear(1, 1)
  accelhost.no_grad(function()
    model.weight:fill_(0)
    model.bias:fill_(0)
  end)
  return model
end

-- Three passes of one process over the batches of all, in the same precision.
local function train_alone(accelerator, model, loader)
  local weights = model:parameters()
  for _ = 1, 3 do
    for inputs, targets in loader do
      local loss = accelerator:autocast(function() return F.mse_loss(model(inputs), targets) end)
      for i, grad in ipairs(accelhost.autograd.grad(loss, weights)) do
        accelhost.no_grad(function() weights[i]:sub_(grad, {alpha = 0.1}) end)
      end
    end
  end
  return weights
end

local function check(precision, split_batches, order)
  local accelerator = accelhost.Accelerator {
    mixed_precision = precision,
    dataloader_config = {
      split_batches = split_batches, use_seedable_sampler = order == "seedable",
      data_seed = order == "seedable" and 5 or nil,
    },
    kwargs_handlers = precision == "fp16" and {accelhost.GradScalerKwargs {init_scale = 1024}} or nil,
  }
  local size = accelerator.num_processes
  local function batches(count, seed)
    accelhost.manual_seed(11) -- of which an order is drawn when a pass begins, where no seed makes it
    return data.DataLoader(set, {batch_size = count, shuffle = order ~= "sequential", seed = seed})
  end
  local model, alone = line(), line()
  local weights = train_alone(accelerator, alone, batches(8 * size, order == "seedable" and 5 or nil))
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  local loader = batches(split_batches and 8 * size or 8)
  model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
  local steps = 0
  for _ = 1, 3 do
    for inputs, targets in loader do
      accelerator:backward(F.mse_loss(model(inputs), targets))
      optimizer:step()
      assert(not optimizer.step_was_skipped)
      optimizer:zero_grad()
      steps = steps + 1
    end
  end
  assert(steps == 3 * 64 / 8 / size)
  for i, parameter in ipairs(model:parameters()) do
    local off = (parameter - weights[i]):abs():max():item()
    assert(off < (precision == "bf16" and 2e-2 or 2e-3), ("%s: parameter %d is off by %g"):format(precision, i, off))
    local all = accelerator:gather(parameter:detach():reshape(1))
    assert(parameter.dtype == "float32" and all:min():item() == all:max():item(), tostring(all))
  end
  if precision ~= "fp16" then return end

  -- One rank overflows: no rank steps, the scale is the same on all.
  local before = model.weight:item()
  local factor = accelerator.process_index == size - 1 and math.huge or 1
  accelerator:backward(F.mse_loss(model(x), y) * factor)
  optimizer:step()
  optimizer:zero_grad()
  assert(optimizer.step_was_skipped and accelerator.optimizer_step_was_skipped and model.weight:item() == before)
  assert(accelerator.scaler:get_scale() == 512)
  accelerator:backward(F.mse_loss(model(x), y))
  optimizer:step()
  assert(not optimizer.step_was_skipped and model.weight:item() ~= before)
end

local function check_all(precision)
  for _, order in ipairs {"sequential", "shuffled", "seedable"} do
    check(precision, false, order)
    check(precision, true, order)
  end
end

checks.it("has the losses of one process with all samples, in order, shuffled and seeded", function()
  check_all "no"
end)

checks.it("has them in bfloat16", function() check_all "bf16" end)

checks.it("has them in float16, and skips steps on all ranks together", function() check_all "fp16" end)

checks.finish()
