--- Recurrent layers of CUDA devices on the simulated GPU against the CPU: every kind and dtype, both directions,
--- sequences of unequal lengths, and that no step waits for the device.
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local simulator = (run.path:gsub("[^/]*$", "")) .. "accelhost-cudasim.so"

-- off(make, input, dtype, lengths): how far a layer's results and all gradients on the GPU are from the CPU's in
-- float64, at most, relative to the largest of each.
local compare = [[
  local accelhost = require "accelhost"
  local nn = accelhost.nn
  local rnn = nn.utils.rnn
  local function run(model, x, state, lengths, device, dtype)
    model = model:to(device):to(dtype)
    model:zero_grad()
    local leaf = x:detach():clone():to(dtype):to(device):requires_grad_()
    local given = {}
    for i, part in ipairs(state) do given[i] = part:detach():clone():to(dtype):to(device):requires_grad_() end
    local input = lengths and rnn.pack_padded_sequence(leaf, lengths, {enforce_sorted = false}) or leaf
    local output, last = model(input, #given == 2 and given or given[1])
    if lengths then output = output.data end
    local results = {output}
    for _, part in ipairs(#given == 2 and last or {last}) do results[#results + 1] = part end
    local loss = 0
    for _, part in ipairs(results) do loss = loss + part:to("float64"):sin():sum() end
    loss:backward()
    results[#results + 1] = leaf.grad
    for _, part in ipairs(given) do results[#results + 1] = part.grad end
    for _, parameter in ipairs(model:parameters()) do results[#results + 1] = parameter.grad end
    for i, part in ipairs(results) do results[i] = part:detach():to "cpu":to "float64" end
    return results
  end
  function off(name, input, hidden, options, steps, batch, dtype, lengths)
    accelhost.manual_seed(1)
    local model = nn[name](input, hidden, options):to(dtype)
    local rows = (options.num_layers or 1) * (options.bidirectional and 2 or 1)
    local x, state = accelhost.randn(steps, batch, input):to(dtype), {}
    for i = 1, name == "LSTM" and 2 or 1 do state[i] = accelhost.randn(rows, batch, hidden):to(dtype) end
    local far = run(model, x, state, lengths, "cuda", dtype)
    local near, most = run(model, x, state, lengths, "cpu", "float64"), 0
    assert(#near == #far)
    for i, part in ipairs(near) do
      local distance = (part - far[i]):abs():max():item() / math.max(1, part:abs():max():item())
      if not (distance <= most) then most = distance end
    end
    return most
  end
]]

local function lengths_of(count, most)
  local lengths = {}
  for i = 1, count do lengths[i] = 1 + i * 7 % most end
  lengths[2] = most
  return "{" .. table.concat(lengths, ", ") .. "}"
end

describe("A recurrent layer on a CUDA device", function()
  local tolerance = {float64 = 1e-12, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2}
  local programs = {
    ["is the CPU's, for all kinds and dtypes, in both directions"] = [[
      for _, kind in ipairs{"LSTM", "GRU", "RNN", "relu"} do
        local options = {num_layers = 2, bidirectional = true, nonlinearity = kind == "relu" and "relu" or nil}
        for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
          print(dtype, off(kind == "relu" and "RNN" or kind, 3, 5, options, 4, 3, dtype))
        end
      end]],
    ["is the CPU's for sequences of unequal lengths, also of more than a block's worth"] = [[
      for _, kind in ipairs{"LSTM", "GRU", "RNN"} do
        local options = {bidirectional = true, bias = kind ~= "GRU"}
        print("float64", off(kind, 3, 9, options, 6, 40, "float64", ]] .. lengths_of(40, 6) .. [[))
        print("bfloat16", off(kind, 3, 8, options, 6, 40, "bfloat16", ]] .. lengths_of(40, 6) .. [[))
      end]],
  }
  for sentence, code in pairs(programs) do
    sim.case(sentence, function()
      local result, count = sim.host(compare .. code, {ACCELHOST_CUDA_ALLOCATOR = "poison"}), 0
      for dtype, off in result.stdout:gmatch "(%w+)%s+(%S+)\n" do
        count = count + 1
        assert.is_true(tonumber(off) <= tolerance[dtype], result.stdout .. result.stderr)
      end
      assert.is_true(result.code == 0 and count > 5, result.stderr)
    end)
  end

  sim.case("asks for a product and a kernel a step, there and back, and waits for nothing", function()
    local result = sim.host(([[
      local accelhost = require "accelhost"
      local ffi = require "ffi"
      ffi.cdef "const char *simulated_calls(void);"
      local simulator = ffi.load "SIMULATOR"
      accelhost.set_default_device "cuda"
      local function counts(steps)
        local model, x = accelhost.nn.LSTM(3, 4), accelhost.randn(2 * steps, 3)
        local sizes, found = accelhost.full({steps}, 2, {dtype = "int64", device = "cpu"}), {}
        for round = 1, 3 do
          for name, times in ffi.string(simulator.simulated_calls()):gmatch "(%S+) (%d+)" do
            found[name] = round == 3 and times - found[name] or tonumber(times)
          end
          if round < 3 then
            model(accelhost.nn.utils.rnn.PackedSequence(x, sizes)).data:sum():backward()
            model:zero_grad()
          end
        end
        return found
      end
      local few, many = counts(4), counts(14)
      for name, times in pairs(many) do
        if times ~= few[name] then print(name, (times - few[name]) / 10) end
      end
      print("waits", many.cuStreamSynchronize or 0)]]):gsub("SIMULATOR", simulator), {ACCELHOST_CUDA_CHECKS = "later"})
    local calls = {}
    for name, times in result.stdout:gmatch "(%S+)\t(%S+)" do calls[name] = tonumber(times) end
    assert.same({cuLaunchKernel = 2, cublasLtMatmul = 2, waits = 0}, calls, result.stdout .. result.stderr)
  end)

  sim.case("refuses tensors on two devices, but accepts the steps' sizes on the CPU", function()
    local result = sim.host [[
      local accelhost = require "accelhost"
      local C = require "accelhost._C"
      local g = accelhost.zeros({3, 4}, {device = "cuda"})
      local function try(h, sizes)
        return select(2, pcall(C.recurrent, g, h, nil, accelhost.zeros({4, 4}, {device = "cuda"}), nil, sizes,
          "RNN_TANH", false))
      end
      local sizes = accelhost.tensor({2, 1}, {dtype = "int64"})
      print(try(accelhost.zeros(2, 4), sizes))
      print(try(accelhost.zeros({2, 4}, {device = "cuda"}), sizes:to "cuda"))
      print(try(accelhost.zeros({2, 4}, {device = "cuda"}), sizes):shape()[1])]]
    assert.matches("all tensors but batch_sizes on one device, got gates on cuda:0 and hidden on cpu", result.stdout)
    assert.matches("expected batch_sizes int64 %(T,%) on cpu, got int64 %(2,%) on cuda:0", result.stdout)
    assert.matches("\n3\n$", result.stdout)
  end)

  sim.case("is captured with its backward as a graph, sequences of unequal lengths too", function()
    local result = sim.host [[
      local accelhost = require "accelhost"
      local nn = accelhost.nn
      accelhost.set_default_device "cuda"
      local sizes = accelhost.tensor({5, 3, 3, 1}, {dtype = "int64", device = "cpu"})
      local function train(compiled)
        accelhost.manual_seed(2)
        local accelerator = accelhost.Accelerator()
        local model = nn.LSTM(3, 4)
        local optimizer = accelhost.optim.SGD(model:parameters(), {lr = 0.1})
        model, optimizer = accelerator:prepare(model, optimizer)
        local function step(rows)
          local output = model(nn.utils.rnn.PackedSequence(rows, sizes))
          local loss = output.data:square():sum()
          accelerator:backward(loss)
          optimizer:step()
          optimizer:zero_grad()
          return loss
        end
        local call, losses = compiled and accelerator:compile(step) or step, {}
        for i = 1, 8 do losses[i] = ("%.17g"):format(call(accelhost.randn(12, 3)):item()) end
        return table.concat(losses, " "), call
      end
      local plain, graph, call = train(false), train(true)
      print(plain == graph, call.captured)]]
    assert.equal(0, result.code, result.stderr)
    run.prints("true\ttrue\n", result)
  end)
end)
