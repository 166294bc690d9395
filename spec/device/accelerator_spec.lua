--- An accelerator on "far": models and batches go to the default device, and training gives the CPU's bits.
local accelhost = require "accelhost"
local run = require "spec.support.run"

local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local function on(device, fn)
  local before = accelhost.get_default_device()
  accelhost.set_default_device(device)
  local fine, result = pcall(fn)
  accelhost.set_default_device(before)
  return assert(fine and result, result)
end

local function small_cnn()
  return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
    nn.Flatten(), nn.Linear(8 * 13 * 13, 10))
end

local function weights(net)
  local flat = {}
  for _, parameter in ipairs(net:parameters()) do flat[#flat + 1] = parameter:detach():cpu():flatten() end
  return accelhost.cat(flat):tolist()
end

local function train_prepared(cpu)
  local accelerator = accelhost.Accelerator {cpu = cpu, gradient_accumulation_steps = 2}
  accelhost.manual_seed(3)
  local net = small_cnn()
  local optimizer = optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9})
  local digits = data.SyntheticDigits {size = 96, transform = data.transforms.ToTensor()}
  local loader = data.DataLoader(digits, {batch_size = 16, shuffle = true})
  net, optimizer, loader = accelerator:prepare(net, optimizer, loader)
  local losses = {}
  for images, labels in loader do
    assert.equal(accelerator.device, images.device)
    accelerator:accumulate(net, function()
      local loss = F.cross_entropy(net(images), labels)
      accelerator:backward(loss)
      accelerator:clip_grad_norm_(net:parameters(), 1)
      optimizer:step()
      optimizer:zero_grad()
      losses[#losses + 1] = loss:item()
    end)
  end
  return {accelerator.device, losses, weights(net)}
end

describe("an accelerator", function()
  it("refuses a device whose memory its group of processes cannot reduce", function()
    local result = run.host({"launch", "--num_processes", "2", "-e", [[
      local accelhost = require "accelhost"
local run = require "spec.support.run"
      accelhost.set_default_device "far"
      accelhost.Accelerator():prepare(accelhost.nn.Linear(2, 2))
    ]]}, {timeout = 20})
    assert.equal(3, result.code, result.output)
    assert.matches("prepare: parameter 0 is on far:0; the backend shm reduces memory of the cpu", result.stderr)
  end)

  it("places model and batches on its device, the default one", function()
    local here = train_prepared(true)
    local there = on("far", function() return train_prepared(false) end)
    assert.equal("cpu", here[1])
    assert.equal("far:0", there[1])
    assert.same(here[2], there[2])
    assert.same(here[3], there[3])
  end)
end)
