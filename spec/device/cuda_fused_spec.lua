--- Savings of fused kernels on the simulated GPU: memory, launches, passes over it.
local sim = require "spec.support.sim"

local preamble = [[
  local accelhost = require "accelhost"
  local nn, F = accelhost.nn, accelhost.nn.functional
  accelhost.set_default_device "cuda"
]]

local function prints(wanted, code)
  local result = sim.host(preamble .. code)
  assert.equal("", result.stderr)
  assert.equal(wanted, result.stdout)
end

describe("linear_cross_entropy on a CUDA device", function()
  local training = [[
    local function losses(compiled)
      accelhost.manual_seed(2)
      local accelerator = accelhost.Accelerator {mixed_precision = PRECISION}
      local body, head = nn.Linear(8, 16), nn.Linear(16, 300)
      local net = nn.Sequential(body, head)
      local prepared, optimizer = accelerator:prepare(net, accelhost.optim.SGD(net:parameters(), {lr = 0.5}))
      local function step(x, y)
        local loss = accelerator:autocast(function()
          return F.linear_cross_entropy(body(x), head.weight, y, {linear_bias = head.bias,
            options = {batch_chunk_size = CHUNK}})
        end)
        accelerator:backward(loss)
        optimizer:step()
        optimizer:zero_grad()
        return loss
      end
      local call, list = compiled and accelerator:compile(step) or step, {}
      for i = 1, 5 do
        list[i] = ("%.9g"):format(call(accelhost.randn(20, 8), accelhost.randint(0, 300, {20})):item())
      end
      return table.concat(list, " ")
    end]]

  for precision, tolerance in pairs {no = 1e-5, bf16 = 2e-2} do
    sim.case("has the bits of its chunks in a captured step, mixed_precision = " .. precision, function()
      local function code(chunk)
        return (training:gsub("PRECISION", ("%q"):format(precision)):gsub("CHUNK", chunk))
      end
      prints("true\ttrue\n", "local whole, chunked do\n" .. code(100) .. "\nwhole = losses() end do\n" .. code(6) .. [[
        chunked = losses()
        local far, next_of = 0, chunked:gmatch "%S+"
        for number in whole:gmatch "%S+" do far = math.max(far, math.abs(number - next_of())) end
        print(far < ]] .. tolerance .. [[, chunked == losses(true)) end]])
    end)
  end
end)

describe("fused kernels on a CUDA device", function()
  sim.case("read scores that autocast made, and write the gradient over those without references", function()
    -- Of n scores: 2 bytes each, and 2 for the gradient where the scores are held; no copy in float32.
    prints("4\n2\n", [[
      local rows, classes = 256, 2048
      local head = nn.Linear(4, classes, {bias = false})
      local x, labels = accelhost.randn(rows, 4), accelhost.arange(rows)
      for _, held in ipairs {true, false} do
        collectgarbage()
        local before = accelhost.memory_stats("cuda").live
        accelhost.cuda.reset_peak_memory_stats()
        local loss = accelhost.autocast("cuda", {dtype = "bfloat16"}, function()
          local scores = head(x:view(4, -1, 4))
          local flat = scores:flatten(0, 1)
          local loss = F.cross_entropy(flat, labels)
          if not held then flat:free() scores:free() end
          return loss
        end)
        loss:backward()
        local peak = accelhost.memory_stats("cuda").peak - before
        print(math.floor(peak / (rows * classes) + 0.1))
      end]])
  end)

  -- Kernels and products of the code between.
  local counting = [[
    local ffi = require "ffi"
    ffi.cdef "const char *simulated_calls(void);"
    local simulator = ffi.load "SIMULATOR"
    local function count(name)
      return tonumber(ffi.string(simulator.simulated_calls()):match(name .. " (%d+)") or 0)
    end
    local function counted(fn)
      local kernels, products = count "cuLaunchKernel", count "cublasLtMatmul"
      local made = {fn()}
      print(count "cuLaunchKernel" - kernels, count "cublasLtMatmul" - products)
      return unpack(made)
    end
  ]]
  counting = counting:gsub("SIMULATOR", sim.library)

  sim.case("do GELU, its slope and sums for biases within products", function()
    prints("0\t2\n0\t4\n", counting .. [[
      local net = nn.Sequential(nn.Linear(16, 32), nn.GELU {approximate = "tanh"}, nn.Linear(32, 8))
      local x, g = accelhost.randn(24, 16):requires_grad_(), accelhost.randn(24, 8)
      local y = counted(function() return net(x) end)
      counted(function() y:backward(g) end)]])
  end)

  sim.case("run kernels where cuBLASLt has no epilogue", function()
    prints("1\t2\n1\t4\n", counting .. [[
      local net = nn.Sequential(nn.Linear(16, 30), nn.GELU {approximate = "tanh"}, nn.Linear(30, 8))
      local x, g = accelhost.randn(24, 16):requires_grad_(), accelhost.randn(24, 8)
      local y = counted(function() return net(x) end)
      counted(function() y:backward(g) end)]])
  end)

  sim.case("add a residual and normalise it at once, and so their gradients", function()
    -- Backward: the sum's gradient, rounded for y as well, and three for weight and bias.
    prints("1\t0\n4\t0\n", counting .. [[
      local of_sum = require("accelhost.nn.norm").of_sum
      local layer, x, y = nn.LayerNorm(64), accelhost.randn(8, 64), accelhost.randn(8, 64):bfloat16()
      x:requires_grad_(); y:requires_grad_()
      local g, h = accelhost.randn(8, 64), accelhost.randn(8, 64)
      local normal, sum = counted(function() return of_sum(layer, x, y) end)
      counted(function() accelhost.autograd.backward({normal, sum}, {g, h}) end)]])
  end)
end)
