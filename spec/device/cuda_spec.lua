--- CUDA devices where there is none: the messages to a script and of `accelhost env`. No spec here needs a card.
local run = require "spec.support.run"

-- A process that sees neither the driver's devices nor the simulated GPU.
local blind = {CUDA_VISIBLE_DEVICES = "", ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false}

describe("device cuda without a card", function()
  it("is refused in one line that names the missing library", function()
    local result = run.host({"-e", [[require("accelhost").ones({2}, {device = "cuda"})]]}, {env = blind})
    assert.equal(1, result.code)
    local first = result.stderr:match "^[^\n]*"
    assert.matches('device "cuda:0": ', first)
    assert.is_truthy(first:find("libcuda.so.1 not found (is the NVIDIA driver installed?)", 1, true) or
      first:find("CUDA_ERROR_NO_DEVICE", 1, true) or first:find("the driver sees no device", 1, true), first)
  end)

  it("is counted as none, and the CPU works on", function()
    local result = run.host({"-e", [[
      local accelhost = require "accelhost"
      print(accelhost.device_count "cuda", accelhost.ones(2):sum():item())]]}, {env = blind})
    run.prints("0\t2\n", result)
  end)

  it("is reported by accelhost env, with the reason", function()
    local result = run.host({"env"}, {env = blind})
    run.succeeds(result)
    assert.matches("\nCUDA +not used: [^\n]+", result.stdout)
  end)

  it("accepts no other word in ACCELHOST_CUDA than sim", function()
    local result = run.host({"-e", [[require("accelhost").ones({2}, {device = "cuda"})]]},
      {env = {ACCELHOST_CUDA = "simulated"}})
    assert.matches('ACCELHOST_CUDA: expected "sim" or nothing, got "simulated"', result.stderr)
  end)
end)

describe("The list of kernels", function()
  -- Ops that the CPU computes for a device, by reason.
  local on_host = {
    ["the CPU's generator"] = {"standard_gamma"},
    ["models call linear_gelu and linear_of_gelu on cards"] = {"gelu_linear"},
    ["as gelu_linear"] = {"gelu_linear_backward", "gelu_linear_weight_backward"},
    ["models call the activation and mul on cards"] = {"activation_mul"},
    ["as activation_mul"] = {"activation_mul_backward"},
    ["models rotate heads by several ops on cards"] = {"rotary"},
    ["texts are packed on the CPU alone"] = {"padded_dropout"},
    ["computed by several ops"] = {"batch_norm_relu", "batch_norm_relu_backward", "group_norm", "group_norm_backward",
      "matmul_rounded", "renorm"},
    ["quantised weights are computed with on the CPU alone"] = {"dequantize"},
    ["as dequantize"] = {"quantize_4bit", "quantize_blockwise", "quantize_int8"},
  }

  it("leaves these to the host and no others, each with its reason", function()
    local found = {}
    for line in io.lines "host/cuda/ops/lib/kernels.def" do
      local name, reason = line:match '^HOST%(([%w_]+), "(.*)"%)$'
      if name then
        found[reason] = found[reason] or {}
        table.insert(found[reason], name)
      end
    end
    for _, names in pairs(found) do table.sort(names) end
    assert.same(on_host, found)
  end)
end)

describe("The list of compiled kernels", function()
  local simulator = (run.path:gsub("[^/]*$", "")) .. "accelhost-cudasim.so"
  local rows = {}
  for line in io.lines "host/cuda/generated/kernels.txt" do
    for name, spills in (line:match "^[%w_]+%.cu:(.*)" or line:match "^    .*" or ""):gmatch "([%w_]+)=?(%d*)" do
      rows[name] = tonumber(spills) or 0
    end
  end

  -- Bytes that these spill, stored and loaded, on sm_80 and sm_90 together: a few values where
  -- results of 128 columns fill the registers.
  local few = {attention_bf16_128 = 32, attention_f16_128 = 32, attention_key_bf16_128 = 8, attention_key_f16_128 = 8,
    attention_value_f64_128 = 32, attention_query_f64_128_full = 24}

  it("names no kernel that spills but those, each with its reason", function()
    assert.is_number(rows.fault_index)
    for name, spills in pairs(rows) do
      assert.is_true(spills <= (few[name] or 0), ("%s spills %d bytes"):format(name, spills))
    end
  end)

  it("has each kernel, and no removed one (make cuda-usage, or scripts/cuda/usage.sh FILE.cu, writes it)", function()
    local file = io.open(simulator, "rb")
    if not file then return pending "the simulated GPU is not built" end
    local wrong, there = {}, {}
    for name in file:read "*a":gmatch "_ZL%d+([%w_]+)_kernel%z" do
      there[name] = true
      if not rows[name] then wrong[#wrong + 1] = name end
    end
    file:close()
    assert.is_true(there.fault_index)
    for name in pairs(rows) do
      if not there[name] then wrong[#wrong + 1] = name end
    end
    table.sort(wrong)
    assert.same({}, wrong)
  end)
end)
