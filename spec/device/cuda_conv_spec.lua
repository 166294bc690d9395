--- Convolutions of CUDA devices on the simulated GPU, by each of their ways: cuDNN, whose simulation names engines that
--- must not be used, and products where it is missing. Each case is a separate program.
local sim = require "spec.support.sim"

-- compare(dtype): how far each of three results of some convolutions is from the CPU's in float64, at most.
local compare = [[
  local accelhost = require "accelhost"
  local F = accelhost.nn.functional
  local shapes = {
    {{2, 6, 9, 8}, {4, 6, 3, 3}, {padding = 1}},
    {{3, 4, 7, 10}, {6, 2, 3, 2}, {stride = {2, 1}, padding = {1, 0}, dilation = {1, 2}, groups = 2}},
    {{2, 8, 6, 6}, {16, 8, 1, 1}, {stride = 1}},
    {{1, 5, 5, 5}, {5, 1, 3, 3}, {groups = 5, padding = 2}},
    {{4, 1, 8, 8}, {3, 1, 2, 2}, {stride = 2}},
    {{6, 7, 7}, {2, 6, 3, 3}, {padding = 1}},
  }
  local function results(given, dtype, device, options)
    local leaves = {}
    for i = 1, 3 do leaves[i] = given[i]:clone():to(dtype):to(device):requires_grad_() end
    local y = F.conv2d(leaves[1], leaves[2], leaves[3], options)
    y:backward(given[4]:to(dtype):to(device))
    local out = {y:detach()}
    for i = 1, 3 do out[i + 1] = leaves[i].grad end
    for i = 1, 4 do out[i] = out[i]:to "cpu":to "float64" end
    return out
  end
  function compare(dtype)
    local worst = 0
    for _, shape in ipairs(shapes) do
      accelhost.manual_seed(1)
      local options = {device = "cpu"}
      local given = {accelhost.randn(shape[1], options), accelhost.randn(shape[2], options),
        accelhost.randn({shape[2][1]}, options)}
      for i = 1, 3 do given[i] = given[i]:to(dtype) end
      given[4] = F.conv2d(given[1]:to "float64", given[2]:to "float64", given[3]:to "float64", shape[3]):to(dtype)
      local here = results(given, "float64", "cpu", shape[3])
      local there = results(given, dtype, "cuda", shape[3])
      for i = 1, 4 do
        local off = ((here[i] - there[i]):abs():max() / here[i]:abs():max()):item()
        worst = off > worst and off or worst
      end
    end
    return worst
  end
]]

local function on_sim(code, env) return sim.host(compare .. code, env) end

local case = sim.case

local dtypes = [[
  accelhost.backends.cudnn.allow_tf32 = false
  print(compare "float64" < 1e-14, compare "float32" < 1e-6, compare "float16" < 2e-3,
  compare "bfloat16" < 1e-2)]]
local all_true = "true\ttrue\ttrue\ttrue\n"

describe("A convolution on a CUDA device", function()
  for _, way in ipairs {
    {"by cuDNN's engines that add up in a fixed order", {}},
    {"by engines that do not round float32, where those of tensor cores would", {ACCELHOST_SIM_TF32 = "1"}},
    {"by products of matrices where cuDNN is switched off", {}, "accelhost.backends.cudnn.enabled = false\n"},
    {"by products of matrices where cuDNN is not there", {ACCELHOST_SIM_FAIL = "dnn:1+"}},
    {"by products of matrices where cuDNN names no engine", {ACCELHOST_SIM_FAIL = "dnn:2+"}},
    {"by the fallback's engines where heuristics fail once", {ACCELHOST_SIM_FAIL = "dnn:2"}},
  } do
    case("equals float64 " .. way[1] .. ", and so do its gradients", function()
      local result = on_sim((way[3] or "") .. dtypes, way[2])
      assert.equal(all_true, result.stdout, result.stderr)
    end)
  end

  local large = [[
    local x = accelhost.randn({2, 6, 9, 8}, {device = "cpu"})
    local w = accelhost.randn({4, 6, 3, 3}, {device = "cpu"})
    local y = F.conv2d(x:to "cuda", w:to "cuda", {padding = 1})
    print((y:to "cpu" - F.conv2d(x, w, {padding = 1})):abs():max():item() < 1e-5)]]

  case("without memory for a workspace uses an engine that needs none", function()
    local result = on_sim(large, {ACCELHOST_CUDA_ALLOCATOR = "driver", ACCELHOST_SIM_FAIL = "alloc:4"})
    assert.equal("true\n", result.stdout, result.stderr)
  end)

  case("without memory for its matrix reports it in one line, with the shapes", function()
    local result = on_sim(large, {ACCELHOST_CUDA_ALLOCATOR = "driver", ACCELHOST_SIM_FAIL = "dnn:1+,alloc:4+"})
    assert.equal(1, result.code)
    assert.matches("conv2d: input %(2, 6, 9, 8%), weight %(4, 6, 3, 3%): cuda:0: out of memory: [^\n]+",
      result.stderr:match "^[^\n]*")
  end)

  case("whose run fails names device, op and shapes", function()
    local result = on_sim(large, {ACCELHOST_SIM_FAIL = "dnn:3"})
    assert.equal(1, result.code)
    assert.matches("cuda:0: conv2d: cuDNN, input (2, 6, 9, 8), weight (4, 6, 3, 3): CUDNN_STATUS_EXECUTION_FAILED",
      result.stderr:match "^[^\n]*", 1, true)
  end)

  case("keeps its plan: a second run asks no heuristics", function()
    local result = on_sim("for _ = 1, 3 do\n" .. large .. "\nend", {ACCELHOST_SIM_FAIL = "dnn:4"})
    assert.equal(1, result.code)
    assert.equal("true\n", result.stdout)
  end)
end)

describe("A network of convolutions on a CUDA device", function()
  case("has the CPU's loss and gradients in float64 to 1e-9", function()
    local result = on_sim [[
      local nn = accelhost.nn
      accelhost.manual_seed(2)
      local x = accelhost.randn({4, 1, 28, 28}, {device = "cpu", dtype = "float64"})
      local y = accelhost.tensor({3, 1, 4, 1}, {dtype = "int64", device = "cpu"})
      local net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)):to "float64"
      local function gradients(device)
        net:to(device):zero_grad()
        local loss = F.cross_entropy(net(x:to(device)), y:to(device))
        loss:backward()
        local all = {loss:item()}
        for _, p in ipairs(net:parameters()) do all[#all + 1] = p.grad:to "cpu":clone() end
        return all
      end
      local here, far = gradients "cpu", gradients "cuda"
      local worst = math.abs(here[1] - far[1])
      for i = 2, #here do worst = math.max(worst, (here[i] - far[i]):abs():max():item()) end
      print(#far, worst < 1e-9)]]
    assert.equal("9\ttrue\n", result.stdout, result.stderr)
  end)

  case("in halves keeps channels last from layer to layer, with the CPU's results", function()
    local result = on_sim [[
      local nn = accelhost.nn
      accelhost.manual_seed(4)
      local x = accelhost.randn({4, 3, 12, 12}, {device = "cpu"})
      local net = nn.Sequential(nn.Conv2d(3, 8, 3, {padding = 1}), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
      local function gradients(dtype, device)
        net:to(device):to(dtype):zero_grad()
        local out = net(x:to(device):to(dtype))
        out:square():sum():backward()
        local all = {out:detach():to "cpu":to "float64"}
        for _, p in ipairs(net:parameters()) do all[#all + 1] = p.grad:to "cpu":to "float64" end
        return all
      end
      local here, far, worst = gradients("float32", "cpu"), gradients("bfloat16", "cuda"), 0
      for i = 1, #here do
        if i ~= 3 then -- the bias before a normalization has no gradient but rounding
          worst = math.max(worst, ((here[i] - far[i]):norm() / here[i]:norm()):item())
        end
      end
      print(worst < 0.05, worst > 1e-4, worst)]]
    assert.matches("^true\ttrue\t", result.stdout, 1, false, result.stderr)
  end)
end)
