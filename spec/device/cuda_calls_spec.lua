--- The number of calls of the driver and its libraries in a training step: the host's work for a step on a GPU, counted
--- on the simulated one.
local sim = require "spec.support.sim"

-- The calls of a step once it is steady, as text that evaluates to a table.
local count = [[
  local accelhost = require "accelhost"
  local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
  local ffi = require "ffi"
  ffi.cdef "const char *simulated_calls(void);"
  accelhost.set_default_device "cuda"
  local accelerator = accelhost.Accelerator {mixed_precision = PRECISION}
  local net = NET
  local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
  net, optimizer = accelerator:prepare(net, optimizer)
  local loss_of = net.config and function(ids) return net({input_ids = ids, labels = ids}).loss end
    or function(x, y) return F.cross_entropy(net(x), y) end
  local function step(x, y)
    local loss = loss_of(x, y)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    return loss
  end
  if COMPILED then step = accelerator:compile(step) end
  local x, y = accelhost.randn {4, 1, 14, 14}, accelhost.randint(0, 10, {4})
  if net.config then x = accelhost.randint(0, 40, {2, 16}) end
  for _ = 1, 5 do step(x, y) end
  local simulator = ffi.load "SIMULATOR"
  local function counts()
    local found = {allocations = accelhost.memory_stats("cuda").allocations}
    for name, times in ffi.string(simulator.simulated_calls()):gmatch "(%S+) (%d+)" do found[name] = tonumber(times) end
    return found
  end
  local before = counts()
  for _ = 1, 10 do step(x, y) end
  for name, times in pairs(counts()) do
    local each = (times - (before[name] or 0)) / 10
    if each > 0 then print(name, each) end
  end
]]

local nets = {
  ["BasicNet"] = [[nn.Sequential(nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 10))]],
  ["the CNN of MNIST"] = [[nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(200, 16), nn.ReLU(), nn.Linear(16, 10))]],
}

local function calls_of(net, compiled, precision)
  local code = count:gsub("NET", {NET = nets[net]}):gsub("COMPILED", tostring(compiled)):gsub("SIMULATOR", sim.library)
    :gsub("PRECISION", ("%q"):format(precision or "no"))
  local result = sim.host(code, {ACCELHOST_CUDA_CHECKS = "later", ACCELHOST_CUDA_ALLOCATOR = false})
  assert.equal(0, result.code, result.stderr)
  local calls = {}
  for name, times in result.stdout:gmatch "(%S+)\t(%S+)" do calls[name] = tonumber(times) end
  return calls
end

-- The most that is allowed of each call, and nothing else.
local most = {
  ["BasicNet"] = {allocations = 11, cuLaunchKernel = 8, cublasLtMatmul = 5},
  ["the CNN of MNIST"] = {
    allocations = 39, cuLaunchKernel = 26, cuMemcpyDtoDAsync_v2 = 4, cublasLtMatmul = 6, cudnnBackendExecute = 5,
  },
}
-- The same without TF32, so that nothing is turned to channels-last.
most["the CNN of MNIST in float32"] = {
  allocations = 31, cuLaunchKernel = 18, cuMemcpyDtoDAsync_v2 = 4, cublasLtMatmul = 6, cudnnBackendExecute = 5,
}
nets["the CNN of MNIST in float32"] = nets["the CNN of MNIST"] .. "\naccelhost.backends.cudnn.allow_tf32 = false"
local replayed = {cuGraphLaunch = 1, cuLaunchKernel = 1, cuMemcpyDtoDAsync_v2 = 2}

-- The calls that a scaler adds: one answer of the device; any answer also reports an index out of range.
local function with_answer(calls)
  for _, name in ipairs {"cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuMemcpyDtoHAsync_v2"} do
    calls[name] = 2
  end
  return calls
end
local in_float16 = with_answer {allocations = 21, cuLaunchKernel = 18, cuMemcpyDtoDAsync_v2 = 1, cuMemsetD8Async = 1,
  cublasLtMatmul = 5}
local replayed_in_float16 = with_answer {cuGraphLaunch = 1, cuLaunchKernel = 1, cuMemcpyDtoDAsync_v2 = 2}

local function check(net, compiled, allowed, precision)
  local calls = calls_of(net, compiled, precision)
  for name, times in pairs(calls) do
    assert.is_true(times <= (allowed[name] or 0), ("%s: %s %g times, allowed %d"):format(net, name, times,
      allowed[name] or 0))
  end
  assert.is_true((calls.cuLaunchKernel or 0) > 0)
end

local gpt2 = [[accelhost.models.GPT2LMHeadModel {vocab_size = 40, n_positions = 16, n_embd = 32, n_layer = LAYERS,
  n_head = 2, activation_function = "gelu_new", resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}]]
nets["GPT-2 of one layer"], nets["GPT-2 of two layers"] = gpt2:gsub("LAYERS", "1"), gpt2:gsub("LAYERS", "2")

describe("A layer of GPT-2", function()
  -- Forward: attention and two norms, each with the sum before it. Backward: norms and the gradients of their
  -- parameters 2 * 4, attention 3. In bfloat16 8 parameters of linear maps are cast; their gradients are stored in the
  -- arena by the products.
  local expected = {
    bf16 = {cuLaunchKernel = 22, cuMemcpyDtoDAsync_v2 = 4, cublasLtMatmul = 12},
    no = {cuLaunchKernel = 14, cuMemcpyDtoDAsync_v2 = 4, cublasLtMatmul = 12},
  }
  for precision, most_of_layer in pairs(expected) do
    sim.case(("copies no activation and clears nothing, mixed_precision = %q"):format(precision), function()
      local one = calls_of("GPT-2 of one layer", false, precision)
      local two = calls_of("GPT-2 of two layers", false, precision)
      for _, name in ipairs {"cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cublasLtMatmul", "cuMemsetD8Async"} do
        local times = (two[name] or 0) - (one[name] or 0)
        assert.is_true(times <= (most_of_layer[name] or 0), ("%s: %g times, allowed %d"):format(name, times,
          most_of_layer[name] or 0))
      end
    end)
  end
end)

describe("A steady step", function()
  for net, allowed in pairs(most) do
    sim.case("of " .. net .. " makes no call that it does not need", function() check(net, false, allowed) end)
    sim.case("of " .. net .. " that is compiled makes four, whatever its size", function()
      check(net, true, replayed)
    end)
  end
  sim.case("in float16 waits for the device once, for its scaler", function()
    check("BasicNet", false, in_float16, "fp16")
    check("BasicNet", true, replayed_in_float16, "fp16")
  end)
end)
