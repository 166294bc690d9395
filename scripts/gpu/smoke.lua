--- One call of each kind on a CUDA device against float64 on the CPU: products, attention, convolution, norms, losses,
--- linear algebra, optimizer, a captured step.
--- usage: accelhost scripts/gpu/smoke.lua      Exit status 1 when one is too far off.
--
-- A line each, as it ends: name, relative error ||got - expected|| / ||expected||, the most that is allowed.
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
accelhost.manual_seed(7)

local failed = 0
local function line(name, errors, most)
  local worst = 0
  for _, each in ipairs(errors) do worst = (each ~= each or each > worst) and each or worst end
  local fine = worst == worst and worst <= most
  if not fine then failed = failed + 1 end
  print(("%-34s %10.3g  of %-8g %s"):format(name, worst, most, fine and "met" or "MISSED"))
  io.stdout:flush()
end

-- The relative error of a tensor against one of float64 on the CPU.
local function off(got, expected)
  local other = got:detach():to "cpu":to "float64"
  return ((other - expected:detach()):norm() / expected:detach():norm():clamp(1e-30)):item()
end

-- fn of the inputs there and in float64 here; outputs and the gradients of all inputs are compared.
local function compare(name, dtype, most, shapes, fn)
  local fine, message = pcall(function()
    local here, there = {}, {}
    for i, shape in ipairs(shapes) do
      local values = accelhost.randn(shape, {device = "cpu"}):to(dtype)
      here[i] = values:to "float64":clone():requires_grad_()
      there[i] = values:to "cuda":requires_grad_()
    end
    local expected, got = fn(unpack(here)), fn(unpack(there))
    local slope = accelhost.randn(expected:shape(), {device = "cpu"}):to(dtype)
    expected:backward(slope:to "float64")
    got:backward(slope:to "cuda":to(got.dtype))
    local errors = {off(got, expected)}
    for i in ipairs(shapes) do errors[i + 1] = off(there[i].grad, here[i].grad) end
    line(name .. " " .. dtype, errors, most)
  end)
  if not fine then
    failed = failed + 1
    print(name .. " " .. dtype .. ": " .. tostring(message):match "^[^\n]*")
  end
end

local few = {float64 = 1e-12, float32 = 1e-5, bfloat16 = 2e-2, float16 = 3e-3}
for _, dtype in ipairs {"float64", "float32", "bfloat16", "float16"} do
  local most = few[dtype]
  compare("matmul", dtype, most, {{300, 200}, {200, 136}}, function(a, b) return a:matmul(b) end)
  compare("linear with GELU", dtype, most, {{64, 96}, {128, 96}, {128}}, function(x, w, b)
    return F.gelu(F.linear(x, w, b), {approximate = "tanh"})
  end)
  for _, causal in ipairs {false, true} do
    local shape = {2, 3, 200, 64}
    compare(causal and "attention, causal" or "attention", dtype, most, {shape, shape, shape}, function(q, k, v)
      return F.scaled_dot_product_attention(q, k, v, {is_causal = causal})
    end)
  end
  compare("layer_norm", dtype, most, {{50, 768}, {768}, {768}}, function(x, w, b)
    return F.layer_norm(x, {768}, w, b)
  end)
  compare("softmax", dtype, most, {{50, 1000}}, function(x) return x:softmax(-1) end)
  compare("cross_entropy", dtype, most, {{64, 5000}}, function(x)
    return F.cross_entropy(x, accelhost.arange(64, {device = x.device}) * 70, {reduction = "none"})
  end)
  compare("sum over rows, strided add", dtype, most, {{70, 130}, {130, 70}}, function(x, y)
    return (x + y:t()):sum(0)
  end)
end
accelhost.backends.cudnn.allow_tf32 = false
for _, dtype in ipairs {"float32", "bfloat16"} do
  compare("conv2d", dtype, few[dtype], {{4, 8, 20, 20}, {16, 8, 3, 3}, {16}}, function(x, w, b)
    return F.conv2d(x, w, b, {padding = 1})
  end)
end

-- Linear algebra: one matrix and batches, tall and wide ones. Of factors whose signs are not determined the product.
local linalg = accelhost.linalg
local function gram(x)
  return x:matmul(x:transpose(-1, -2)) + accelhost.eye(x:size(-2), {dtype = x.dtype, device = x.device})
end
for _, dtype in ipairs {"float64", "float32"} do
  local most = dtype == "float64" and 1e-10 or 1e-3
  for what, shape in pairs {matrix = {60, 60}, batch = {5, 24, 24}} do
    compare("solve, " .. what, dtype, most, {shape, shape}, function(x, b) return linalg.solve(gram(x), b) end)
    compare("inverse, " .. what, dtype, most, {shape}, function(x) return linalg.inv(gram(x)) end)
    compare("cholesky, " .. what, dtype, most, {shape}, function(x) return linalg.cholesky(gram(x)) end)
    compare("slogdet, " .. what, dtype, most, {shape}, function(x) return (select(2, linalg.slogdet(gram(x)))) end)
    compare("eigenvalues, " .. what, dtype, most, {shape}, function(x) return linalg.eigvalsh(gram(x)) end)
  end
  for what, shape in pairs {tall = {3, 40, 18}, wide = {3, 18, 40}} do
    compare("singular values, " .. what, dtype, most, {shape}, linalg.svdvals)
    compare("U S V', " .. what, dtype, most, {shape}, function(x)
      local U, S, Vh = linalg.svd(x, {full_matrices = false})
      return U:matmul(S:unsqueeze(-1) * Vh)
    end)
    compare("Q R, " .. what, dtype, most, {shape}, function(x)
      local Q, R = linalg.qr(x)
      return Q:matmul(R)
    end)
    compare("least squares, " .. what, dtype, most, {shape, {3, shape[2], 2}}, function(x, b)
      return (linalg.lstsq(x, b))
    end)
  end
end
compare("attention, heads of 320", "bfloat16", few.bfloat16, {{1, 2, 70, 320}, {1, 2, 70, 320}, {1, 2, 70, 320}},
  F.scaled_dot_product_attention)
do
  local function numbers(...) return accelhost.randint(-99, 99, {...}, {device = "cpu"}) end
  local a, b = numbers(70, 90), numbers(90, 50)
  line("matmul int64", {off(a:cuda():matmul(b:cuda()), a:matmul(b):double())}, 0)
end
local gpu = accelhost.cuda.sensors()
print(gpu and ("sensors: %s %% busy, %s C, %s W"):format(gpu.utilization, gpu.temperature, gpu.power)
  or "sensors: none (NVML)")

-- Losses of 10 steps, eager and captured, which must be the same bits.
local function losses(device, compiled)
  accelhost.set_default_device(device)
  accelhost.manual_seed(3)
  local accelerator = accelhost.Accelerator {cpu = device == "cpu"}
  local net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
  local optimizer = optim.AdamW(net:parameters(), {lr = 0.01})
  net, optimizer = accelerator:prepare(net, optimizer)
  local function step(x, y)
    local loss = F.cross_entropy(net(x), y)
    accelerator:backward(loss)
    accelerator:clip_grad_norm_(net:parameters(), 1)
    optimizer:step()
    optimizer:zero_grad()
    return loss
  end
  if compiled then step = accelerator:compile(step) end
  accelhost.manual_seed(4)
  local x = accelhost.randn({32, 20}, {device = "cpu"}):to(device)
  local y = accelhost.randint(0, 5, {32}, {device = "cpu"}):to(device)
  local all = {}
  for i = 1, 10 do all[i] = step(x, y):item() end
  return all
end
local fine, message = pcall(function()
  local eager, captured, different = losses("cuda", false), losses("cuda", true), 0
  for i = 1, 10 do different = different + (eager[i] == captured[i] and 0 or 1) end
  line("10 steps captured, bits that differ", {different}, 0)
end)
if not fine then
  failed = failed + 1
  print("captured steps: " .. tostring(message))
end
print(("%d too far off"):format(failed))
os.exit(failed == 0 and 0 or 1)
