-- Models prepared with communication hooks, compared with the same model without.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

-- The weights after some steps of batches of unequal sizes.
local function train(kwargs)
  accelhost.manual_seed(0)
  local accelerator = accelhost.Accelerator {
    gradient_accumulation_steps = 2, kwargs_handlers = {accelhost.DistributedDataParallelKwargs(kwargs)},
  }
  local rank = accelerator.process_index
  local model = nn.Linear(64, 48)
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  model, optimizer = accelerator:prepare(model, optimizer)
  for step = 1, 8 do
    accelhost.manual_seed(100 * step + rank)
    local x, y = accelhost.randn(2 + rank, 64), accelhost.randn(2 + rank, 48)
    accelerator:accumulate(model, function()
      accelerator:backward(F.mse_loss(model(x), y), {weight = 2 + rank})
      optimizer:step()
      optimizer:zero_grad()
    end)
  end
  local weight = model.weight:detach():clone()
  local all = accelerator:gather(weight:unsqueeze(0))
  for r = 1, accelerator.num_processes - 1 do assert(all[r]:equal(all[0]), "the processes differ") end
  accelerator:free_memory()
  return weight
end

local plain = train {}

local function near(kwargs, far)
  local difference = (train(kwargs) - plain):abs():max():item()
  assert(difference > 0 and difference < far, ("off by %g"):format(difference))
end

checks.it("halve the bytes and keep the weighted mean", function()
  near({comm_hook = "fp16"}, 1e-4)
  near({comm_hook = "bf16"}, 1e-3)
end)

checks.it("send thin matrices with PowerSGD", function()
  near({comm_hook = "power_sgd", comm_state_option = {start_powerSGD_iter = 2, matrix_approximation_rank = 8}}, 0.1)
end)

checks.it("send a bucket as one square with PowerSGD", function()
  local options = {start_powerSGD_iter = 2, matrix_approximation_rank = 16}
  near({comm_hook = "batched_power_sgd", comm_state_option = options}, 0.1)
  -- Of full rank nothing is missed.
  options = {start_powerSGD_iter = 2, matrix_approximation_rank = 64, orthogonalization_epsilon = 1e-12}
  near({comm_hook = "batched_power_sgd", comm_state_option = options}, 1e-4)
end)

checks.it("may be wrapped", function()
  near({comm_hook = "power_sgd", comm_wrapper = "fp16"}, 1e-4)
end)

checks.finish()
