--- A process for each GPU: the devices that launch counts and passes to its ranks, and those that their accelerators
--- use. On the simulated GPU; each case is a separate job.
local files = require "spec.support.files"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local function with(env)
  local all = {ACCELHOST_CUDA = "sim", ACCELHOST_TEST_DEVICE = false, ACCELHOST_USE_CPU = false,
    CUDA_VISIBLE_DEVICES = false}
  for name, value in pairs(env or {}) do all[name] = value end
  return {env = all, timeout = 60}
end

local function launch(words, env)
  return run.host({"launch", unpack(words)}, with(env))
end

local case = sim.simulated_case

-- The value that --show_config prints for a setting, and its source.
local function shown(setting, words, env)
  words[#words + 1] = "--show_config"
  local result = launch(words, env)
  assert.equal(0, result.code, result.output)
  return {result.stdout:match("\n" .. setting .. " +(%S+) +([^\n]*)")}
end

local function refused(words, env)
  words[#words + 1] = "-e"
  words[#words + 1] = ""
  local result = launch(words, env)
  assert.equal(2, result.code, result.output)
  return result.stderr:match "^accelhost launch: (.-)\n"
end

describe("launch where there are GPUs", function()
  case("starts a process for each, unless a number is given", function()
    assert.same({"3", "one for each GPU"}, shown("num_processes", {}, {ACCELHOST_SIM_DEVICES = "3"}))
    local auto = shown("num_processes", {"--num_processes=auto"}, {ACCELHOST_SIM_DEVICES = "3"})
    assert.same({"3", "--num_processes"}, auto)
    assert.same({"3", "-n"}, shown("num_processes", {"-n", "gpu"}, {ACCELHOST_SIM_DEVICES = "3"}))
    assert.same({"5", "--num_processes"}, shown("num_processes", {"--num_processes=5"}))
    assert.same({"1", "one for each GPU"}, shown("num_processes", {}, {CUDA_VISIBLE_DEVICES = "1"}))
    assert.same({"1", "default"}, shown("num_processes", {}, {CUDA_VISIBLE_DEVICES = ""}))
    assert.same({"1", "default"}, shown("num_processes", {"--cpu"}))
    assert.same({"1", "default"}, shown("num_processes", {}, {ACCELERATE_USE_CPU = "1"}))
  end)

  case("passes its ranks those that were chosen", function()
    assert.same({"2", "one for each GPU"}, shown("num_processes", {"--gpu_ids", "2,0"}, {ACCELHOST_SIM_DEVICES = "3"}))
    local result = launch({"--gpu_ids=1", "-e", "print(os.getenv 'CUDA_VISIBLE_DEVICES')"})
    assert.same({0, "1\n"}, {result.code, result.stdout})
    assert.equal("--gpu_ids: of 1,5 the driver sees 1 device", refused {"--gpu_ids", "1,5"})
    assert.equal("--gpu_ids: 0 is not among CUDA_VISIBLE_DEVICES=1",
      refused({"--gpu_ids", "0"}, {CUDA_VISIBLE_DEVICES = "1"}))
  end)

  case("reads the kind of job from Accelerate's file", function()
    local path = os.tmpname()
    local function file(text)
      local out = assert(io.open(path, "w"))
      out:write(text)
      out:close()
      return {"--config_file", path}
    end
    assert.same({"2", "one for each GPU"}, shown("num_processes", file "distributed_type: MULTI_GPU\ngpu_ids: all\n"))
    assert.same({"1", "default"}, shown("num_processes", file "distributed_type: 'NO'\n"))
    assert.same({"true", path .. ":1"}, shown("cpu", file "distributed_type: MULTI_CPU\nnum_processes: 2\n"))
    assert.same({"1", "one for each GPU"}, shown("num_processes", file "distributed_type: MULTI_GPU\ngpu_ids: 1\n"))
    assert.equal(path .. ":1: there is no GPU: the driver does not start: no CUDA-capable device is detected " ..
      "(CUDA_ERROR_NO_DEVICE)", refused(file "distributed_type: MULTI_GPU\n", {CUDA_VISIBLE_DEVICES = ""}))
    os.remove(path)
  end)

  case("reports in one line why there is none where one is requested", function()
    for _, words in ipairs {{"--multi_gpu"}, {"--num_processes", "gpu"}, {"--gpu_ids", "0"}} do
      local line = refused(words, {ACCELHOST_SIM_DEVICES = "0"})
      assert.matches("^%-%-[%w_]+: there is no GPU: .*CUDA_ERROR_NO_DEVICE", line)
    end
  end)
end)

describe("accelerators on GPUs", function()
  local script = [[
    local accelhost = require "accelhost"
    local it = accelhost.Accelerator()
    local here = accelhost.ones({2}, {device = "cuda"}).device
    print(table.concat({it.device, it.distributed_type, tostring(it.multi_device), here, it.num_processes,
      accelhost.PartialState().device, it.state.device}, " "))]]

  local function lines(result)
    assert.equal(0, result.code, result.output)
    local list = {}
    for line in result.stdout:gmatch "[^\n]+" do list[#list + 1] = (line:gsub("^%[r%d%] ", "")) end
    table.sort(list)
    return list
  end

  case("use the GPU of their number, and cuda means that one", function()
    assert.same({"cuda:0 MULTI_GPU true cuda:0 2 cuda:0 cuda:0", "cuda:1 MULTI_GPU true cuda:1 2 cuda:1 cuda:1"},
      lines(launch {"-e", script}))
    assert.same({"cuda:0 NO false cuda:0 1 cuda:0 cuda:0"}, lines(run.host({"-e", script}, with())))
  end)

  case("share GPUs where processes are more than GPUs, and report it", function()
    local result = launch {"--num_processes=3", "-e", script}
    assert.equal(0, result.code, result.output)
    assert.matches("cuda:0 MULTI_GPU true cuda:0 3 cuda:0 cuda:0", result.stdout)
    assert.matches("%[r1%] cuda:1 MULTI_GPU true cuda:1 3 cuda:1 cuda:1", result.stdout)
    assert.matches("warning: Accelerator: 3 processes share 2 GPUs", result.stderr)
  end)

  case("stay on the CPU where the launcher or the script selects it", function()
    local code = "print(require('accelhost').Accelerator(...).device, require('accelhost').PartialState(...).device)"
    assert.equal("cpu\tcpu\n", launch({"--cpu", "-e", code}).stdout)
    assert.equal("cpu\tcpu\n", run.host({"-e", code}, with {ACCELERATE_USE_CPU = "true"}).stdout)
    assert.equal("cpu\tcpu\n", run.host({"-e", (code:gsub("%.%.%.", "{cpu = true}"))}, with()).stdout)
  end)

  case("print their state as Accelerate's does", function()
    local result = run.host({"-e", "print(require('accelhost').Accelerator().state)"}, with())
    assert.equal("Distributed environment: NO\nNum processes: 1\nProcess index: 0\nLocal process index: 0\n" ..
      "Device: cuda:0\n\nMixed precision type: no\n\n", result.stdout)
  end)
end)

describe("Jobs on GPUs", function()
  case("train in two processes from prepared loaders with the CPU's losses", function()
    local code = [[
      local accelhost = require "accelhost"
      local nn, optim, data, F = accelhost.nn, accelhost.optim, accelhost.data, accelhost.nn.functional
      local it = accelhost.Accelerator()
      accelhost.manual_seed(4)
      local x = accelhost.randn({48, 20}, {dtype = "float64", device = "cpu"})
      local y = accelhost.randint(0, 3, {48}, {device = "cpu"})
      local net = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3)):to "float64"
      local net, optimizer, loader = it:prepare(net, optim.AdamW(net:parameters(), {lr = 0.05}),
        data.DataLoader(data.TensorDataset(x, y), {batch_size = 6, shuffle = true}))
      for epoch = 1, 2 do
        for inputs, labels in loader do
          assert(inputs.device == it.device and labels.device == it.device)
          local loss = F.cross_entropy(net(inputs), labels)
          it:backward(loss)
          optimizer:step()
          optimizer:zero_grad()
          it:print(("%.9f"):format(it:reduce(loss:detach(), "mean"):item()))
        end
      end]]
    local gpus, cpu = launch {"-e", code}, launch {"--cpu", "--num_processes=2", "-e", code}
    assert.equal(0, gpus.code, gpus.output)
    assert.equal(cpu.stdout, gpus.stdout)
    assert.equal(8, select(2, gpus.stdout:gsub("\n", "")))
  end)

  case("of a sweep have a GPU each while they run at once", function()
    local folder = require "spec.support.folder"
    local leave = folder.enter()
    local write = files.write
    write("search.lua", [[return {script = "train.lua", space = {lr = require("accelhost").sweep.uniform(0, 1)},
      metric = "loss", sampler = "random", trials = 4}]])
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local file = io.open("seen", "a")
      file:write(os.getenv "CUDA_VISIBLE_DEVICES", " ", accelhost.Accelerator().device, "\n")
      file:close()
      accelhost.report(1, {loss = args.lr})]])
    local result = run.host({"sweep", "search.lua"}, with())
    local seen, count = {}, 0
    for line in io.lines "seen" do seen[line], count = true, count + 1 end
    leave()
    assert.equal(0, result.code, result.output)
    assert.same({4, {["0 cuda:0"] = true, ["1 cuda:0"] = true}}, {count, seen})
  end)
end)
