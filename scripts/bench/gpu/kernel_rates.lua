--- Kernels on a CUDA device against the card's peak rates. usage: kernel_rates.lua [smoke]
--
-- First the card's own measure: a copy within it (bytes read and written, GB/s) and a product of bfloat16 matrices
-- (TFLOP/s). Then each kernel's time, NAME_us, and NAME_share: of the copy's bandwidth, for the bytes that it has to
-- move (host/cuda/README.md), or of the matrix rate. Times are medians over blocks of calls, each between two waits for
-- the device and long enough that these do not count. kernel_rates.py has the same in PyTorch.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now
local F, optim = accelhost.nn.functional, accelhost.optim

local smoke = arg[1] == "smoke"
accelhost.set_default_device "cuda"
accelhost.manual_seed(1)
local BLOCK_SECONDS, BLOCKS = smoke and 0 or 0.03, smoke and 1 or 5

-- Microseconds of a call; its result is freed.
local function time_of(fn)
  local function call()
    local result = fn()
    if result then result:free() end
  end
  local function timed(count)
    accelhost.synchronize "cuda"
    local begin = now()
    for _ = 1, count do call() end
    accelhost.synchronize "cuda"
    return (now() - begin) / count
  end
  timed(smoke and 1 or 5)
  local count = math.max(1, math.ceil(BLOCK_SECONDS / timed(smoke and 1 or 5)))
  local times = {}
  for block = 1, BLOCKS do times[block] = timed(count) end
  table.sort(times)
  return 1e6 * times[math.floor(BLOCKS / 2) + 1]
end

local function small(size, tiny) return smoke and tiny or size end
local function random(shape, dtype) return accelhost.randn(shape):to(dtype or "float32") end

-- The peak rates, of which shares are measured.
local n = small(2 ^ 28, 1000)
local source, target = random({n}), accelhost.empty({n})
local copy = 2 * 4 * n / time_of(function() target:copy_(source) end) / 1e3
source:free()
target:free()
local side = small(8192, 16)
local left, right = random({side, side}, "bfloat16"), random({side, side}, "bfloat16")
local rate = 2 * side ^ 3 / time_of(function() return left:matmul(right) end) / 1e6
print("copy_gbs", copy)
print("matrix_tflops", rate)

local function print_rate(name, us, share)
  print(name .. "_us", us)
  print(name .. "_share", share)
end
local function bytes(name, count, fn)
  local us = time_of(fn)
  print_rate(name, us, count / us / 1e3 / copy)
end
local function operations(name, count, fn)
  local us = time_of(fn)
  print_rate(name, us, count / us / 1e6 / rate)
end

-- Forward and backward of a function of x.
local function both(x, fn)
  x:requires_grad_()
  local gradient
  return function()
    local y = fn(x)
    gradient = gradient or accelhost.ones_like(y)
    y:backward(gradient)
    y:free()
    x.grad = nil
  end
end

for _, dtype in ipairs {"float32", "bfloat16"} do
  local short, item = dtype == "float32" and "f32" or "bf16", dtype == "float32" and 4 or 2
  local count = small(2 ^ 27, 1000)
  local x, y = random({count}, dtype), random({count}, dtype)
  bytes("add_" .. short, 3 * item * count, function() return x + y end)
  bytes("mul_scalar_" .. short, 2 * item * count, function() return x * 1.5 end)
  bytes("gelu_" .. short, 2 * item * count, function() return F.gelu(x) end)
  bytes("sum_" .. short, item * count, function() return x:sum() end)
  bytes("dropout_" .. short, (2 * item + 1) * count, function() return F.dropout(x, 0.1) end)
  x:free()
  y:free()
  local rows, width = small(65536, 8), small(768, 24)
  local wide = random({rows, width}, dtype)
  local weight, bias = random({width}, dtype), random({width}, dtype)
  local function norm(t) return F.layer_norm(t, {width}, weight, bias) end
  bytes("layer_norm_" .. short, 2 * item * rows * width, function() return norm(wide) end)
  bytes("softmax_" .. short, 2 * item * rows * width, function() return wide:softmax(1) end)
  bytes("transpose_" .. short, 2 * item * rows * width, function() return wide:t():contiguous() end)
  bytes("sum_rows_" .. short, item * rows * width, function() return wide:sum(1) end)
  bytes("sum_columns_" .. short, item * rows * width, function() return wide:sum(0) end)
  bytes("layer_norm_both_" .. short, 5 * item * rows * width, both(wide, norm))
  wide:free()
end

do
  local rows, classes = small(8192, 8), small(50304, 40)
  local scores, labels = random({rows, classes}, "bfloat16"), accelhost.randint(0, classes, {rows})
  bytes("cross_entropy_both_bf16", 3 * 2 * rows * classes, both(scores, function(t)
    return F.cross_entropy(t, labels)
  end))
  scores:free()
  local vocabulary, width = small(50304, 40), small(768, 24)
  local table_, ids = random({vocabulary, width}), accelhost.randint(0, vocabulary, {small(16384, 30)})
  bytes("embedding_both_f32", 4 * width * (4 * ids:numel() + vocabulary), both(table_, function(t)
    return F.embedding(ids, t)
  end))
end

do
  local sizes, parameters, total = {50304 * 768, 1024 * 768}, {}, 0
  for _ = 1, 12 do for _, size in ipairs {768 * 2304, 768 * 768, 2 * 768 * 3072, 2304, 3072, 768} do
    sizes[#sizes + 1] = size
  end end
  for i, size in ipairs(sizes) do
    local parameter = accelhost.zeros({small(size, i)})
    parameter.requires_grad = true
    parameter.grad = accelhost.ones_like(parameter)
    parameters[i], total = parameter, total + parameter:numel()
  end
  local optimizer = optim.AdamW(parameters, {lr = 1e-3})
  bytes("adamw_124m", 7 * 4 * total, function() optimizer:step() end)
end

for _, size in ipairs {1024, 4096} do
  local edge = small(size, 16)
  local a, b = random({edge, edge}, "bfloat16"), random({edge, edge}, "bfloat16")
  operations(("matmul_%d_bf16"):format(size), 2 * edge ^ 3, function() return a:matmul(b) end)
end
do
  local rows, width = small(16384, 16), small(768, 16)
  local x, weight = random({rows, width}, "bfloat16"), random({4 * width, width}, "bfloat16")
  local bias = random({4 * width}, "bfloat16")
  operations("linear_bf16", 8 * rows * width ^ 2, function() return F.linear(x, weight, bias) end)
  local batch, heads, tokens = small(16, 1), small(12, 2), small(1024, 20)
  local function heads_of() return random({batch, heads, tokens, 64}, "bfloat16") end
  local q, k, v = heads_of(), heads_of(), heads_of()
  local flops = 2 * batch * heads * tokens ^ 2 * 64 -- two products, half of each masked
  operations("attention_bf16", flops, function() return F.scaled_dot_product_attention(q, k, v, {is_causal = true}) end)
  operations("attention_both_bf16", 3.5 * flops, both(q, function(t)
    return F.scaled_dot_product_attention(t, k, v, {is_causal = true})
  end))
end
print("peak_mb", accelhost.memory_stats("cuda").peak / 2 ^ 20)
