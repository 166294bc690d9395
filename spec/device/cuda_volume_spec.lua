--- Layers of volumes of CUDA devices on the simulated GPU: convolutions by cuDNN's descriptors of five dims and by
--- products where it is missing; pools, norms and resizing by the kernels of images. Each case is a separate program.
local sim = require "spec.support.sim"

-- far(f, inputs, dtype): how far the device's results and gradients of f are from the CPU's in float64, at most.
local compare = [[
  local accelhost = require "accelhost"
  local F, nn = accelhost.nn.functional, accelhost.nn
  local function results(f, inputs, dtype, device)
    local leaves, out = {}, {}
    for i, input in ipairs(inputs) do leaves[i] = input:clone():to(dtype):to(device):requires_grad_() end
    local y = f(unpack(leaves))
    assert(y.device:find(device, 1, true) == 1 and y.dtype == dtype)
    accelhost.manual_seed(3)
    y:backward(accelhost.randn(y:shape(), {device = "cpu"}):to(inputs.dtype):to(dtype):to(device))
    out[1] = y:detach():to "cpu":to "float64"
    for i, leaf in ipairs(leaves) do out[i + 1] = leaf.grad:to "cpu":to "float64" end
    return out
  end
  local function far(f, inputs, dtype)
    for i, input in ipairs(inputs) do inputs[i] = input:to(dtype) end
    inputs.dtype = dtype
    local here, there, worst = results(f, inputs, "float64", "cpu"), results(f, inputs, dtype, "cuda"), 0
    for i = 1, #here do
      worst = math.max(worst, ((here[i] - there[i]):abs():max() / here[i]:abs():max()):item())
    end
    return worst
  end
  local function randn(...) return accelhost.randn({...}, {device = "cpu"}) end
  local limits = {float64 = 1e-14, float32 = 1e-6, float16 = 2e-3, bfloat16 = 1.5e-2}
  local function check(name, f, ...)
    for dtype, limit in pairs(limits) do
      local worst = far(f, {...}, dtype)
      if not (worst < limit) then print(name, dtype, worst) end
    end
  end
]]

local convolutions = [[
  accelhost.manual_seed(1)
  local x = randn(2, 4, 5, 7, 6)
  check("plain", F.conv3d, x, randn(3, 4, 3, 3, 3), randn(3))
  check("options", function(x, w, b)
    return F.conv3d(x, w, b, {stride = {1, 2, 1}, padding = {1, 0, 2}, dilation = {1, 1, 2}, groups = 2})
  end, x, randn(6, 2, 3, 2, 3), randn(6))
  check("depthwise", function(x, w) return F.conv3d(x, w, {groups = 4, padding = "same"}) end, x, randn(8, 1, 3, 1, 2))
  check("pointwise", F.conv3d, x, randn(5, 4, 1, 1, 1), randn(5))
  check("depth alone", function(x, w) return F.conv3d(x, w, {dilation = {2, 1, 1}}) end, x, randn(2, 4, 2, 1, 1))
  check("without a batch", F.conv3d, randn(4, 5, 7, 6), randn(3, 4, 2, 3, 3), randn(3))
  check("transposed", function(x, w, b)
    return F.conv_transpose3d(x, w, b,
      {stride = {2, 1, 3}, padding = {1, 0, 1}, output_padding = {1, 0, 2}, dilation = {1, 2, 1}, groups = 2})
  end, x, randn(4, 3, 3, 2, 3), randn(6))
  check("transposed with an output padding above its stride", function(x, w)
    return F.conv_transpose3d(x, w, {output_padding = {1, 2, 0}, dilation = {2, 3, 1}})
  end, x, randn(4, 2, 2, 2, 2))
  print "compared"]]

local function on_sim(code, env) return sim.host(compare .. code, env) end

local case = sim.case

describe("A convolution of volumes on a CUDA device", function()
  for _, way in ipairs {
    {"by cuDNN", {}},
    {"by cuDNN's engines that do not round float32", {ACCELHOST_SIM_TF32 = "1"}},
    {"by products of matrices where cuDNN is switched off", {}, "accelhost.backends.cudnn.enabled = false\n"},
    {"by products of matrices where cuDNN is not there", {ACCELHOST_SIM_FAIL = "dnn:1+"}},
  } do
    case("equals float64 " .. way[1] .. ", and so do its gradients", function()
      local result = on_sim("accelhost.backends.cudnn.allow_tf32 = false\n" .. (way[3] or "") .. convolutions, way[2])
      assert.equal("compared\n", result.stdout, result.stderr)
    end)
  end

  case("may round float32 to TF32, in channels-last order", function()
    local result = on_sim([[
      accelhost.manual_seed(1)
      local worst = far(F.conv3d, {randn(2, 4, 5, 7, 6), randn(3, 4, 3, 3, 3), randn(3)}, "float32")
      print(worst < 2e-3, worst > 1e-5)]], {ACCELHOST_SIM_TF32 = "1"})
    assert.equal("true\ttrue\n", result.stdout, result.stderr)
  end)

  case("calls cuDNN with tensors of five dims, whose failure names them", function()
    local result = on_sim([[F.conv3d(randn(2, 4, 5, 7, 6):cuda(), randn(6, 2, 3, 2, 1):cuda(), {groups = 2})]],
      {ACCELHOST_SIM_FAIL = "dnn:3"})
    assert.equal(1, result.code)
    assert.matches("cuda:0: conv_volume: cuDNN, input (2, 4, 5, 7, 6), weight (6, 2, 3, 2, 1): ",
      result.stderr:match "^[^\n]*", 1, true)
  end)

  case("has second derivatives", function()
    local result = on_sim [[
      accelhost.manual_seed(2)
      local function second(device)
        accelhost.manual_seed(2)
        local x = randn(1, 2, 3, 4, 3):double():to(device):requires_grad_()
        local w = randn(2, 2, 2, 2, 3):double():to(device):requires_grad_()
        local y = F.conv_transpose3d(F.conv3d(x, w, {padding = 1}):tanh(), w)
        local g = accelhost.autograd.grad(y:square():sum(), {x, w}, {create_graph = true})
        local norm = g[1]:square():sum() + g[2]:square():sum()
        norm:backward()
        return x.grad:to "cpu", w.grad:to "cpu"
      end
      local x, w = second "cpu"
      local far_x, far_w = second "cuda"
      print(((x - far_x):abs():max() / x:abs():max()):item() < 1e-13,
        ((w - far_w):abs():max() / w:abs():max()):item() < 1e-13)]]
    assert.equal("true\ttrue\n", result.stdout, result.stderr)
  end)

  case("of an empty batch has zero gradients for its weight", function()
    local result = on_sim [[
      local w = randn(2, 3, 2, 2, 2):cuda():requires_grad_()
      local y = F.conv3d(accelhost.zeros({0, 3, 4, 4, 4}, {device = "cuda"}), w)
      y:sum():backward()
      print(#y:shape(), y:size(0), w.grad:abs():sum():item())]]
    assert.equal("5\t0\t0\n", result.stdout, result.stderr)
  end)
end)

describe("Volumes on a CUDA device", function()
  case("are pooled, normalised, padded and resized as on the CPU", function()
    local result = on_sim [[
      limits = {float64 = 1e-13, float32 = 2e-6, float16 = 5e-3, bfloat16 = 3e-2}
      accelhost.manual_seed(4)
      local x = randn(2, 4, 5, 7, 6)
      check("max_pool3d", function(x) return F.max_pool3d(x, {3, 2, 3}, {2, 2, 1}, {1, 0, 1}) end, x)
      check("max_unpool3d", function(x)
        local values, places = F.max_pool3d(x, {kernel_size = 2, return_indices = true})
        return F.max_unpool3d(values, places, 2, {output_size = {5, 7, 6}})
      end, x)
      check("avg_pool3d", function(x) return F.avg_pool3d(x, {3, 2, 3}, {2, 2, 1}, {1, 0, 1}) end, x)
      check("lp_pool3d", function(x) return F.lp_pool3d(x:abs() + 0.5, 2, 2) end, x)
      check("adaptive_avg_pool3d", function(x) return F.adaptive_avg_pool3d(x, {3, 2, 4}) end, x)
      check("adaptive_max_pool3d", function(x) return F.adaptive_max_pool3d(x, {3, 2, 4}) end, x)
      check("batch_norm", function(x, w, b) return F.batch_norm(x, nil, nil, w, b, true) end, x, randn(4), randn(4))
      check("instance_norm", F.instance_norm, x)
      check("group_norm", function(x) return F.group_norm(x, 2) end, x)
      check("trilinear", function(x) return F.interpolate(x, {size = {7, 9, 5}, mode = "trilinear"}) end, x)
      check("trilinear corners", function(x)
        return F.interpolate(x, {scale_factor = 2, mode = "trilinear", align_corners = true})
      end, x)
      check("nearest", function(x) return F.interpolate(x, {scale_factor = 2}) end, x)
      check("area", function(x) return F.interpolate(x, {size = {3, 3, 3}, mode = "area"}) end, x)
      check("replicate", function(x) return F.pad(x, {1, 2, 1, 0, 2, 1}, "replicate") end, x)
      check("reflect", function(x) return F.pad(x, {1, 2, 1, 0, 2, 1}, "reflect") end, x)
      check("grid_sample", F.grid_sample, x, randn(2, 3, 3, 3, 3) * 0.3)
      print "compared"]]
    assert.equal("compared\n", result.stdout, result.stderr)
  end)

  case("train a network whose loss and gradients are the CPU's", function()
    local result = on_sim [[
      accelhost.manual_seed(5)
      local net = nn.Sequential(nn.Conv3d(1, 4, 3, {padding = 1}), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(4, 6, {2, 3, 3}, {groups = 2}), nn.ReLU(), nn.ConvTranspose3d(6, 2, 2, {stride = 2}),
        nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(16, 3)):to "float64"
      local x, y = randn(3, 1, 6, 9, 8):double(), accelhost.tensor({0, 2, 1}, {dtype = "int64", device = "cpu"})
      local function gradients(device)
        net:to(device):zero_grad()
        local loss = F.cross_entropy(net(x:to(device)), y:to(device))
        loss:backward()
        local all = {loss:item()}
        for _, p in ipairs(net:parameters()) do all[#all + 1] = p.grad:to "cpu":clone() end
        return all
      end
      local here, there = gradients "cpu", gradients "cuda"
      local worst = math.abs(here[1] - there[1])
      for i = 2, #here do worst = math.max(worst, (here[i] - there[i]):abs():max():item()) end
      print(#there, worst < 1e-12)]]
    assert.equal("11\ttrue\n", result.stdout, result.stderr)
  end)

  case("train in a captured step and under autocast, with the bits of the function", function()
    for _, precision in ipairs {"no", "bf16"} do
      local result = on_sim(([[
        local function losses(compiled)
          accelhost.manual_seed(0)
          local accelerator = accelhost.Accelerator {mixed_precision = "%s"}
          local net = nn.Sequential(nn.Conv3d(1, 4, 3, {padding = 1}), nn.BatchNorm3d(4), nn.ReLU(),
            nn.ConvTranspose3d(4, 2, 2, {stride = 2}), nn.AdaptiveMaxPool3d(2), nn.Flatten(), nn.Linear(16, 3))
          local optimizer = accelhost.optim.AdamW(net:parameters(), {lr = 1e-2})
          net, optimizer = accelerator:prepare(net, optimizer)
          local function step(x, y)
            local loss = F.cross_entropy(net(x), y)
            accelerator:backward(loss)
            optimizer:step()
            optimizer:zero_grad()
            return loss
          end
          step = compiled and accelerator:compile(step) or step
          local found = {}
          for i = 1, 4 do
            accelhost.manual_seed(i)
            local y = accelhost.tensor({0, 2, 1}, {dtype = "int64", device = "cuda"})
            found[i] = step(randn(3, 1, 4, 6, 5):cuda(), y):item()
          end
          return found
        end
        local plain, captured = losses(false), losses(true)
        for i = 1, 4 do assert(plain[i] == captured[i]) end
        print(#plain)]]):format(precision))
      assert.equal("4\n", result.stdout, result.stderr)
    end
  end)
end)
