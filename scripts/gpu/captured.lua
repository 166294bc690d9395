--- Captured steps against eager ones, to the bit: 20 steps of an MNIST CNN, ResNet-18 and a GPT-2 with dropout, a
--- scheduler and clipping, in float32, in bfloat16 and, with a GradScaler, in float16.
--- usage: accelhost scripts/gpu/captured.lua [smoke] [NET...]      Exit status 1 when a bit differs.
local accelhost = require "accelhost"
local here = arg[0]:match "^(.*)/[^/]*$"
local nets = dofile(here .. "/../bench/gpu/nets.lua")
local optim = accelhost.optim

local smoke, chosen = false, {}
for _, word in ipairs(arg) do
  if word == "smoke" then smoke = true else chosen[#chosen + 1] = word end
end
if #chosen == 0 then chosen = {"mnist_cnn", "resnet18", "gpt2"} end
local STEPS, BATCH = smoke and 5 or 20, {mnist_cnn = 64, resnet18 = 32, gpt2 = 2}
accelhost.set_default_device "cuda"

-- The losses of a net's first steps, and the sum of its weights after them, as texts.
local function train(name, precision, compiled)
  accelhost.manual_seed(11)
  local accelerator = accelhost.Accelerator {mixed_precision = precision}
  local work = nets[name](BATCH[name], smoke, 0.1)
  local scheduler = optim.lr_scheduler.CosineAnnealingLR(work.optimizer, {T_max = STEPS})
  local model, optimizer
  model, optimizer, scheduler = accelerator:prepare(work.model, work.optimizer, scheduler)
  model:train()
  local function step()
    local loss = accelerator:autocast(work.loss)
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    return loss
  end
  if compiled then step = accelerator:compile(step) end
  local losses = {}
  for i = 1, STEPS do losses[i] = ("%.17g"):format(step():item()) end
  local sum = 0
  for _, parameter in ipairs(model:parameters()) do sum = sum + parameter:double():sum():item() end
  losses[STEPS + 1] = ("%.17g"):format(sum)
  return losses
end

local different = 0
for _, name in ipairs(chosen) do
  for _, precision in ipairs {"no", "bf16", "fp16"} do
    local fine, message = pcall(function()
      local eager, captured = train(name, precision, false), train(name, precision, true)
      local first
      for i = STEPS + 1, 1, -1 do first = eager[i] ~= captured[i] and i or first end
      print(("%-10s %-5s %s (%s ... %s)"):format(name, precision, not first and "the same bits in every step" or
        first > STEPS and "weights differ" or ("differs from step %d on: %s, captured %s"):format(first, eager[first],
        captured[first]), eager[1], eager[STEPS]))
      different = different + (first and 1 or 0)
    end)
    if not fine then
      different = different + 1
      print(("%-10s %-5s %s"):format(name, precision, tostring(message)))
    end
    io.stdout:flush()
    collectgarbage()
  end
end
print(("%d of %d differ"):format(different, 3 * #chosen))
os.exit(different == 0 and 0 or 1)
