--- Matrix products on a CUDA device: on the simulated GPU which of cuBLASLt's algorithms compute them.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  accelhost.set_default_device "cuda"
  COUNTS
]]

local function run(code, env) return sim.host(HEAD .. code, env) end

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local result = run(code, env)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("A product on CUDA", function()
  for _, dtype in ipairs {"float16", "bfloat16"} do
    case("of " .. dtype .. " rounds no partial sums to it", "true\n", ([[
      accelhost.manual_seed(1)
      local a, b = accelhost.randn {24, 512}, accelhost.randn {512, 24}
      a, b = a:to "%s", b:to "%s"
      print(a:mm(b):eq(a:float():mm(b:float()):to "%s"):all():item())]]):format(dtype, dtype, dtype))
  end

  local refused = [[
    local a = accelhost.arange(6):reshape(2, 3):float()
    local function product() return a:mm(a:t()):sum():item() end
    print(pcall(product)) print(pcall(product))]]
  case("uses the next algorithm where cuBLASLt refuses the first one", "true\t83\ntrue\t83\n", refused,
    {ACCELHOST_SIM_FAIL = "blas:1"})
  sim.case("is an error that names cuBLASLt's where all are refused", function()
    local result = run(refused, {ACCELHOST_SIM_FAIL = "blas:1+"})
    assert.matches("^false\t.*matmul: cuBLASLt: a product: CUBLAS_STATUS_NOT_SUPPORTED", result.stdout, nil, nil,
      result.stderr)
  end)

  -- Of the simulator's algorithms the second splits the depth, and the fourth adds up as the first does.
  local TUNED = {ACCELHOST_CUDA_TUNE = 1, ACCELHOST_SIM_SLOW_PRODUCT = 1}
  local tuned = [[
    accelhost.manual_seed(3)
    local x, w, bias = accelhost.randn {24, 64}, accelhost.randn {16, 64}, accelhost.randn {16}
    local F = accelhost.nn.functional
    local function gradient(y) y:sum():backward() end
    local ops = {
      function() return x:mm(w:t()) end,
      function() return x:to "bfloat16":mm(w:to "bfloat16":t()) end,
      function() return accelhost.addmm(x:mm(w:t()), x, w:t()) end,
      function() return F.linear(x, w, bias) end,
      function() return x:reshape(2, 12, 64):bmm(x:reshape(2, 12, 64):transpose(1, 2)) end,
      function()
        local net = accelhost.nn.Sequential(accelhost.nn.Linear(64, 16), accelhost.nn.GELU {approximate = "tanh"},
          accelhost.nn.Linear(16, 8))
        for _, p in ipairs(net:parameters()) do p:requires_grad_(false):copy_(accelhost.ones_like(p) * 0.01) end
        for _, p in ipairs(net:parameters()) do p:requires_grad_(true) end
        net(x):sum():backward()
        return net:parameters()[1].grad
      end,
      function() return accelhost.zeros {8, 32}:mm(accelhost.zeros {32, 8}) end,
    }
    for i, op in ipairs(ops) do
      local first, same = op(), true
      for _ = 1, 3 do same = same and first:eq(op()):all():item() end
      local before, split = calls "cublasLtMatmul:4", calls "cublasLtMatmul:2"
      op()
      print(i, same, calls "cublasLtMatmul:4" > before, calls "cublasLtMatmul:2" == split)
    end]]
  local each = ("%d\ttrue\ttrue\ttrue\n"):rep(7):format(1, 2, 3, 4, 5, 6, 7)
  case("uses the fastest algorithm with the same bits from the second use of its shape on", each, tuned, TUNED)
  case("uses the first algorithm with ACCELHOST_CUDA_TUNE=0", (each:gsub("true\ttrue\n", "false\ttrue\n")), tuned,
    {ACCELHOST_CUDA_TUNE = 0, ACCELHOST_SIM_SLOW_PRODUCT = 1})
  case("keeps its algorithm where the other one fails", "83\t83\t0\n", [[
    local a = accelhost.arange(6):reshape(2, 3):float()
    local function product() return a:mm(a:t()):sum():item() end
    io.write(product(), "\t", product(), "\t", calls "cublasLtMatmul:4", "\n")]],
    {ACCELHOST_CUDA_TUNE = 1, ACCELHOST_SIM_SLOW_PRODUCT = 1, ACCELHOST_SIM_FAIL = "blas:12"})
  case("keeps its algorithm where there is no memory for comparing", "3\t0\n", [[
    local a, b = accelhost.ones {4000000, 1}, accelhost.ones {1, 1}
    for _ = 1, 3 do a:mm(b) end
    io.write(calls "cublasLtMatmul", "\t", calls "cublasLtMatmul:4", "\n")]],
    {ACCELHOST_CUDA_TUNE = 1, ACCELHOST_SIM_SLOW_PRODUCT = 1, ACCELHOST_SIM_MEMORY = "64MiB"})

  case("has its own plan for each of 1000 shapes, and keeps them", "1000\t1000\n", [[
    local a, b = accelhost.ones {1000, 2}, accelhost.ones {2, 2}
    for time = 1, 2 do
      for rows = 1, 1000 do a:narrow(0, 0, rows):mm(b) end
      io.write(calls "cublasLtMatmulAlgoGetHeuristic", time == 1 and "\t" or "\n")
    end]], {ACCELHOST_CUDA = "sim"})

  case("of integers is the CPU's, computed on the device", ("0\ttrue\n"):rep(3), [[
    for dtype, high in pairs {uint8 = 256, int32 = 2 ^ 31 - 1, int64 = 2 ^ 40} do
      local function numbers(...) return accelhost.randint(0, high, {...}, {dtype = dtype, device = "cpu"}) end
      local pairs_of = {
        {numbers(3, 70, 45), numbers(45, 33)}, {numbers(2, 1, 5, 64), numbers(3, 64, 7)}, {numbers(9), numbers(9)},
        {numbers(40, 65):t(), numbers(3, 40, 2)}, {numbers(4, 6):narrow(1, 1, 4), numbers(4, 3)},
        {numbers(5, 0), numbers(0, 3)},
      }
      local far = {}
      for i, pair in ipairs(pairs_of) do far[i] = {pair[1]:cuda(), pair[2]:cuda()} end
      local before, results, same = calls "cuMemcpyDtoHAsync_v2", {}, true
      for i, pair in ipairs(far) do results[i] = pair[1]:matmul(pair[2]) end
      local copies = calls "cuMemcpyDtoHAsync_v2" - before
      for i, pair in ipairs(pairs_of) do same = same and results[i]:cpu():equal(pair[1]:matmul(pair[2])) end
      print(copies, same)
    end]])
end)
