--- mixed_precision = "fp8": codes and trainings against PyTorch's float8 dtypes (scripts/fixtures/fp8.py), and the
--- state of the scales. With ACCELHOST_TEST_DEVICE=cuda the same on a GPU.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local fixtures = require "spec.support.fixtures"
local folder = require "spec.support.folder"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
local expected = fixtures.load "fp8"

-- Numbers that bfloat16 holds, as the fixture's.
local function grid(rows, columns, step)
  local n = accelhost.arange(rows * columns) * step
  return ((n % 61):float() / 16 - 1.75):reshape(rows, columns)
end

local function assert_near(wanted, got, most)
  assert.same(wanted:shape(), got:shape())
  assert.is_true((wanted - got):abs():max():item() <= most)
end

local function new_net()
  local net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))
  accelhost.no_grad(function()
    net[1].weight:copy_(grid(48, 32, 37) / 8)
    net[1].bias:copy_(grid(1, 48, 11)[0] / 8)
    net[3].weight:copy_(grid(16, 48, 23) / 8)
    net[3].bias:copy_(grid(1, 16, 7)[0] / 8)
  end)
  return net
end

local function recipe_of(options)
  return {accelhost.TERecipeKwargs(options)}
end

local Run = {}
Run.__index = Run

local function new_run(options, accumulation)
  local accelerator = accelhost.Accelerator {
    mixed_precision = "fp8", kwargs_handlers = recipe_of(options), gradient_accumulation_steps = accumulation,
  }
  local net = new_net()
  local optimizer = optim.SGD(net:parameters(), {lr = 0.002})
  net, optimizer = accelerator:prepare(net, optimizer)
  return setmetatable({accelerator = accelerator, net = net, optimizer = optimizer}, Run)
end

-- One step, of data that depends on its number from 0; returns the loss.
function Run:step(number)
  local accelerator, device = self.accelerator, self.accelerator.device
  local input = (grid(20, 32, 29 + 2 * number) * (1 + number)):to(device)
  local target = grid(20, 16, 41):to(device)
  return accelerator:accumulate(self.net, function()
    local loss = F.mse_loss(self.net(input), target)
    accelerator:backward(loss)
    self.optimizer:step()
    self.optimizer:zero_grad()
    return loss:item()
  end)
end

function Run:scales() return self.accelerator._precision.fp8.models[self.net] end

describe("codes of 8-bit floats", function()
  for _, format in ipairs {"e4m3", "e5m2"} do
    it("are those of PyTorch for every bfloat16, saturated, " .. format, function()
      local first = expected.codes[format]
      local wanted, code = {}, 0
      for bits = 0, 0x7f7f do
        while first[code + 2] and bits >= first[code + 2] do code = code + 1 end
        wanted[bits + 1] = code
      end
      wanted[#wanted + 1] = #first - 1 -- infinity
      local bits = {}
      for i = 0, 0x7f80 do bits[i + 1] = i end
      local numbers = accelhost.tensor(bits, {dtype = "int32"}):mul(65536):view("float32")
      local one = accelhost.ones {}
      for sign = 0, 1 do
        local given = sign == 0 and numbers or -numbers
        for _, dtype in ipairs {"float32", "bfloat16"} do
          local codes = C.fp8_quantize(given:to(dtype), one, nil, format == "e5m2")
          assert.equal(0, (codes:int() - accelhost.tensor(wanted, {dtype = "int32"}) - 128 * sign):abs():sum():item())
        end
      end
    end)
  end

  it("round float32 between two codes to the nearest, and ties to even", function()
    local codes = C.fp8_quantize(accelhost.tensor {1.0624, 1.0625, 1.0626, 1.1875, 2 ^ -10, 1.5 * 2 ^ -9, 464, 1e30},
      accelhost.ones {})
    assert.same({0x38, 0x38, 0x39, 0x3a, 0, 2, 0x7e, 0x7e}, codes:tolist())
  end)

  it("of nan are nan, whose amax is nan", function()
    local amax = accelhost.zeros {}
    local codes = C.fp8_quantize(accelhost.tensor {0 / 0, 1}, accelhost.ones {}, amax, true)
    assert.equal(0x7f, codes[0]:item() % 128)
    assert.is_true(amax:isnan():item())
  end)

  it("raise amax, and leave a larger one", function()
    local amax = accelhost.zeros {}
    C.fp8_quantize(accelhost.tensor {1, -5, 2}, accelhost.full({}, 3.0), amax)
    assert.equal(5, amax:item())
    C.fp8_quantize(accelhost.tensor {4}, accelhost.ones {}, amax)
    assert.equal(5, amax:item())
  end)
end)

describe("a product of 8-bit floats", function()
  it("is that of the numbers, of any order in memory and any depth", function()
    accelhost.manual_seed(3)
    local one, half = accelhost.ones {}, accelhost.full({}, 0.5)
    local a, b = accelhost.randint(-8, 9, {7, 20}):float(), accelhost.randint(-4, 5, {16, 20}):float()
    local left, right = C.fp8_quantize(a, one), C.fp8_quantize(b, one, nil, true)
    local function product(x, y, dtype, bias)
      return C.fp8_matmul(x, y, half, half, bias, false, true, dtype)
    end
    local dense = product(left, right, "float32")
    assert.same((a:matmul(b:t()) / 4):tolist(), dense:tolist())
    local turned = product(left:t():contiguous():t(), right:t():contiguous():t(), "float32")
    assert.same(dense:tolist(), turned:tolist())
    local bias = accelhost.randn {16}
    assert_near(dense + bias, product(left, right, "float32", bias), 1e-6)
    local halves = product(left, right, "bfloat16", bias:bfloat16())
    assert.equal("bfloat16", halves.dtype)
    assert_near(dense + bias:bfloat16():float(), halves:float(), 0.1)
  end)

  it("refuses two operands in e5m2", function()
    local codes, one = accelhost.zeros({16, 16}, {dtype = "uint8"}), accelhost.ones {}
    assert.error_matches(function() C.fp8_matmul(codes, codes, one, one, nil, true, true, "float32") end,
      "fp8_matmul: expected one operand in e4m3, got both in e5m2")
  end)
end)

describe("training in FP8", function()
  for i, training in ipairs(expected.trainings) do
    it(("has the losses and scales of the recipe (%d)"):format(i), function()
      local run = new_run(training.recipe, training.accumulation)
      for number, wanted in ipairs(training.losses) do
        local loss = run:step(number - 1)
        assert.is_true(math.abs(loss - wanted) < 2e-3 * wanted,
          ("step %d: %.6f, not %.6f"):format(number, loss, wanted))
      end
      for k, scale in ipairs(run:scales().scale:tolist()) do
        assert.is_true(math.abs(scale - training.scale[k]) < 1e-2 * training.scale[k],
          ("scale %d: %g, not %g"):format(k, scale, training.scale[k]))
      end
      for k, parameter in ipairs(run.net:parameters()) do
        local sum = parameter:double():abs():sum():item()
        assert.is_true(math.abs(sum - training.weights[k]) < 1e-3 * training.weights[k])
      end
    end)
  end
end)

describe("FP8 layers", function()
  local function losses_of(run, first, last)
    local losses = {}
    for number = first, last do losses[#losses + 1] = run:step(number) end
    return losses
  end

  it("continue to the bit from a saved state", function()
    folder.with(function(path)
      local options = {amax_history_len = 3, amax_compute_algo = "max", interval = 2}
      local run = new_run(options, 1)
      losses_of(run, 0, 2)
      run.accelerator:save_state(path .. "/state")
      local wanted = losses_of(run, 3, 5)
      local again = new_run(options, 1)
      again.accelerator:load_state(path .. "/state")
      assert.same(wanted, losses_of(again, 3, 5))
      local longer = new_run({amax_history_len = 5}, 1)
      assert.error_matches(function() longer.accelerator:load_state(path .. "/state") end,
        "load_state: FP8: expected 5 amaxes of 2 layers, got 3 of 2")
    end)
  end)

  it("compute in bfloat16 in eval mode, and keep no amax without gradients", function()
    local run = new_run({}, 1)
    local scales, x = run:scales(), grid(20, 32, 29):to(run.accelerator.device)
    run.net:eval()
    local y = run.net(x)
    assert.equal(0, scales.newest:abs():sum():item())
    local plain = accelhost.autocast(run.accelerator.device:match "^%a+", {dtype = "bfloat16"}, function()
      return F.linear(F.relu(F.linear(x, run.net[1].weight, run.net[1].bias)), run.net[3].weight, run.net[3].bias)
    end)
    assert.same(plain:float():tolist(), y:tolist())
    run.net:train()
    accelhost.no_grad(function() run.net(x) end)
    assert.equal(0, scales.newest:abs():sum():item())
    run.net(x)
    assert.is_true(scales.newest:abs():sum():item() > 0)
  end)

  it("keep their scales within no_sync", function()
    local run = new_run({}, 1)
    local accelerator, x = run.accelerator, grid(20, 32, 29):to(run.accelerator.device)
    accelerator:no_sync(run.net, function() accelerator:backward(run.net(x):sum()) end)
    assert.same(accelhost.ones(6):tolist(), run:scales().scale:tolist())
    accelerator:backward(run.net(x):sum())
    assert.not_same(accelhost.ones(6):tolist(), run:scales().scale:tolist())
  end)

  it("leave a graph its scales where another backward changes them", function()
    local run = new_run({}, 1)
    local accelerator, x = run.accelerator, grid(20, 32, 29):to(run.accelerator.device)
    local function gradient(between)
      run.optimizer:zero_grad()
      local loss = run.net(x):pow(2):mean()
      if between then between() end
      accelerator:backward(loss)
      return run.net[1].weight.grad:clone()
    end
    local alone = gradient()
    local other = new_run({}, 1)
    run = other
    accelerator = other.accelerator
    local after = gradient(function()
      accelerator:backward(run.net(x):sum())
      run.optimizer:zero_grad()
    end)
    assert.same(alone:tolist(), after:tolist())
  end)

  it("are computed again by a checkpoint with the same scales", function()
    local function gradient(recomputes)
      local run = new_run({}, 1)
      local net, accelerator = run.net, run.accelerator
      if recomputes then
        local first = net[1].forward
        net[1].forward = function(...) return accelhost.utils.checkpoint.checkpoint(first, ...) end
      end
      for _ = 1, 2 do accelerator:backward(net(grid(20, 32, 29):to(accelerator.device)):pow(2):mean()) end
      return net[1].weight.grad:tolist(), run:scales().scale:tolist()
    end
    local grad, scale = gradient(false)
    local grad_again, scale_again = gradient(true)
    assert.same(grad, grad_again)
    assert.same(scale, scale_again)
  end)

  it("are those of nn.Linear whose sizes are multiples of 16", function()
    local accelerator = accelhost.Accelerator {mixed_precision = "fp8"}
    local net = accelerator:prepare(nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 10), nn.Linear(10, 16)))
    assert.same({"0"}, accelerator._precision.fp8.models[net].names)
    accelerator:unwrap_model(net, {keep_fp32_wrapper = false})
    assert.equal(nn.Linear.forward, net[1].forward)
    assert.error_matches(function() accelerator:prepare(nn.Linear(16, 10)) end,
      "prepare: mixed_precision = 'fp8': the model has no nn.Linear whose sizes are multiples of 16; use 'bf16'")
  end)

  it("have Accelerate's recipe, whose other values are refused with a reason", function()
    local kwargs = accelhost.FP8RecipeKwargs {fp8_format = "hybrid"}
    assert.same({"HYBRID", 1024, "most_recent", "TE"}, {kwargs.fp8_format, kwargs.amax_history_len,
      kwargs.amax_compute_algo, kwargs.backend})
    assert.equal("TE", accelhost.Accelerator {mixed_precision = "fp8", kwargs_handlers = {kwargs}}.fp8_backend)
    assert.equal("NO", accelhost.Accelerator().fp8_backend)
    for text, fn in pairs {
      ["TERecipeKwargs: fp8_format: E5M2 alone has no products"] = function()
        accelhost.TERecipeKwargs {fp8_format = "E5M2"}
      end,
      ["TERecipeKwargs: fp8_format: expected HYBRID or E4M3, got 'E3M4'"] = function()
        accelhost.TERecipeKwargs {fp8_format = "e3m4"}
      end,
      ["TERecipeKwargs: override_linear_precision: the three products"] = function()
        accelhost.TERecipeKwargs {override_linear_precision = {false, false, true}}
      end,
      ["FP8RecipeKwargs: backend: expected TE, got 'MSAMP'"] = function()
        accelhost.FP8RecipeKwargs {backend = "msamp"}
      end,
      ["Accelerator: kwargs_handlers: TERecipeKwargs: only mixed_precision = 'fp8' computes"] = function()
        accelhost.Accelerator {mixed_precision = "bf16", kwargs_handlers = {accelhost.TERecipeKwargs()}}
      end,
      ["Accelerator: mixed_precision = 'fp8' excludes virtual_shards: "] = function()
        accelhost.Accelerator {mixed_precision = "fp8", virtual_shards = 2}
      end,
      ["Accelerator: mixed_precision = 'fp8' excludes sharding = 'full': "] = function()
        accelhost.Accelerator {mixed_precision = "fp8", sharding = "full"}
      end,
    } do
      assert.error_matches(fn, text)
    end
  end)
end)
