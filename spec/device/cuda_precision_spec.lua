--- Mixed precision on a CUDA device, here the simulated GPU: ops that autocast casts, training, scaled losses.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local F, nn, optim = accelhost.nn.functional, accelhost.nn, accelhost.optim
  accelhost.set_default_device "cuda"
]]

local function case(sentence, expected, code)
  sim.case(sentence, function()
    local result = sim.host(HEAD .. code, {ACCELHOST_CUDA_RANDOM = "cpu", ACCELHOST_USE_CPU = false})
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("autocast on CUDA", function()
  case("has the dtypes of PyTorch's lists for CUDA, of float32 and of half inputs", "98\n", [[
    local lower = {
      mm = function(a, b) return a:mm(b) end, mv = function(a, b) return a:mv(b[0]) end,
      linear = function(a, b) return F.linear(a, b, b[0]) end,
      addmm = function(a, b) return accelhost.addmm(a, a, b) end,
      bmm = function(a, b) return a:unsqueeze(0):bmm(b:unsqueeze(0)) end,
      conv1d = function(a, b) return F.conv1d(a:unsqueeze(0), b:unsqueeze(2)) end,
      conv2d = function(a, b) return F.conv2d(a:reshape(1, 4, 2, 2), b:reshape(4, 4, 1, 1)) end,
      einsum = function(a, b) return accelhost.einsum("ij,jk->ik", a, b) end,
      attention = function(a) local q = a:reshape(1, 1, 4, 4) return F.scaled_dot_product_attention(q, q, q) end,
      prelu = function(a, b) return F.prelu(a, b[0][0]:reshape(1)) end,
    }
    local float = {
      softmax = function(a) return F.softmax(a, 1) end, log_softmax = function(a) return F.log_softmax(a, 1) end,
      layer_norm = function(a, b) return F.layer_norm(a, {4}, b[0], b[0]) end, exp = function(a) return a:exp() end,
      rms_norm = function(a) return F.rms_norm(a, {4}) end, log = function(a) return a:log() end,
      group_norm = function(a) return F.group_norm(a, 2) end, pow = function(a) return a:pow(2) end,
      sum = function(a) return a:sum() end, cumsum = function(a) return a:cumsum(0) end,
      prod = function(a) return a:prod() end, norm = function(a) return a:norm() end,
      mse_loss = function(a, b) return F.mse_loss(a, b) end, l1_loss = function(a, b) return F.l1_loss(a, b) end,
      cross_entropy = function(a) return F.cross_entropy(a, accelhost.tensor({0, 1, 2, 3}, {dtype = "int64"})) end,
      rsqrt = function(a) return a:rsqrt() end, softplus = function(a) return F.softplus(a) end,
      cosine_similarity = function(a, b) return F.cosine_similarity(a, b) end,
      interpolate = function(a) return F.interpolate(a:reshape(1, 4, 2, 2), {scale_factor = 2}) end,
    }
    local own = {
      relu = function(a) return F.relu(a) end, gelu = function(a) return F.gelu(a) end,
      add = function(a) return a + 1 end, mean = function(a) return a:mean() end,
      max_pool2d = function(a) return F.max_pool2d(a:reshape(1, 4, 2, 2), 2) end,
      avg_pool2d = function(a) return F.avg_pool2d(a:reshape(1, 4, 2, 2), 2) end,
      sigmoid = function(a) return a:sigmoid() end, tanh = function(a) return a:tanh() end,
      sqrt = function(a) return a:sqrt() end, sin = function(a) return a:sin() end,
    }
    local checked = 0
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local a, b = accelhost.rand(4, 4) + 1, accelhost.rand(4, 4)
      local function expect(list, of_float, of_half)
        for name, fn in pairs(list) do
          for input, want in pairs{[a] = of_float, [a:to(dtype)] = of_half} do
            local got = accelhost.autocast("cuda", {dtype = dtype}, fn, input, b).dtype
            if got ~= want then error(("%s of %s: %s, expected %s"):format(name, input.dtype, got, want)) end
            checked = checked + 1
          end
        end
      end
      if dtype == "float16" then expect(lower, dtype, dtype) end
      if dtype == "float16" then expect(float, "float32", "float32") end
      expect(own, "float32", dtype)
      local half = b:to(dtype)
      local widest = accelhost.autocast("cuda", {dtype = dtype}, function()
        return accelhost.addcmul(half, half, b).dtype .. accelhost.addcmul(half, half, half).dtype
      end)
      assert(widest == "float32" .. dtype, widest)
    end
    print(checked)]])

  case("is off for the CPU's tensors, and independent of the CPU's own", "float32\nbfloat16\tfloat16\tfalse\ttrue\n", [[
    local a, here = accelhost.rand(2, 2), accelhost.rand({2, 2}, {device = "cpu"})
    accelhost.autocast("cuda", function() print(here:mm(here).dtype) end)
    accelhost.autocast("cpu", function()
      accelhost.autocast("cuda", function() print(here:mm(here).dtype, a:mm(a).dtype,
        accelhost.amp.autocast("cuda", {enabled = false}, accelhost.is_autocast_enabled, "cuda"),
        accelhost.is_autocast_enabled "cpu") end)
    end)]])
end)

describe("Accelerator{mixed_precision} on CUDA", function()
  case("trains as float32 does, within its rounding, for 20 steps", "true\ttrue\ntrue\ttrue\n", [[
    local nets = {
      function() return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)) end,
      function()
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10))
      end,
    }
    for _, make in ipairs(nets) do
      local losses = {}
      for _, precision in ipairs{"no", "bf16", "fp16"} do
        accelhost.manual_seed(0)
        local scaler = accelhost.GradScalerKwargs{init_scale = 1024}
        local accelerator = accelhost.Accelerator{mixed_precision = precision,
          kwargs_handlers = precision == "fp16" and {scaler} or nil}
        local net = make()
        local optimizer = optim.SGD(net:parameters(), {lr = 0.1})
        net, optimizer = accelerator:prepare(net, optimizer)
        local x, y, seen = accelhost.rand(16, 1, 8, 8), accelhost.randint(0, 10, {16}), {}
        for step = 1, 20 do
          local loss = F.cross_entropy(net(x), y)
          accelerator:backward(loss)
          optimizer:step()
          optimizer:zero_grad()
          assert(not accelerator.optimizer_step_was_skipped)
          seen[step] = loss:item()
        end
        losses[precision] = seen
        assert(net:parameters()[1].dtype == "float32" and accelerator.device == "cuda:0")
      end
      local function worst(precision)
        local off = 0
        for i = 1, 20 do off = math.max(off, math.abs(losses[precision][i] - losses.no[i])) end
        return off
      end
      print(worst "bf16" < 0.02, worst "fp16" < 0.003)
    end]])

  case("leaves out a step whose gradients are not finite, and continues", "true\t512\ttrue\nfalse\t512\tfalse\n", [[
    local accelerator = accelhost.Accelerator{mixed_precision = "fp16",
      kwargs_handlers = {accelhost.GradScalerKwargs{init_scale = 1024}}}
    local net = nn.Linear(4, 2)
    local optimizer = optim.SGD(net:parameters(), {lr = 0.1})
    net, optimizer = accelerator:prepare(net, optimizer)
    for _, factor in ipairs{math.huge, 1} do
      local before = net.weight:detach():clone()
      accelerator:backward((net(accelhost.ones(3, 4)) * factor):sum())
      optimizer:step()
      optimizer:zero_grad()
      print(accelerator.optimizer_step_was_skipped, accelerator.scaler:get_scale(), before:equal(net.weight))
    end]])
end)
