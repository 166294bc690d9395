--- One run of a parity fixture, as a script of one or more ranks: prints each step's global mean loss, then the sum of
-- all weights and a checksum of their bits on all ranks. usage: train.lua FIXTURE RUN STEPS [folder of MNIST]
local accelhost = require "accelhost"
local F, optim, data = accelhost.nn.functional, accelhost.optim, accelhost.data

local fixture = require("spec.support.fixtures").load(arg[1])
local run
for _, candidate in ipairs(fixture.runs) do
  if candidate.name == arg[2] then run = candidate end
end
assert(run, "no run " .. tostring(arg[2]))
local steps = tonumber(arg[3])

local nets = dofile("spec/parity/nets.lua")

-- x[n, i, j] = (131 n + 17 i + 7 j) mod 256 and label (7 n) mod 10, normalised as MNIST is.
local function formula_set()
  local n = accelhost.arange(960)
  local i, j = accelhost.arange(28):reshape(28, 1), accelhost.arange(28)
  local pixels = (n:reshape(960, 1, 1) * 131 + i * 17 + j * 7) % 256
  local images = pixels:to("float32"):div(255):sub(0.1307):div(0.3081):unsqueeze(1)
  return data.TensorDataset(images, n * 7 % 10)
end

local function mnist_set(dir)
  local transforms = data.transforms
  return data.MNIST {
    root = dir, train = true,
    transform = transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)},
  }
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(fixture.seed)
local model = nets[run.net](run.dropout):to {dtype = run.dtype}
local optimizer = run.optimizer == "sgd" and optim.SGD(model:parameters(), {lr = run.lr})
  or optim.AdamW(model:parameters(), {lr = run.lr})
assert(run.batch % accelerator.num_processes == 0)
local set = arg[4] and mnist_set(arg[4]) or formula_set()
local loader = data.DataLoader(set, {batch_size = run.batch / accelerator.num_processes, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
model:train()

local step = 0
while step < steps do
  for images, labels in loader do
    local loss = F.nll_loss(model(images:to(run.dtype)), labels)
    optimizer:zero_grad()
    accelerator:backward(loss)
    optimizer:step()
    step = step + 1
    accelerator:print(("loss %.17g"):format(accelerator:reduce(loss:detach(), "mean"):item()))
    if step == steps then break end
  end
end

local sum = 0
for _, parameter in ipairs(model:parameters()) do sum = sum + parameter:detach():to("float64"):sum():item() end
accelerator:print(("weight_sum %.17g"):format(sum))

-- Fowler, Noll and Vo's hash of every rank's weights, word by word.
local ffi, bit = require "ffi", require "bit"
local hash = 0x811c9dc5
for _, parameter in ipairs(model:parameters()) do
  accelerator:gather(parameter:detach():reshape(1, -1)):with_data(function(pointer, count)
    local words = ffi.cast("uint32_t *", pointer)
    for i = 0, count * (run.dtype == "float64" and 2 or 1) - 1 do
      hash = bit.tobit(bit.bxor(hash, tonumber(words[i])) * 403)
    end
  end)
end
accelerator:print("weight_bits " .. bit.tohex(hash))
