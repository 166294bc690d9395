-- Accumulation windows against one process that sees every batch; prints "ok" at the end.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local rank, steps = accelhost.Accelerator().process_index, 2

local near = checks.near

local function linear(...) return nn.Linear(...):double() end
local function randn(...) return accelhost.randn(...):double() end

-- A generator and a critic alternate, two micro-steps each: neither counts the other's backwards.
local function players()
  accelhost.manual_seed(5)
  local generator, critic = linear(3, 4), linear(4, 1)
  return generator, critic, optim.SGD(generator:parameters(), {lr = 0.1}), optim.SGD(critic:parameters(), {lr = 0.1})
end

local accelerator = accelhost.Accelerator {gradient_accumulation_steps = steps}
local generator, critic, steps_generator, steps_critic = accelerator:prepare(players())
local one_generator, one_critic, one_steps_generator, one_steps_critic = players()
accelhost.manual_seed(50 + rank)
local window = {}
for _ = 1, 2 * steps do
  local noise, real = randn(2, 3), randn(2, 4)
  accelerator:accumulate(generator, critic, function(first, second)
    assert(first == generator and second == critic)
    accelerator:backward((critic(real) - critic(generator(noise):detach())):mean())
    steps_critic:step()
    steps_critic:zero_grad()
    accelerator:backward(critic(generator(noise)):mean())
    steps_generator:step()
    steps_generator:zero_grad()
    steps_critic:zero_grad()
  end)
  window[#window + 1] = {accelerator:gather(noise, real)}
  if accelerator.sync_gradients then
    for i, batch in ipairs(window) do
      local loss = one_critic(batch[2]) - one_critic(one_generator(batch[1]):detach())
      accelhost.autograd.backward(loss:mean() / steps)
      if i == steps then
        one_steps_critic:step()
        one_steps_critic:zero_grad()
      end
      accelhost.autograd.backward(one_critic(one_generator(batch[1])):mean() / steps)
    end
    one_steps_generator:step()
    one_steps_generator:zero_grad()
    one_steps_critic:zero_grad()
    window = {}
  end
end
near(one_generator.weight, generator.weight, "generator")
near(one_critic.weight, critic.weight, "critic")

-- Two losses of one micro-step are two parts of its sum, not two micro-steps.
accelerator = accelhost.Accelerator {gradient_accumulation_steps = steps}
local model, reference = accelerator:prepare(linear(4, 1)), linear(4, 1)
reference:load_state_dict(model:state_dict())
local total = 0
for _ = 1, steps do
  local x, y = randn(2, 4), randn(2, 4)
  accelerator:accumulate(model)
  accelerator:backward(model(x):pow(2):mean())
  accelerator:backward(model(y):mean())
  local all_x, all_y = accelerator:gather(x, y)
  total = total + reference(all_x):pow(2):mean() + reference(all_y):mean()
end
accelhost.autograd.backward(total / steps)
near(reference.weight.grad, model.weight.grad, "two losses")

-- Gradients that were dropped leave no weight behind.
model:zero_grad()
reference:zero_grad()
local x = randn(2, 4)
accelerator:no_sync(model, function() accelerator:backward(model(x):sum()) end)
model:zero_grad()
accelerator:accumulate(model)
accelerator:accumulate(model)
accelerator:backward(model(x):mean())
reference(accelerator:gather(x)):mean():backward()
near(reference.weight.grad, model.weight.grad, "after dropped gradients")

-- Weights of single backwards: each adds its mean over the ranks, whatever the gradients held before.
accelerator = accelhost.Accelerator()
accelerator:prepare(model)
model:zero_grad()
local rows = {2 + rank, 5}
for step = 1, 2 do
  local part = randn(rows[step], 4)
  accelerator:backward(model(part):mean(), {weight = rows[step]})
  if step == 1 then reference:zero_grad() end
  reference(accelerator:gather(part)):mean():backward()
end
near(reference.weight.grad, model.weight.grad, "two weighted backwards")

-- In a window, earlier values of the gradients are not scaled.
local held = model.weight.grad:clone()
accelerator.gradient_accumulation_steps = 2
reference:zero_grad()
for _ = 1, 2 do
  local part = randn(2, 4)
  accelerator:accumulate(model)
  accelerator:backward(model(part):mean())
  local mean = reference(accelerator:gather(part)):mean() / 2
  mean:backward()
end
near(held + reference.weight.grad, model.weight.grad, "gradients from before the window")

-- A pass left by break inside a window: the next one begins a new window.
local loader = data.DataLoader(data.TensorDataset(accelhost.ones(5 * accelerator.num_processes, 4)))
accelerator = accelhost.Accelerator {gradient_accumulation_steps = 4}
model, loader = accelerator:prepare(linear(4, 1), loader)
for batch in loader do -- luacheck: ignore 512
  accelerator:accumulate(model)
  accelerator:backward(model(batch:double()):sum() * 100)
  break
end
local pattern = ""
for batch in loader do
  accelerator:accumulate(model)
  accelerator:backward(model(batch:double()):sum())
  pattern = pattern .. (accelerator.sync_gradients and "1" or "0")
  if accelerator.sync_gradients then near(accelhost.ones(1, 4):double(), model.weight.grad, "the new window") end
  if accelerator.sync_gradients then model:zero_grad() end
end
assert(pattern == "00011", pattern)

-- A model that changed is accepted by prepare again.
accelerator = accelhost.Accelerator()
model = accelerator:prepare(nn.Sequential(linear(2, 2)))
model.extra = linear(2, 1)
local input = accelhost.full({1, 2}, rank + 1):double()
assert(not pcall(accelerator.backward, accelerator, model.extra(model[1](input)):sum()))
accelerator:prepare(model)
accelerator:backward(model.extra(input):sum() + model[1](input):sum())
near(accelhost.full({1, 2}, (accelerator.num_processes + 1) / 2):double(), model.extra.weight.grad, "the new layer")

accelerator:wait_for_everyone()
print("ok")
