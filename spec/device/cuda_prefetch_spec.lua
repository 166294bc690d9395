--- Batches on their way to a GPU: pinned memory, copies concurrent with kernels, waits between streams; and
--- accelhost.cuda, which describes devices. On the simulated GPU, whose streams wait a random time before their works.
local run = require "spec.support.run"
local sim = require "spec.support.sim"

-- Return the output of a program on the simulated GPU.
local function on_sim(code, env)
  code = "local accelhost, C = require 'accelhost', require 'accelhost._C'\nlocal data, cuda = accelhost.data, "
    .. "accelhost.cuda\nlocal function raises(fn) return select(2, pcall(fn)):gsub('^.-:%d+: ', '') .. '' end\n" .. code
  return sim.host(code, env)
end

local function prints(expected, code, env)
  local result = on_sim(code, env)
  assert.equal(expected, result.stdout, result.stderr)
end

local case = sim.case

-- All batches of a loader that is walked on the CPU and on the device, which has kernels to do between them; the walks
-- differ in nothing.
local walks = [[
  local function walk(cpu, set, options, config)
    local it = accelhost.Accelerator {cpu = cpu, dataloader_config = config}
    accelhost.manual_seed(5)
    local seen, kept = {}, {}
    local loader = it:prepare(data.DataLoader(set, options))
    for epoch = 1, 2 do
      for x, y in loader do
        assert(x.device == it.device)
        kept[#kept % 3 + 1] = x
        seen[#seen + 1] = table.concat({x:to "float64":sum():item(), (y * 2):sum():item(), loader.batch_length,
          tostring(loader.end_of_dataloader), kept[1]:to "float64":mean():item()}, " ")
      end
    end
    return seen
  end
  local function compare(set, options)
    local here = walk(true, set, options)
    assert(#here > 3)
    for _, config in ipairs {{}, {non_blocking = false}} do
      local there = walk(false, set, options, config)
      assert(#here == #there)
      for i = 1, #here do assert(here[i] == there[i], i .. ": " .. here[i] .. ", " .. there[i]) end
    end
  end
  local x = accelhost.randint(0, 100, {96, 6000}, {device = "cpu"}):to "float32"
  local y = accelhost.arange(96)
]]

describe("Batches of a prepared loader on a GPU", function()
  case("are the CPU's, gathered small and large, made by the script and by workers, whatever the streams' delays",
    function()
      for seed = 1, 3 do
        prints("same\n", walks .. [[
          compare(data.TensorDataset(x, y), {batch_size = 10, shuffle = true})
          compare(data.TensorDataset(x, y), {batch_size = 60})
          local rows = {get = function(_, i) return x[i], y[i] end, len = function() return 96 end}
          compare(rows, {batch_size = 32, shuffle = true})
          print "same"]], {ACCELHOST_SIM_SEED = tostring(seed)})
      end
    end)

  case("arrive from workers", function()
    prints("same\n", walks .. [[
      compare({get = function(_, i) return x[i], y[i] end, len = function() return 96 end},
        {batch_size = 24, shuffle = true, num_workers = 2})
      print "same"]])
  end)

  case("keep no more pinned memory than a few batches need", function()
    prints("true\n", walks .. [[
      local set = data.TensorDataset(accelhost.zeros(4000, 1000))
      local loader = accelhost.Accelerator():prepare(data.DataLoader(set, {batch_size = 300}))
      for epoch = 1, 2 do
        for batch in loader do batch:sum():item() end
      end
      local bytes = cuda.host_memory_stats()["reserved_bytes.current"]
      print(bytes <= 8 * 2 ^ 21 or bytes)]])
  end)

  case("report an error of a batch when it is due", function()
    prints("1\t2\treported\n", walks .. [[
      local set = data.TensorDataset(accelhost.zeros(8, 200000))
      local order = {{0, 1}, {2, 3}, {4, 99}}
      local loader = accelhost.Accelerator():prepare(data.DataLoader(set, {batch_sampler = order}))
      local count = 0
      local fine, text = pcall(function()
        for batch in loader do
          count = count + 1
          for i = 1, 50 do C.system.sleep(0.001) end
          io.write(count, "\t")
        end
      end)
      print(not fine and text:find("index 99 is out of range", 1, true) and "reported" or text)]])
  end)

  case("are wrong without the wait for their copies, so that a wait that is missing shows", function()
    local wrong = 0
    for seed = 1, 4 do
      local result = on_sim([[
        local wrong = 0
        for i = 1, 20 do
          local batch = C.prefetch.fetch(accelhost.full({3000}, i), "cuda:0")
          if batch:sum():item() ~= 3000 * i then wrong = wrong + 1 end
        end
        print(wrong)]], {ACCELHOST_SIM_SEED = tostring(seed)})
      assert.equal(0, result.code, result.stderr)
      wrong = wrong + tonumber(result.stdout)
    end
    assert.is_true(wrong > 0)
  end)

  -- The memory of a batch, in transit and on the device, is reused once an event reports its last use. Of twenty
  -- batches `keeps` names those that are held, so that they are not reused. Prints how many of their sums are wrong.
  local function sums(keeps, fault)
    local wrong = 0
    for seed = 1, 3 do
      local result = on_sim(([[
        local keeps = %q
        local kept, sums, wrong = {}, {}, 0
        for i = 1, 20 do
          local from = accelhost.full({3000}, i)
          if keeps == "pinned" then from = from:pin_memory() end
          local there = C.prefetch.fetch(from, "cuda:0")
          C.prefetch.join "cuda:0"
          sums[i] = there:sum()
          kept[i] = keeps == "pinned" and from or there
          if keeps == "pinned" then there:free() end
        end
        for i = 1, 20 do
          if sums[i]:item() ~= 3000 * i then wrong = wrong + 1 end
        end
        print(wrong)]]):format(keeps), {ACCELHOST_SIM_SEED = tostring(seed), ACCELHOST_SIM_FAIL = fault})
      assert.equal(0, result.code, result.stderr)
      wrong = wrong + tonumber(result.stdout)
    end
    return wrong
  end

  case("are wrong where a block is filled again while kernels read it, so that this shows", function()
    assert.equal(0, sums "pinned")
    assert.is_true(sums("pinned", "early:1+") > 0)
  end)

  case("are wrong where pinned memory is written again while it is copied, so that this shows", function()
    assert.equal(0, sums "there")
    assert.is_true(sums("there", "early:1+") > 0)
  end)
end)

describe("Pinned memory", function()
  case("holds a tensor's values, and is copied from asynchronously", function()
    for seed = 1, 3 do
      prints("false\ttrue\ttrue\ttrue\nsame\n", [[
        local x = accelhost.arange(50000)
        local pinned = x:pin_memory()
        print(x:is_pinned(), pinned:is_pinned(), pinned:pin_memory() == pinned, pinned:eq(x):all():item())
        for round = 1, 10 do
          local there = {}
          for i = 1, 5 do
            local one = accelhost.full({1000 * i}, 10 * round + i):pin_memory()
            there[i] = one:to("cuda:" .. i % 2, {non_blocking = true})
            one:free()
          end
          for i = 1, 5 do assert((there[i] * 2):sum():item() == 2000 * i * (10 * round + i)) end
        end
        print "same"]], {ACCELHOST_SIM_SEED = tostring(seed)})
    end
  end)

  case("is the memory of a loader's batches with pin_memory = true", function()
    prints("true\ttrue\n", [[
      local function pinned(set)
        for batch in data.DataLoader(set, {batch_size = 2, pin_memory = true}) do
          if not batch:is_pinned() then return false end
        end
        return true
      end
      print(pinned(data.TensorDataset(accelhost.ones(6, 5))),
        pinned {get = function() return accelhost.ones(5) end, len = function() return 6 end})]])
  end)

  case("is returned to the driver with the cache", function()
    prints("true\ttrue\n", [[
      local one = accelhost.ones(2 ^ 20):pin_memory()
      one:to("cuda", {non_blocking = true})
      one:free()
      local function bytes() return cuda.host_memory_stats()["reserved_bytes.current"] end
      local before = bytes()
      cuda.synchronize()
      cuda.empty_cache()
      print(before >= 2 ^ 22, bytes() < 2 ^ 22)]])
  end)

  it("is refused without a device, in one line", function()
    local result = run.host({"-e", "require('accelhost').ones(2):pin_memory()"},
      {env = {ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false, CUDA_VISIBLE_DEVICES = ""}})
    assert.matches('pin_memory: device "cuda:0": [^\n]+', result.stderr)
    result = run.host({"-e", "local data = require('accelhost').data\n" ..
      "for x in data.DataLoader(data.TensorDataset(require('accelhost').ones(4)), {pin_memory = true}) do " ..
      "io.write(tostring(x:is_pinned()), ' ') end"},
      {env = {ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false, CUDA_VISIBLE_DEVICES = ""}})
    run.prints("false false false false ", result)
    assert.matches("warning: DataLoader: pin_memory = true, but there is no CUDA device", result.stderr)
  end)
end)

describe("accelhost.cuda", function()
  case("describes devices and chooses the one that cuda means", function()
    prints("true\t2\t0\nsimulated GPU\t9\t0\t4\ncuda:1\t1\tcuda:0\ncuda:1\tcuda:0\tcuda:1\n", [[
      print(cuda.is_available(), cuda.device_count(), cuda.current_device())
      local major, minor = cuda.get_device_capability(1)
      print(cuda.get_device_name "cuda:0", major, minor, cuda.get_device_properties().multi_processor_count)
      cuda.set_device(1)
      local x = accelhost.ones({2}, {device = "cuda"})
      print(x.device, cuda.current_device(), cuda.device(0, function() return x:cuda().device end))
      print(accelhost.ones(2):cuda().device, accelhost.ones(2):cuda(0).device,
        accelhost.nn.Linear(2, 2):cuda().weight.device)]])
  end)

  case("refuses devices that are none", function()
    prints("cuda.set_device: device: there are 2 CUDA devices, got 2\n" ..
      "cuda.synchronize: device: expected a number or the name of a CUDA device, got 'cpu'\n" ..
      "to: expected a dtype, non_blocking (true or false) or a table of options, got number 3\n", [[
      print(raises(function() cuda.set_device(2) end))
      print(raises(function() cuda.synchronize "cpu" end))
      print(raises(function() accelhost.ones(2):to("cuda", 3) end))]])
  end)

  case("counts memory, and resets its peak", function()
    prints("4194304\t4194304\t8388608\n8388608\t4194304\ntrue\n", [[
      local x = accelhost.zeros({2 ^ 20}, {device = "cuda"})
      local now, most = cuda.memory_allocated(), cuda.max_memory_allocated()
      local y = accelhost.zeros({2 ^ 20}, {device = "cuda"})
      print(now, most, cuda.max_memory_allocated())
      y:free()
      local before = cuda.max_memory_allocated()
      cuda.reset_peak_memory_stats()
      print(before, cuda.max_memory_allocated())
      local free, total = cuda.mem_get_info()
      print(total - free >= cuda.memory_reserved() and cuda.memory_summary():find "tensors at most" ~= nil)]])
  end)

  case("seeds one device and all of them, also those opened later", function()
    prints("true\ttrue\tfalse\n", [[
      cuda.manual_seed_all(7)
      local function state(device) return table.concat(cuda.get_rng_state(device):tolist(), " ") end
      local first, second = state(0), state(1)
      cuda.manual_seed(8)
      print(first == second, state(1) == second, state(0) == first)]])
  end)

  case("measures between events", function()
    prints("true\ttrue\ttrue\nelapsed_time: both events have to be made with enable_timing = true\n" ..
      "elapsed_time: both events have to be recorded before\n", [[
      local from, to = cuda.Event {enable_timing = true}, cuda.Event {enable_timing = true}
      local fresh = from:query()
      from:record()
      local x = accelhost.ones({300, 300}, {device = "cuda"})
      x:matmul(x)
      to:record()
      to:synchronize()
      print(fresh, to:query(), from:elapsed_time(to) > 0)
      local plain = cuda.Event()
      plain:record()
      print(raises(function() from:elapsed_time(plain) end))
      print(raises(function() from:elapsed_time(cuda.Event()) end))]])
  end)
end)
