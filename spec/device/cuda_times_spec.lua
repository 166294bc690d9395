--- Times of kernels (start_times, stop_times of accelhost._C.device), on the simulated GPU or a card.
local C = require "accelhost._C"
local sim = require "spec.support.sim"

local preamble = [[
  local accelhost = require "accelhost"
  local C = require("accelhost._C").device
  accelhost.set_default_device "cuda"
  local function find(rows, op, kernel)
    for _, row in ipairs(rows) do
      if row.op == op and (not kernel or row.kernel == kernel) then return row end
    end
    return {count = 0}
  end
]]

local function told(code)
  local result = sim.host(preamble .. code)
  assert.equal(0, result.code, result.stderr)
  return result.stdout
end

describe("Times of kernels", function()
  sim.case("count each launch by op and kernel, with a product's operations and bytes", function()
    assert.equal("3\ttrue\ttrue\n12\ttrue\t0\n", told [[
      local a, b = accelhost.randn {6, 4}, accelhost.randn {4, 5}
      C.start_times "cuda"
      for _ = 1, 3 do a:matmul(b) end
      for _ = 1, 12 do a:exp() end
      local rows = C.stop_times "cuda"
      local product, exp = find(rows, "matmul", "product"), find(rows, "exp")
      print(product.count, product.operations == 3 * 2 * 6 * 4 * 5, product.bytes == 3 * 4 * (24 + 20 + 30))
      print(exp.count, exp.microseconds >= 0, exp.operations)]])
  end)

  sim.case("have the operations of attention and the shortest time for them by dtype", function()
    assert.equal(("true\n"):rep(5), told [[
      local F = accelhost.nn.functional
      local facts = C.properties("cuda", 0)
      local clocks = facts.multi_processor_count * facts.clock_rate / 1e3
      local function least(dtype, fn, op)
        C.start_times "cuda"
        fn(dtype)
        local operations, time = 0, 0
        for _, row in ipairs(C.stop_times "cuda") do
          if row.op == op then operations, time = operations + row.operations, time + row.least_microseconds end
        end
        return operations, time
      end
      local function close(a, b) return math.abs(a - b) <= 1e-9 * math.abs(b) end
      local function product(dtype)
        local a = accelhost.ones({8, 16}, {dtype = dtype})
        a:matmul(a:t())
      end
      for dtype, each in pairs {bfloat16 = 4096, float32 = 256, float64 = 256} do
        local operations, time = least(dtype, product, "matmul")
        print(operations == 2 * 8 * 8 * 16 and close(time, operations / (each * clocks)))
      end
      local q = accelhost.randn({2, 3, 8, 16}, {requires_grad = true})
      local out
      local function attend() out = F.scaled_dot_product_attention(q, q, q, {is_causal = true}) end
      local pairs_seen = 2 * 3 * 8 * 9 / 2
      print(close(least("float32", attend, "attention"), 2 * pairs_seen * (16 + 16)))
      local function back() out:sum():backward() end
      print(close(least("float32", back, "attention_backward"), 2 * pairs_seen * (3 * 16 + 4 * 16)))]])
  end)

  sim.case("are of the launches between start and stop alone", function()
    assert.equal("0\n2\t0\n2\n", told [[
      local a = accelhost.randn {6, 4}
      a:exp()
      print(#C.stop_times "cuda")
      C.start_times "cuda"
      a:exp() a:exp()
      local rows = C.stop_times "cuda"
      a:exp()
      C.start_times "cuda"
      a:sin()
      print(find(rows, "exp").count, find(C.stop_times "cuda", "exp").count)
      print(find(rows, "exp").count)]])
  end)

  sim.case("continue past the events that are kept, and count a replayed graph as one", function()
    assert.equal("3000\n4\n", told [[
      local a = accelhost.randn {6, 4}
      C.start_times "cuda"
      for _ = 1, 3000 do a:exp() end
      print(find(C.stop_times "cuda", "exp").count)
      local step = accelhost.Accelerator():compile(function(x) return x:exp():sum() end)
      for _ = 1, 3 do step(a) end
      C.start_times "cuda"
      for _ = 1, 4 do step(a) end
      print(find(C.stop_times "cuda", "replay", "graph").count)]])
  end)

  sim.case("are in a profile's rows and table, with the op that launched them", function()
    local stdout = told [[
      local a, b = accelhost.randn {6, 4}, accelhost.randn {4, 5}
      local prof = accelhost.profiler.profile({}, function()
        for _ = 1, 3 do a:matmul(b) end
      end)
      local op, kernel
      for _, row in ipairs(prof:key_averages()) do
        if row.key == "matmul" then op = row end
        if row.key == "product (matmul)" then kernel = row end
      end
      print(op.kind, kernel.kind, kernel.count, op.device_time_total == kernel.device_time_total)
      print(prof:key_averages():table {sort_by = "device_time_total", row_limit = 1})
      print(prof:kernel_table {steps = 3})
      local only_cpu = accelhost.profiler.profile({activities = "cpu"}, function() a:matmul(b) end)
      print(#only_cpu:key_averages())]]
    assert.matches("^op\tkernel\t3\ttrue\n", stdout)
    assert.matches("Device time  Device %%  # of Calls\n", stdout)
    assert.matches("\nmatmul +product +1 +[%d.]+ +100.0%% +%S+ +%S+ +%S+ +%S+\n[%d.]+ us a step on the device\n1\n$",
      stdout)
  end)

  sim.case("of a whole run are printed at its end with ACCELHOST_CUDA_TIMES=1, also by os.exit", function()
    for _, ending in ipairs {"", " os.exit(3)"} do
      local result = sim.host(preamble .. "accelhost.randn({6, 4}):exp()" .. ending, {ACCELHOST_CUDA_TIMES = 1})
      assert.equal(ending == "" and 0 or 3, result.code)
      assert.matches("^op +kernel +calls +us +share +GB/s +of limit +TFLOP/s +of peak\n", result.stderr)
      assert.matches("\nexp +exp_f32 +1 ", result.stderr)
    end
  end)

  it("are shown with the shares of the memory's bandwidth and of the rate of operations, where known", function()
    local text = require "accelhost.profiler.device_times".text({
      {op = "exp", kernel = "exp_f32", count = 1, microseconds = 10, bytes = 2e7, operations = 0, bandwidth = 4e6},
      {op = "matmul", kernel = "product", count = 1, microseconds = 2, bytes = 100, operations = 3e6,
        least_microseconds = 0.5},
    }, 1, -1)
    assert.matches("\nexp +exp_f32 +1 +10.0 +83.3%% +2000 +50%% +%- +%-\n", text)
    assert.matches("\nmatmul +product +1 +2.0 +16.7%% +0 +%- +2 +25%%\n", text)
  end)

  it("need a CUDA device where a profile asks for them", function()
    if C.device.device_count "cuda" > 0 then return pending "needs a machine without a GPU" end
    assert.error_matches(function() require("accelhost").profiler.profile({activities = {"cuda"}}, print) end,
      'profile: activities: "cuda" needs a CUDA device: ')
  end)

  it("are refused on the CPU", function()
    assert.has_error(function() C.device.start_times "cpu" end,
      "cpu: its kernels cannot be timed; only those of CUDA devices can")
  end)
end)
