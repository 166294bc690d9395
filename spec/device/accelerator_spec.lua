--- An accelerator on "far": models and batches are moved to the default device, and training has the CPU's bits.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local run = require "spec.support.run"
local tensors = require "spec.support.tensors"

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

local weights = tensors.weights

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
  it("averages the gradients of a device whose memory the host cannot read", function()
    local result = run.host({"launch", "--num_processes", "2", "-e", [[
      local accelhost = require "accelhost"
      accelhost.set_default_device "far"
      local accelerator = accelhost.Accelerator()
      local net = accelerator:prepare(accelhost.nn.Linear(2, 1))
      accelerator:backward(net(accelhost.full({1, 2}, accelerator.process_index + 1)):sum())
      local grad = net:parameters()[1].grad
      accelerator:print(grad.device, grad:tolist()[1][1], grad:tolist()[1][2])
    ]]}, {timeout = 20})
    assert.equal(0, result.code, result.output)
    run.prints("far:0\t1.5\t1.5\n", result)
  end)

  it("refuses to offload optimizer state, for which the device has no copies in the background", function()
    on("far", function()
      local accelerator = accelhost.Accelerator {sharding = "optimizer", offload_optimizer_device = "cpu"}
      local net = accelhost.nn.Linear(2, 2)
      check.raises("offload_optimizer_device: it is for CUDA devices, not for far", function()
        accelerator:prepare(net, accelhost.optim.SGD(net:parameters()))
      end)
      accelerator:free_memory()
      return true
    end)
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
