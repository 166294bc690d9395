--- State that a GPU run saves and resumes from: checkpoints, files of tensors, the Trainer, and the prompt after an
--- error. On the simulated GPU; each case is a separate program.
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local lfs = require "lfs"

local host = run.path:sub(1, 1) == "/" and run.path or lfs.currentdir() .. "/" .. run.path

-- The lines that a program prints with `tell`, in an empty folder.
local function tells(expected, code)
  folder.with(function(path)
    code = "local accelhost = require 'accelhost'\nlocal nn, F, optim, data = accelhost.nn, accelhost.nn.functional, "
      .. "accelhost.optim, accelhost.data\nlocal function tell(...) print('=', ...) end\n" .. code
    local result = run.program({host, "-e", code}, {env = sim.environment(code), dir = path, timeout = 120})
    local lines = {}
    for line in result.stdout:gmatch "[^\n]+" do lines[#lines + 1] = line:match "^=\t(.*)" end
    assert.same(expected, lines, result.stderr)
  end)
end

local case = sim.case

describe("Checkpoints of a run on a GPU", function()
  case("resume to the bit, with the next numbers of the device's generator", function()
    tells({"cuda:0\ttrue\tfalse"}, [[
      local function new(seed)
        accelhost.set_seed(seed)
        local self = {it = accelhost.Accelerator {
          project_config = {project_dir = "run", automatic_checkpoint_naming = true}}}
        local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        local optimizer = optim.AdamW(net:parameters(), {lr = 1e-2})
        local set = data.TensorDataset(accelhost.arange(88, {device = "cpu"}):reshape(22, 4):sin(),
          accelhost.arange(22, {device = "cpu"}):remainder(2))
        self.net, self.optimizer, self.loader, self.scheduler = self.it:prepare(net, optimizer,
          data.DataLoader(set, {batch_size = 4, shuffle = true}), optim.lr_scheduler.StepLR(optimizer, 3))
        return self
      end
      local function train(self, save_at)
        local done = 0
        for _ = self.loader.epoch, 1 do
          for x, y in self.loader do
            local loss = F.cross_entropy(self.net(x), y)
            self.it:backward(loss)
            self.optimizer:step()
            self.scheduler:step()
            self.optimizer:zero_grad()
            done = done + 1
            if done == save_at then
              self.it:save_state()
              return self
            end
          end
        end
        return self
      end
      local function signature(self)
        local values = {}
        for _, parameter in ipairs(self.net:parameters()) do
          local state = self.optimizer.state[parameter]
          for _, tensor in ipairs {parameter, state.exp_avg, state.exp_avg_sq} do
            assert(tensor.device == "cuda:0")
            for _, value in ipairs(tensor:detach():flatten():tolist()) do values[#values + 1] = ("%a"):format(value) end
          end
        end
        local drawn = accelhost.rand({4}, {device = "cuda"}):tolist()
        for _, value in ipairs(drawn) do values[#values + 1] = ("%a"):format(value) end
        return table.concat(values, " ")
      end
      local whole = signature(train(new(0)))
      train(new(0), 4)
      local again = new(9)
      again.it:load_state()
      tell(again.net[1].weight.device, signature(train(again)) == whole, signature(train(new(9))) == whole)]])
  end)

  case("are files of tensors that are copied to the named device, and back, a few MiB at a time", function()
    tells({"cuda:1\ttrue\tfloat16", "cpu\ttrue", "cuMemcpyDtoHAsync_v2\t3", "cuMemcpyHtoDAsync_v2\t3"}, [[
      local ffi = require "ffi"
      ffi.cdef "const char *simulated_calls(void);"
      local big = accelhost.randn({10 * 2 ^ 18}, {device = "cpu"}) -- 10 MiB
      local there = big:to "cuda:0"
      local half = accelhost.ones({3, 2}, {device = "cuda:0"}):t():to "float16"
      local simulator = ffi.load "]] .. sim.library .. [["
      local function copies()
        local found = {}
        for name, times in ffi.string(simulator.simulated_calls()):gmatch "(cuMemcpy%S+) (%d+)" do
          found[name] = tonumber(times)
        end
        return found
      end
      local first = copies()
      accelhost.save({big = there}, "big.safetensors")
      local loaded = accelhost.load("big.safetensors", "cuda:1")
      local last = copies()
      accelhost.save({half = half}, "half.safetensors")
      tell(loaded.big.device, loaded.big:cpu():equal(big),
        accelhost.load("half.safetensors", {map_location = "cuda:1"}).half.dtype)
      local back = accelhost.load "big.safetensors"
      tell(back.big.device, back.big:equal(big))
      for _, name in ipairs {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"} do
        tell(name, last[name] - (first[name] or 0))
      end]])
  end)
end)

-- A Trainer of a small net, and the losses that it logs.
local trainer = [[
  local function set(rows)
    accelhost.manual_seed(5)
    local x = accelhost.randn({rows, 4}, {device = "cpu"})
    return data.TensorDataset(x, x:sum(1):gt(0):to "int64")
  end
  local function new(given)
    local args = {disable_tqdm = true, logging_steps = 1, per_device_train_batch_size = 8, learning_rate = 1e-2,
      save_strategy = "no", num_train_epochs = 2, output_dir = "out"}
    for name, value in pairs(given) do args[name] = value end
    local made = accelhost.Trainer {
      args = args, train_dataset = set(30),
      model_init = function() return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) end,
      compute_loss = function(model, inputs)
        local outputs = model(inputs.inputs)
        return F.cross_entropy(outputs:to "float32", inputs.labels), outputs
      end,
    }
    made:remove_callback(require("accelhost.trainer.callbacks").PrinterCallback)
    return made
  end
  local function losses(made)
    local values = {}
    for _, entry in ipairs(made.state.log_history) do values[#values + 1] = entry.loss end
    return values
  end
  local function train(given, how)
    local made = new(given)
    made:train(how)
    return losses(made), made
  end
  local function apart(a, b)
    assert(#a == #b and #a > 0)
    local most = 0
    for i = 1, #a do most = math.max(most, math.abs(a[i] - b[i])) end
    return most
  end
]]

describe("The Trainer on a GPU", function()
  case("has the CPU's losses, and stays there with the option, also in mixed precision", function()
    tells({"cpu\tcuda:0\ttrue", "bf16\ttrue\tcuda:0", "fp16\ttrue\tcuda:0"}, trainer .. [[
      local here, on_cpu = train {use_cpu = true}
      local there, on_gpu = train {}
      tell(on_cpu.model[1].weight.device, on_gpu.model[1].weight.device, apart(here, there) < 1e-5)
      for _, kind in ipairs {"bf16", "fp16"} do
        local mixed, made = train {[kind] = true}
        tell(kind, apart(here, mixed) < 0.02 and apart(there, mixed) > 0, made.model[1].weight.device)
      end]])
  end)

  case("resumes from its checkpoint to the bit", function()
    tells({"true"}, trainer .. [[
      local whole, first = train {save_strategy = "steps", save_steps = 3}
      local again, second = train({save_strategy = "steps", save_steps = 3}, "out/checkpoint-3")
      for i = 1, #whole do assert(whole[i] == again[i], i) end
      tell(first.model[1].weight:equal(second.model[1].weight))]])
  end)

  case("has its loaders' batches in pinned memory, unless configured otherwise", function()
    tells({"true\tfalse\tfalse"}, trainer .. [[
      local function pinned(given)
        for x in new(given):get_train_dataloader() do return x:is_pinned() end
      end
      tell(pinned {}, pinned {dataloader_pin_memory = false}, pinned {use_cpu = true})]])
  end)
end)

describe("The prompt on a GPU", function()
  case("continues after one that ran out of memory", function()
    local env = sim.environment("", {ACCELHOST_SIM_MEMORY = "64MiB"})
    local result = run.program({host, "repl"}, {timeout = 60, env = env,
      stdin = "accelhost.set_default_device 'cuda'\nlocal x = ones(2, 3)\nx:sum():item()\nlocal big = zeros(2 ^ 25)\n"
        .. "big\nx.device\n(x * 2):sum():item()\nzeros(2 ^ 20):sum():item()\n"})
    assert.matches("^6\n%[4%]:1: [^\n]*out of memory[^\n]*\n", result.stdout)
    assert.matches('\n"cuda:0"\n12\n0\n$', result.stdout)
    assert.equal(1, result.code)
  end)
end)
