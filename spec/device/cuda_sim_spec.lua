--- The CUDA plugin on the simulated GPU: training, memory that runs out, copies between devices, errors. Each case is a
--- separate program, since a process opens its devices once.
local run = require "spec.support.run"
local sim = require "spec.support.sim"

-- Return the output of a program on the simulated GPU.
local function on_sim(code, env) return sim.host("local accelhost = require 'accelhost'\n" .. code, env) end

local case, TWO = sim.case, {ACCELHOST_SIM_DEVICES = 2}

describe("The simulated GPU", function()
  sim.simulated_case("is counted, reported and computed on", function()
    local result = on_sim([[
      print(accelhost.device_count "cuda")
      local x = accelhost.tensor{{1, 2}, {3, 4}}:to "cuda:1"
      print(x.device, (x * 2 + 1):sum():item())]], TWO)
    run.prints("2\ncuda:1\t24\n", result)
    local told = run.host({"env"}, {env = {ACCELHOST_CUDA = "sim"}}).stdout
    assert.matches("\nCUDA +simulated, driver for CUDA ", told)
    assert.matches("\ncuda:0 [^\n]+ GiB\n", told)
  end)

  case("copies between its devices and back, large and small", function()
    local result = on_sim([[
      for _, n in ipairs{0, 1, 1000, 3000001} do
        local x = accelhost.arange(n, {dtype = "float32"})
        local y = x:to("cuda:0"):to("cuda:1"):to("cuda:0"):to("cpu")
        print(n, (x:ne(y)):sum():item())
      end]], TWO)
    run.prints("0\t0\n1\t0\n1000\t0\n3000001\t0\n", result)
  end)

  case("reaches another's memory directly, asked for once for each pair, also memory that is mapped later", function()
    local code = ([[
      local ffi = require "ffi"
      ffi.cdef "const char *simulated_calls(void);"
      local simulator, right = ffi.load "SIMULATOR", true
      local function check(n)
        local x = accelhost.arange(n, {dtype = "float32"})
        local there = x:to "cuda:0":to "cuda:1"
        right = right and there:to "cuda:0":to "cpu":equal(x) and there:to "cpu":equal(x)
      end
      check(1000) check(400000) check(6000000)
      local calls = ffi.string(simulator.simulated_calls())
      print(right, calls:match "cuDeviceCanAccessPeer (%d+)", calls:match "cuCtxEnablePeerAccess (%d+)")
    ]]):gsub("SIMULATOR", sim.library)
    assert.equal("true\t2\t2\n", on_sim(code).stdout)
    assert.equal("true\t2\tnil\n", on_sim(code, {ACCELHOST_SIM_SLICES = "1"}).stdout)
  end)

  case("trains BasicNet in float64 with the CPU's losses to 1e-9 for 20 steps", function()
    local result = on_sim [[
      local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
      local function train(device)
        accelhost.manual_seed(3)
        local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
          nn.Linear(4 * 13 * 13, 16), nn.ReLU(), nn.Linear(16, 10)):to "float64":to(device)
        local optimizer = optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9})
        local losses = {}
        for step = 1, 20 do
          local x = accelhost.randn({8, 1, 28, 28}, {dtype = "float64", device = "cpu"}):to(device)
          local y = accelhost.randint(0, 10, {8}, {device = "cpu"}):to(device)
          local loss = F.cross_entropy(net(x), y)
          optimizer:zero_grad()
          loss:backward()
          optimizer:step()
          losses[step] = loss:item()
        end
        return losses
      end
      local here, far, worst = train "cpu", train "cuda", 0
      for i = 1, 20 do worst = math.max(worst, math.abs(here[i] - far[i])) end
      print(#far, worst < 1e-9, here[20] < here[1])]]
    run.prints("20\ttrue\ttrue\n", result)
  end)

  case("reuses freed memory: a steady loop asks the driver for nothing", function()
    local result = on_sim [[
      local x, calls = accelhost.ones({1000}, {device = "cuda"})
      for step = 1, 50 do
        local y = (x + 1):exp():mul(2)
        y:free()
        collectgarbage()
        if step == 10 then calls = accelhost.memory_stats("cuda").system_calls end
      end
      print(accelhost.memory_stats("cuda").system_calls - calls)]]
    run.prints("0\n", result)
  end)

  case("that fails an allocation once is asked again after its cache was given back", function()
    local result = on_sim([[
      local kept = {}
      for i = 1, 6 do kept[i] = accelhost.ones({1000000}, {device = "cuda"}) end
      print(kept[6]:sum():item())]], {ACCELHOST_SIM_FAIL = "alloc:2"})
    run.prints("1000000\n", result)
  end)

  case("reports its live memory in one line when it runs out", function()
    local result = on_sim([[
      local kept = {}
      for i = 1, 100 do kept[i] = accelhost.ones({1000000}, {device = "cuda"}) end]], {ACCELHOST_SIM_MEMORY = "64MiB"})
    assert.equal(1, result.code)
    assert.matches("cuda:0: out of memory: 3.815 MiB asked for, [%d.]+ MiB live, [%d.]+ [KM]iB cached, " ..
      "[%d.]+ [KM]iB of 64 MiB available; most of it: %d+ x 3.815 MiB", result.stderr:match "^[^\n]*")
  end)

  case("requests each allocation from the driver with the option", function()
    local result = on_sim([[
      local x = accelhost.ones({10}, {device = "cuda"})
      for _ = 1, 100 do x = x + 1 end
      print(x:sum():item(), accelhost.memory_stats("cuda").system_calls > 100)]],
      {ACCELHOST_CUDA_ALLOCATOR = "driver"})
    run.prints("1010\ttrue\n", result)
  end)

  case("that fails a launch names device, op and kernel", function()
    local result = on_sim([[
      local x = accelhost.ones({10}, {device = "cuda"})
      for _ = 1, 10 do x = x + 1 end
      print(x:sum():item())]], {ACCELHOST_SIM_FAIL = "launch:5", CUDA_LAUNCH_BLOCKING = "1"})
    assert.equal(1, result.code)
    assert.matches("cuda:0: add: kernel add_f32", result.stderr:match "^[^\n]*")
  end)

  case("that has lost its context fails every later call with the first failure's text", function()
    for fault, name in pairs {launch = "LAUNCH_FAILED", copy = "ILLEGAL_ADDRESS", ecc = "ECC_UNCORRECTABLE"} do
      local result = on_sim([[
        local x = accelhost.ones({10}, {device = "cuda"})
        local function try(fn) return select(2, pcall(fn)):match "cuda:0.*" end
        local function step() return (x + 1):sum():item() end
        local first = try(step)
        for _ = 1, 3 do print(try(step) == first) end
        print(try(function() return accelhost.ones({3}, {device = "cuda:1"}) end) == first)
        print(first)]], {ACCELHOST_SIM_FAIL = fault .. ":1"})
      assert.matches("^true\ntrue\ntrue\ntrue\ncuda:0[^\n]*CUDA_ERROR_" .. name ..
        "%); the device cannot be used any more: start the process again\n$", result.stdout, result.stderr)
      run.succeeds(result)
    end
  end)

  local ones = 'accelhost.ones({2}, {device = "cuda"})'

  case("is refused, with both versions and the remedy, by a driver that is older than the kernels need", function()
    local result = on_sim(ones, {ACCELHOST_SIM_DRIVER = "12080"})
    assert.equal(1, result.code)
    assert.is_truthy(result.stderr:find('device "cuda:0": the kernels were built by CUDA 13.0 and need driver 580 ' ..
      "(CUDA 13.0) or newer; this driver is for CUDA 12.8: update it, or build the kernels by CUDA 12 (make cuda)\n", 1,
      true), result.stderr)
    result = on_sim([[print(accelhost.cuda.is_available(), accelhost.device_count "cuda")]],
      {ACCELHOST_SIM_DRIVER = "12080"})
    run.prints("false\t0\n", result)
    assert.equal(0, on_sim(ones, {ACCELHOST_SIM_DRIVER = "14010"}).code)
  end)

  case("names driver, kernels and remedy where the driver cannot load them", function()
    local result = on_sim(ones, {ACCELHOST_SIM_FAIL = "load:1"})
    assert.equal(1, result.code)
    assert.matches("cuda:0: the kernels %(.*%) cannot be loaded by this driver for CUDA 13.0: update it, or build " ..
      "them for this card %(make CUDA_ARCHS=90%).*UNSUPPORTED_PTX_VERSION", result.stderr:match "^[^\n]*")
  end)

  case("computes the same numbers whatever the order of its threads", function()
    local outputs = {}
    for seed = 1, 3 do
      local result = on_sim([[
        accelhost.manual_seed(0)
        local x = accelhost.randn({300, 70}, {device = "cpu"}):to "cuda"
        print(("%.17g %.17g"):format(x:sum():item(), x:t():softmax(1):std():item()))]],
        {ACCELHOST_SIM_SEED = tostring(seed)})
      assert.equal(0, result.code, result.stderr)
      outputs[seed] = result.stdout
    end
    assert.same({outputs[1], outputs[1], outputs[1]}, outputs)
  end)
end)
