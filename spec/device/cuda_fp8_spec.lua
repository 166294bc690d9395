--- mixed_precision = "fp8" on a CUDA device: cuBLASLt's products of 8-bit floats have the CPU's numbers, a captured
--- step those of the function.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local C = require "accelhost._C"
  local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
  local function train(device, compiled, steps, options)
    accelhost.manual_seed(3)
    local kwargs = accelhost.TERecipeKwargs(options or {amax_history_len = 3, amax_compute_algo = "max"})
    local accelerator = accelhost.Accelerator {
      mixed_precision = "fp8", cpu = device == "cpu", kwargs_handlers = {kwargs},
    }
    local net = nn.Sequential(nn.Linear(32, 48), nn.GELU("tanh"), nn.Linear(48, 16))
    local optimizer = optim.AdamW(net:parameters(), {lr = 0.01})
    net, optimizer = accelerator:prepare(net, optimizer)
    local function step(x, y)
      local loss = F.mse_loss(net(x), y)
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      return loss
    end
    local call, losses = compiled and accelerator:compile(step) or step, {}
    for i = 1, steps do
      local x, y = accelhost.randn({21, 32}, {device = "cpu"}) * i, accelhost.randn({21, 16}, {device = "cpu"})
      losses[i] = call(x:to(accelerator.device), y:to(accelerator.device)):item()
    end
    assert(not compiled or call.captured)
    return losses, accelerator._precision.fp8.models[net]
  end
]]

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local result = sim.host(HEAD .. code, env)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("8-bit floats on CUDA", function()
  case("have the CPU's codes and amaxes, of float32 and halves", "true\ttrue\n", [[
    accelhost.manual_seed(1)
    local same, largest = true, true
    for _, dtype in ipairs {"float32", "float16", "bfloat16"} do
      for _, e5m2 in ipairs {false, true} do
        local x = (accelhost.randn {77, 53} * accelhost.arange(77):unsqueeze(1)):to(dtype)
        local one = accelhost.full({}, 3.0)
        local function codes(device, turned)
          local amax = accelhost.zeros({}, {device = device})
          local given = x:to(device)
          local made = C.fp8_quantize(turned and given:t() or given, one:to(device), amax, e5m2)
          return made:to("cpu"):int(), amax:to "cpu"
        end
        for _, turned in ipairs {false, true} do
          local here, amax = codes("cpu", turned)
          local there, amax_there = codes("cuda", turned)
          same = same and (here - there):abs():sum():item() == 0
          largest = largest and amax:item() == amax_there:item()
        end
      end
    end
    print(same, largest)]])

  case("are multiplied in any order in memory, with any depth", "true\n", [[
    accelhost.manual_seed(1)
    local fine = true
    for _, depth in ipairs {16, 21, 5} do
      local a = accelhost.randint(-8, 9, {9, depth}):float()
      local b = accelhost.randint(-4, 5, {32, depth}):float()
      local bias = accelhost.randint(-4, 5, {32}):float()
      local function product(device, turned, dtype)
        local one, half = accelhost.ones({}, {device = device}), accelhost.full({}, 0.5, {device = device})
        local x, w = C.fp8_quantize(a:to(device), one, nil, true), C.fp8_quantize(b:to(device), one)
        if turned then x, w = x:t():contiguous():t(), w:t():contiguous():t() end
        return C.fp8_matmul(x, w, half, one, bias:to(dtype):to(device), true, false, dtype):to("cpu"):float()
      end
      for _, dtype in ipairs {"float32", "bfloat16"} do
        local wanted = product("cpu", false, dtype)
        for _, turned in ipairs {false, true} do
          fine = fine and (wanted - product("cuda", turned, dtype)):abs():max():item() == 0
        end
      end
    end
    print(fine)]])

  case("train as on the CPU", "true\n", [[
    local here, there, fine = train("cpu", false, 6), train("cuda", false, 6), true
    for i, loss in ipairs(here) do fine = fine and math.abs(loss - there[i]) < 5e-3 * loss end
    print(fine)]])

  case("train in a captured step to the bits of the function, scales included", "true\ttrue\ttrue\n", [[
    local eager, scales = train("cuda", false, 7)
    local replayed, captured = train("cuda", true, 7)
    local same = true
    for i, loss in ipairs(eager) do same = same and loss == replayed[i] end
    print(same, (scales.scale - captured.scale):abs():sum():item() == 0,
      (scales.history - captured.history):abs():sum():item() == 0)]])

  case("are refused in a captured step with an interval", "compile: the FP8 recipe's interval is 2\n", [[
    local fine, text = pcall(train, "cuda", true, 3, {interval = 2})
    print(text:match "compile: the FP8 recipe's interval is %d")]])

  case("are refused by a card without them", ("Accelerator: mixed_precision = 'fp8': " .. [[
8-bit floats need compute capability 8.9, cuda:0 (simulated GPU) has 8.6; use 'bf16'
fp8_matmul: 8-bit floats need compute capability 8.9, cuda:0 has 8.6
]]), [[
    local function report(fn)
      local _, text = pcall(fn)
      print((text:gsub("^[^ ]*:%d+: ", "")))
    end
    report(function() train("cuda", false, 1) end)
    report(function()
      local codes = accelhost.zeros({16, 16}, {dtype = "uint8", device = "cuda"})
      local one = accelhost.ones({}, {device = "cuda"})
      C.fp8_matmul(codes, codes, one, one, nil, false, false, "float32")
    end)]], {ACCELHOST_SIM_CAPABILITY = 86})
end)
