--- accelhost.backends and set_float32_matmul_precision: the ops that a CUDA device, here the simulated GPU, rounds to
--- TF32.
local sim = require "spec.support.sim"

-- product(), linear(), convolution(), gradient(): is 1 + 2^-9 + 2^-12 rounded to 1 + 2^-9 before it is multiplied? An
-- argument is another dtype than float32.
local HEAD = [[
  local accelhost = require "accelhost"
  local backends, nn, F = accelhost.backends, accelhost.nn, accelhost.nn.functional
  local value = 1 + 2 ^ -9 + 2 ^ -12
  local function holds(y) return y:reshape(-1)[0]:item() == 1 + 2 ^ -9 end
  local function full(size, x, dtype) return accelhost.full(size, x, {device = "cuda", dtype = dtype or "float32"}) end
  local function product(dtype) return holds(full({8, 8}, value, dtype):matmul(full({8, 8}, 1 / 8, dtype))) end
  local function linear(dtype) return holds(F.linear(full({8, 8}, value, dtype), full({8, 8}, 1 / 8, dtype))) end
  local function batch() return holds(full({2, 8, 8}, value):bmm(full({2, 8, 8}, 1 / 8))) end
  local function convolution(dtype)
    return holds(F.conv2d(full({1, 8, 6, 6}, value, dtype), full({8, 8, 1, 1}, 1 / 8, dtype)))
  end
  local function gradient()
    local x = full({1, 8, 6, 6}, 1):requires_grad_()
    F.conv2d(x, full({8, 8, 1, 1}, value / 8)):sum():backward()
    return holds(x.grad)
  end
]]

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local all = {ACCELHOST_SIM_TF32 = "1", TORCH_ALLOW_TF32_CUBLAS_OVERRIDE = false}
    for name, given in pairs(env or {}) do all[name] = given end
    local result = sim.host(HEAD .. code, all)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("TF32 on CUDA", function()
  case("rounds convolutions and no products, by default", "false\ttrue\tfalse\tfalse\tfalse\ttrue\ttrue\n", [[
    print(backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, product(), linear(), batch(), convolution(),
      gradient())]])

  case("rounds products while backends.cuda.matmul.allow_tf32 is on, whatever was multiplied before",
    "true\ttrue\ttrue\nfalse\tfalse\tfalse\n", [[
    product()
    backends.cuda.matmul.allow_tf32 = true
    print(product(), linear(), batch())
    backends.cuda.matmul.allow_tf32 = false
    print(product(), linear(), batch())]])

  case("rounds products at the precisions high and medium", "false\ntrue\ntrue\n", [[
    for _, name in ipairs {"highest", "high", "medium"} do
      accelhost.set_float32_matmul_precision(name)
      print(product())
    end]])

  case("rounds no convolution while backends.cudnn.allow_tf32 is off", "false\tfalse\n", [[
    convolution()
    backends.cudnn.allow_tf32 = false
    print(convolution(), gradient())]])

  case("rounds convolutions that are products by the switch of convolutions", "true\tfalse\nfalse\ttrue\n", [[
    backends.cudnn.enabled = false
    print(convolution(), product())
    backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = true, false
    print(convolution(), product())]])

  case("does not round float64, nor float32 on the CPU", "false\tfalse\tfalse\tfalse\n", [[
    accelhost.set_float32_matmul_precision "medium"
    local here = accelhost.full({8, 8}, value):matmul(accelhost.full({8, 8}, 1 / 8))
    print(product "float64", linear "float64", convolution "float64", holds(here))]])

  case("begins with products where TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is 1", "high\ttrue\n", [[
    print(accelhost.get_float32_matmul_precision(), product())]], {TORCH_ALLOW_TF32_CUBLAS_OVERRIDE = "1"})

  case("is switched on and off by TrainingArguments{tf32 = ...}", "true\ttrue\nfalse\tfalse\nfalse\tfalse\n", [[
    accelhost.TrainingArguments{tf32 = true}
    print(product(), convolution())
    accelhost.TrainingArguments{tf32 = false}
    print(product(), convolution())
    accelhost.TrainingArguments{}
    print(product(), convolution())]])

  case("cannot be changed under a compiled step", "1\nfalse\taccelhost.backends\n1\n", [[
    accelhost.set_default_device "cuda"
    local accelerator = accelhost.Accelerator()
    local x = full({8, 8}, 1 / 8)
    local step = accelerator:compile(function(input) return input:matmul(x):sum() / 8 end)
    for _ = 1, 3 do step(x) end
    print(step(x):item())
    backends.cuda.matmul.allow_tf32 = true
    local fine, message = pcall(step, x)
    print(fine, message:match "accelhost.backends")
    step:reset()
    print(step(x):item())]])
end)

describe("accelhost.backends", function()
  local accelhost = require "accelhost"
  local backends = accelhost.backends

  after_each(function() accelhost.set_float32_matmul_precision "highest" end)

  it("has one switch of products with set_float32_matmul_precision", function()
    assert.is_false(backends.cuda.matmul.allow_tf32)
    backends.cuda.matmul.allow_tf32 = true
    assert.equal("high", accelhost.get_float32_matmul_precision())
    accelhost.set_float32_matmul_precision "medium"
    assert.is_true(backends.cuda.matmul.allow_tf32)
    backends.cuda.matmul.allow_tf32 = false
    assert.equal("highest", accelhost.get_float32_matmul_precision())
  end)

  it("reads constant settings, and refuses to change them", function()
    assert.same({true, false}, {backends.cudnn.deterministic, backends.cudnn.benchmark})
    backends.cudnn.deterministic, backends.cudnn.benchmark = true, false
    assert.has_error(function() backends.cudnn.deterministic = false end,
      "backends.cudnn.deterministic is always true: algorithms that add up in a varying order are not used")
    assert.has_error(function() backends.cudnn.benchmark = true end, "backends.cudnn.benchmark is always false: "
      .. "cuDNN's heuristics choose, and their choice is kept for each shape")
  end)

  it("refuses other values and names", function()
    assert.has_error(function() backends.cuda.matmul.allow_tf32 = "yes" end,
      "backends.cuda.matmul.allow_tf32: expected true or false, got 'yes'")
    assert.has_error(function() backends.cudnn.allow_tf23 = true end,
      "backends.cudnn has no 'allow_tf23' (did you mean 'allow_tf32'?)")
    assert.has_error(function() return backends.cuda.matmul.fp32_precision end,
      "backends.cuda.matmul has no fp32_precision: allow_tf32 is the switch")
    assert.has_error(function() backends.cuda = {} end, "backends.cuda cannot be set")
    assert.has_error(function() accelhost.set_float32_matmul_precision "low" end,
      "set_float32_matmul_precision: precision: expected 'highest', 'high' or 'medium', got 'low'")
  end)

  it("refuses TrainingArguments{tf32 = true} without a CUDA device, and accepts false", function()
    local result = sim.host([[
      local accelhost = require "accelhost"
      print(accelhost.TrainingArguments{tf32 = false}.tf32, accelhost.backends.cudnn.allow_tf32)
      print((select(2, pcall(accelhost.TrainingArguments, {tf32 = true})):gsub("^%S+ ", "")))]],
      {ACCELHOST_SIM_DEVICES = "0"})
    assert.equal("false\tfalse\nTrainingArguments: tf32: there is no CUDA device of compute capability 8.0 or later, "
      .. "which has it\n", result.stdout, result.stderr)
  end)
end)
