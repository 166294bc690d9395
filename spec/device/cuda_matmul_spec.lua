--- Matrix products on a CUDA device, here the simulated GPU: which of cuBLASLt's algorithms compute them.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local ffi = require "ffi"
  ffi.cdef "const char *simulated_calls(void);"
  accelhost.set_default_device "cuda"
  local function calls(name)
    return tonumber(ffi.string(ffi.load("SIMULATOR").simulated_calls()):match("\n" .. name .. " (%d+)") or 0)
  end
]]

local function run(code, env) return sim.host((HEAD:gsub("SIMULATOR", sim.library)) .. code, env) end

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
  case("goes by the next algorithm where cuBLASLt refuses the first one", "true\t83\ntrue\t83\n", refused,
    {ACCELHOST_SIM_FAIL = "blas:1"})
  sim.case("is an error that names cuBLASLt's where all are refused", function()
    local result = run(refused, {ACCELHOST_SIM_FAIL = "blas:1+"})
    assert.matches("^false\t.*matmul: cuBLASLt: a product: CUBLAS_STATUS_NOT_SUPPORTED", result.stdout, nil, nil,
      result.stderr)
  end)

  case("has a plan of its own for each of 1000 shapes, and keeps them", "1000\t1000\n", [[
    local a, b = accelhost.ones {1000, 2}, accelhost.ones {2, 2}
    for time = 1, 2 do
      for rows = 1, 1000 do a:narrow(0, 0, rows):mm(b) end
      io.write(calls "cublasLtMatmulAlgoGetHeuristic", time == 1 and "\t" or "\n")
    end]])
end)
