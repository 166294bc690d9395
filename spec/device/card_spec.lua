--- Specs of CUDA devices only, a card or a simulated one: runs with ACCELHOST_TEST_DEVICE=cuda (make test-gpu, make
--- test-sim). Kernels at sizes that are no multiple of anything, from addresses that are not aligned, against the CPU's
--- numbers; training as on the CPU; memory.
local accelhost = require "accelhost"
local run = require "spec.support.run"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
local there = os.getenv "ACCELHOST_TEST_DEVICE" == "cuda"
-- Options of a separate program: to use the card, and to draw numbers on it.
local own = {ACCELHOST_CUDA_RANDOM = false, ACCELHOST_USE_CPU = false}
local simulated = os.getenv "ACCELHOST_CUDA" == "sim"

if not there then
  describe("A CUDA device", function()
    it("is tried by make test-gpu and make test-sim", function() pending "needs ACCELHOST_TEST_DEVICE=cuda" end)
  end)
  return
end

-- A card shows more at large sizes; the simulator is too slow for them.
local sizes = {1, 31, 33, 127, 129, 1023, 1025, 4099}
if not simulated then for _, size in ipairs {65537, 1000003} do sizes[#sizes + 1] = size end end

-- Each receives a vector of n numbers, first from its first element, then from an odd offset.
local families = {
  elementwise = function(x) return (x * 1.5 + 2):tanh():exp() end,
  pairs = function(x) return x:mul(x:flip(0)):add(x, {alpha = 0.5}) end,
  activation = function(x) return F.gelu(x) + F.silu(x) end,
  sum = function(x) return x:sum() / x:numel() end,
  extremes = function(x) return x:amax() - x:amin() end,
  norm = function(x) return x:norm() end,
  softmax = function(x) return x:reshape(1, -1):log_softmax(1) end,
  rows = function(x) return F.layer_norm(x:reshape(1, -1), {x:numel()}) end,
}

-- An odd number of rows that are not whole vectors wide.
local function matrix(x)
  local width = 7
  local rows = math.floor(x:numel() / width)
  return rows > 0 and x:narrow(0, 0, rows * width):reshape(rows, width) or x:reshape(1, -1)
end
families.columns = function(x) return matrix(x):sum(0) / math.max(1, x:numel() / 7) end
families.transposed = function(x) return matrix(x):t():contiguous() * 2 end
families.product = function(x)
  local m = matrix(x) / math.sqrt(x:numel())
  return m:t():matmul(m)
end
families.embedding = function(x)
  local m = matrix(x)
  local index = accelhost.arange(0, 4 * m:size(0), {dtype = "int64", device = x.device}):remainder(m:size(0))
  return F.embedding(index, m)
end
families.running = function(x) return x:cumsum(0) / x:numel() end
families.sorted = function(x) return (x:sort()) end
families.entropy = function(x)
  local m = matrix(x)
  return F.cross_entropy(m, accelhost.arange(0, m:size(0), {dtype = "int64", device = x.device}):remainder(m:size(1)))
end
families.attention = function(x)
  local tokens = math.min(300, math.floor(x:numel() / 8))
  if tokens == 0 then return x end
  local q = x:narrow(0, 0, tokens * 8):reshape(1, 1, tokens, 8)
  return F.scaled_dot_product_attention(q, q, q, {is_causal = true})
end
families.convolution = function(x)
  local side = math.min(65, math.floor(math.sqrt(x:numel())))
  local image = x:narrow(0, 0, side * side):reshape(1, 1, side, side)
  return F.max_pool2d(F.pad(F.conv2d(image, image:narrow(2, 0, 1):narrow(3, 0, 1), {padding = 1}), {0, 1, 0, 1}), 2)
end

local tolerances = {float64 = 1e-11, float32 = 3e-5, bfloat16 = 3e-2, float16 = 4e-3}

-- The result and the gradient of a weighted sum of it, on the CPU in float64.
local function outcome(fn, x, weights)
  x = x:detach():requires_grad_()
  local result = fn(x)
  local size = math.max(1, result:numel())
  local weight = weights:narrow(0, 0, 1):expand(size):reshape(result:shape()):to(result.dtype):to(result.device)
  result:mul(weight):sum():backward()
  return result:detach():cpu():to "float64", x.grad:cpu():to "float64"
end

local function off(expected, got)
  local scale = math.max(1, expected:abs():amax():item())
  return (expected - got):abs():amax():item() / scale
end

describe("A CUDA device, at sizes that fit nothing,", function()
  local names = {}
  for name in pairs(families) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for dtype, tolerance in pairs(tolerances) do
      it(("computes and derives %s in %s as the CPU"):format(name, dtype), function()
        for _, size in ipairs(sizes) do
          for _, from in ipairs {0, 1} do
            accelhost.manual_seed(size)
            local long = accelhost.randn({size + from}, {device = "cpu", dtype = "float32"}):to(dtype)
            local weights = accelhost.tensor({0.5}, {device = "cpu"})
            local far = long:to "cuda"
            local result, grad = outcome(families[name], long:narrow(0, from, size), weights)
            local there_result, there_grad = outcome(families[name], far:narrow(0, from, size), weights)
            local worst = math.max(off(result, there_result), off(grad, there_grad))
            assert(worst <= tolerance, ("size %d from %d: off by %g"):format(size, from, worst))
          end
        end
      end)
    end
  end
end)

local BasicNet = nn.Module:extend "BasicNet"
function BasicNet:init()
  self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
  self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
  return F.log_softmax(self.fc2(F.relu(self.fc1(x:flatten(1)))), 1)
end

describe("A CUDA device", function()
  it("trains BasicNet in float64 with the CPU's losses to 1e-9 for 20 steps", function()
    local batch = simulated and 1 or 16
    local function train(device)
      accelhost.manual_seed(3)
      local net = BasicNet():to "float64":to(device)
      local optimizer = optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9})
      local losses = {}
      for step = 1, 20 do
        accelhost.manual_seed(step)
        local x = accelhost.randn({batch, 1, 28, 28}, {dtype = "float64", device = "cpu"}):to(device)
        local loss = F.nll_loss(net(x), accelhost.randint(0, 10, {batch}, {device = "cpu"}):to(device))
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        losses[step] = loss:item()
      end
      return losses
    end
    local here, far = train "cpu", train "cuda"
    for step = 1, 20 do
      assert(math.abs(here[step] - far[step]) <= 1e-9, ("step %d: %.17g, %.17g"):format(step, here[step], far[step]))
    end
  end)

  it("trains in two ranks, on two cards or on one, with the losses of one process", function()
    local function losses(words)
      words[#words + 1] = "spec/distributed/cases/card.lua"
      local result = run.host(words, {timeout = 120, env = own})
      assert.equal(0, result.code, result.output)
      local values = {}
      for step, loss in result.stdout:gmatch "(%d+) (%S+)\n" do values[tonumber(step)] = tonumber(loss) end
      assert.equal(8, #values, result.output)
      return values
    end
    local one, two = losses {"run"}, losses {"launch", "--num_processes", "2"}
    for step = 1, 8 do assert(math.abs(one[step] - two[step]) <= 1e-12, "step " .. step) end
  end)

  it("reaches elements beyond 2^31", function()
    if simulated then return pending "needs a card's memory" end
    local x = accelhost.zeros({2 ^ 31 + 17}, {dtype = "uint8", device = "cuda"})
    x:narrow(0, 2 ^ 31 + 10, 3):fill_(1)
    assert.equal(3, x:sum():item())
    assert.equal(6, (x + x):narrow(0, 2 ^ 31, 17):sum():item())
    assert.equal(2 ^ 31 + 10, x:argmax():item())
  end)

  it("poisons allocated memory with the option, also reused memory", function()
    if os.getenv "ACCELHOST_CUDA_ALLOCATOR" ~= "poison" then return pending "needs ACCELHOST_CUDA_ALLOCATOR=poison" end
    for _ = 1, 3 do
      local x = accelhost.empty({1000}, {device = "cuda"})
      assert.equal(1000, x:isnan():sum():item())
      x:fill_(1)
      x:free()
    end
  end)

  it("asks the driver for nothing in a steady loop", function()
    local x, calls = accelhost.ones({1000}, {device = "cuda"})
    for step = 1, 50 do
      local y = (x + 1):exp():mul(2)
      y:free()
      collectgarbage()
      if step == 10 then calls = accelhost.memory_stats("cuda").system_calls end
    end
    assert.equal(0, accelhost.memory_stats("cuda").system_calls - calls)
  end)

  it("reports an index out of range, and continues", function()
    local result = run.host({"-e", [[
      local accelhost = require "accelhost"
      local x = accelhost.ones({4, 2}, {device = "cuda"})
      local index = accelhost.tensor({7}, {dtype = "int64"}):to "cuda"
      print(pcall(function() return x:index_select(0, index):sum():item() end))
      print(x:sum():item())]]}, {env = {ACCELHOST_CUDA_CHECKS = "now"}})
    assert.matches("^false\t[^\n]*7[^\n]*\n8\n$", result.stdout, result.stderr)
  end)
end)
