-- save_state and load_state in several processes.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave
local case = require("lfs").currentdir() .. "/spec/distributed/cases/checkpoint.lua"

local environment = {}
local function launch(ranks, ...)
  return run.host({"launch", "--num_processes", ranks, ...}, {timeout = 60, env = environment})
end

local function script(ranks, text)
  return launch(ranks, "-e", "local accelhost = require 'accelhost' local nn = accelhost.nn " ..
    "local accelerator = accelhost.Accelerator() local net = accelerator:prepare(nn.Linear(2, 2)) " .. text)
end

describe("A state of several processes", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  for _, ranks in ipairs {2, 3} do
    it(("resumes in %d processes to the bit, in and between windows"):format(ranks), function()
      local whole = run.by_rank(launch(ranks, case, "run").stdout)
      assert.is_truthy(whole[1])
      for _, steps in ipairs {1, 3, 4, 9} do
        assert.equal("", launch(ranks, case, "save", steps, steps == 4 and "async" or nil).output)
        local result = launch(ranks, case, "load")
        assert.same(whole, run.by_rank(result.stdout), "after step " .. steps)
        assert.equal("", result.stderr)
        folder.remove "run"
      end
    end)
  end

  for name, variables in pairs {
    ["dealt out by one process"] = {DISPATCH = "1"}, ["split among them"] = {SPLIT = "1"},
    ["dealt out and split"] = {DISPATCH = "1", SPLIT = "1"},
    ["in half precision, with its scale"] = {PRECISION = "fp16"},
  } do
    it("resumes with batches " .. name, function()
      environment = variables
      local whole = run.by_rank(launch(2, case, "run").stdout)
      assert.is_truthy(whole[1])
      launch(2, case, "save", 5)
      local result = launch(2, case, "load")
      environment = {}
      assert.same(whole, run.by_rank(result.stdout), result.output)
    end)
  end

  it("carries averaged gradients over to more processes", function()
    local text = [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator()
      accelhost.manual_seed(0)
      local net = accelhost.nn.Linear(2, 1)
      local optimizer = accelhost.optim.SGD(net:parameters(), {lr = 1})
      net, optimizer = accelerator:prepare(net, optimizer)
      if accelerator.num_processes == 2 then
        accelerator:backward(net(accelhost.ones(1, 2) * (accelerator.process_index + 1)):sum())
        accelerator:save_state "state"
      else
        accelerator:load_state "state"
      end
      optimizer:step()
      print(accelhost.sha256(net:state_dict()))]]
    local two, three = run.by_rank(launch(2, "-e", text).stdout), launch(3, "-e", text)
    assert.same(run.everyone(3, two[0]), run.by_rank(three.stdout), three.output)
  end)

  it("carries over into another number of processes, with a message", function()
    launch(2, case, "save", 4)
    local result = launch(3, case, "load")
    assert.equal(0, result.code, result.output)
    assert.is_truthy(result.stderr:find("'run/checkpoints/checkpoint_0' was saved by 2 processes, this job has 3; "
      .. "rank 2: no random generators in it, so the present ones continue", 1, true), result.stderr)
    result = launch(1, case, "load")
    assert.equal(0, result.code, result.output)
    assert.is_truthy(result.stderr:find("was saved by 2 processes, this job has 1; all random generators continue", 1,
      true), result.stderr)
  end)

  it("names the process whose error it was, on all, and leaves nothing", function()
    local result = script(3, [[
      if accelerator.process_index == 1 then
        accelerator:register_save_state_pre_hook(function() error "no room" end)
      end
      print(select(2, pcall(accelerator.save_state, accelerator, "state")))]])
    assert.same(run.everyone(3, "-e:4: save_state: rank 1: -e:2: no room\n"), run.by_rank(result.stdout), result.output)
    assert.same({}, folder.names ".")
  end)

  it("has the parts that all ranks share from rank 0 alone", function()
    local result = script(2, [[
      accelerator:register_save_state_pre_hook(function(_, weights)
        if accelerator.process_index == leaves_out then weights[1] = nil end
      end)
      for rank = 0, 1 do
        leaves_out = rank
        accelerator:save_state("without_" .. rank)
      end]])
    assert.equal("", result.output)
    local own = {"manifest.json"}
    for rank = 0, 1 do own[#own + 1] = ("random_states_%d.safetensors"):format(rank) end
    for _, name in ipairs(own) do
      assert.is_truthy(require("lfs").attributes("without_0/" .. name), name)
    end
    assert.is_nil(require("lfs").attributes "without_0/model.safetensors")
    assert.is_truthy(require("lfs").attributes "without_1/model.safetensors")
  end)

  it("is aborted by all when one cannot write its files", function()
    -- Rank 2 finds a folder where its file is to be.
    local result = script(3, [[
      accelerator:register_save_state_pre_hook(function(_, _, folder)
        if accelerator.process_index == 2 then os.execute("mkdir '" .. folder .. "/random_states_2.json' '" ..
          folder .. "/random_states_2.safetensors'") end
      end)
      for _, async in ipairs {false, true} do
        local fine, text = pcall(accelerator.save_state, accelerator, "state", {async = async})
        if fine then fine, text = pcall(accelerator.wait_for_checkpoint, accelerator) end
        print(fine, text)
      end]])
    local said = run.by_rank(result.stdout)
    for rank = 0, 2 do
      local _, count = said[rank]:gsub("false\t%-e:%d+: save_state: 'state' was not saved: rank 2: "
        .. "'random_states_2.safetensors': cannot write: it is a folder\n", "")
      assert.equal(2, count, result.output)
    end
    assert.same({}, folder.names ".")
  end)

  it("is aborted with one clear error when there is no room for it", function()
    -- No file may be larger than 8 KiB.
    local text = "local accelhost = require 'accelhost' local accelerator = accelhost.Accelerator() " ..
      "local net = accelerator:prepare(accelhost.nn.Linear(64, 64)) " ..
      "accelerator:register_for_checkpointing(accelhost.Generator()) accelerator:save_state 'state'"
    local limited = [[trap '' XFSZ; ulimit -f 8; exec "$0" -e "$1"]]
    local result = run.program({"bash", "-c", limited, run.path, text}, {timeout = 60})
    assert.equal(1, result.code, result.output)
    assert.is_truthy(result.stderr:find("-e:1: save_state: 'state' was not saved: 'model.safetensors': cannot write: "
      .. "File too large", 1, true), result.output)
    assert.same({}, folder.names ".")
  end)

  it("ends the job with an error when its last save fails unasked", function()
    local result = script(2, [[
      accelerator:register_save_state_pre_hook(function(_, _, folder)
        if accelerator.process_index == 1 then os.execute("mkdir '" .. folder .. "/random_states_1.safetensors'") end
      end)
      accelerator:save_state("state", {async = true})]])
    assert.equal(3, result.code, result.output)
    assert.matches("save_state: 'random_states_1.safetensors': cannot write: it is a folder", result.stderr)
    assert.same({}, folder.names ".")
  end)

  it("waits at the end of the script for files that are being written", function()
    for _, last in ipairs {"", "os.exit(0)"} do
      local result = script(2, "accelerator:save_state('state', {async = true}) " .. last)
      assert.equal("", result.output)
      run.succeeds(result)
      result = script(2, "print(accelerator:load_state 'state')")
      assert.same(run.everyone(2, "state\n"), run.by_rank(result.stdout), result.output)
      folder.remove "state"
    end
  end)

  it("keeps the files that hooks write, and loads the weights that they leave", function()
    local result = script(2, [[
      local saving = accelerator:register_save_state_pre_hook(function(models, weights, folder)
        assert(#models == 1 and weights[1].weight)
        weights[1] = nil
        if accelerator.is_main_process then
          os.execute("mkdir " .. folder .. "/own")
          accelhost.save(models[1]:state_dict(), folder .. "/own/net.safetensors")
        end
        accelerator:wait_for_everyone()
      end)
      local loading = accelerator:register_load_state_pre_hook(function(models, folder)
        models[1]:load_state_dict(accelhost.load(folder .. "/own/net.safetensors"))
        models[1] = nil
      end)
      accelerator:save_state "state"
      local was = net.weight:clone()
      accelhost.no_grad(function() net.weight:fill_(0) end)
      accelerator:load_state "state"
      assert(net.weight:equal(was))
      saving.remove()
      loading.remove()
      accelerator:save_state "plain"
      accelhost.no_grad(function() net.weight:fill_(0) end)
      accelerator:load_state "plain"
      assert(net.weight:equal(was))
      print "ok"]])
    assert.same(run.everyone(2, "ok\n"), run.by_rank(result.stdout), result.output)
    assert.same({"net.safetensors"}, folder.names "state/own")
    assert.same({"model.safetensors"}, {folder.names("plain")[4]})
    local file = assert(io.open "state/manifest.json")
    assert.is_truthy(file:read("*a"):find('"own/net.safetensors"', 1, true))
    file:close()
  end)
end)

describe("An object that differs by process", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local text = [[
    local accelhost = require "accelhost"
    local accelerator = accelhost.Accelerator()
    local rank = accelerator.process_index
    local function place(value)
      return {value = value, state_dict = function(self) return {value = self.value} end,
        load_state_dict = function(self, state) self.value = state.value end}
    end
    local own, common, generator = place(rank + 1), place(rank + 1), accelhost.Generator(rank)
    accelerator:register_for_checkpointing(common)
    accelerator:register_for_checkpointing(own, generator, {per_process = true})
    if SAVES then accelerator:save_state "state" end
    local wanted = accelhost.rand(2, {generator = generator}):tolist()
    own.value, common.value = 0, 0
    accelerator:load_state "state"
    local drawn = accelhost.rand(2, {generator = generator}):tolist()
    print(own.value, common.value, drawn[1] == wanted[1])]]

  it("is saved by each process if it was registered so", function()
    local result = run.by_rank(launch(2, "-e", (text:gsub("SAVES", "true"))).stdout)
    assert.equal("1\t1\ttrue\n", result[0])
    assert.equal("2\t1\ttrue\n", result[1])
  end)

  it("has the main process's state in a process that did not exist", function()
    launch(1, "-e", (text:gsub("SAVES", "true")))
    local result = run.by_rank(launch(2, "-e", (text:gsub("SAVES", "false"))).stdout)
    assert.equal("1\t1\ttrue\n", result[0])
    assert.equal("1\t1\tfalse\n", result[1])
  end)
end)

describe("A job that is restarted", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("by --max_restarts resumes from its newest checkpoint", function()
    local text = [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator {
        project_config = {project_dir = "run", automatic_checkpoint_naming = true, total_limit = 1},
      }
      accelhost.manual_seed(0)
      local net = accelerator:prepare(accelhost.nn.Linear(4, 4))
      local at = {step = 0}
      function at:state_dict() return {step = self.step} end
      function at:load_state_dict(state) self.step = state.step end
      accelerator:register_for_checkpointing(at)
      local found = accelerator:load_state()
      print(found, at.step)
      while at.step < 6 do
        accelhost.no_grad(function() net.weight:add_(accelhost.rand(4, 4)) end)
        at.step = at.step + 1
        accelerator:save_state {async = at.step % 2 == 0}
        if MISHAP and at.step % 3 == 0 then
          accelerator:wait_for_checkpoint()
          if accelerator.process_index == at.step / 3 - 1 then os.execute "kill -9 $PPID" end
          accelerator:wait_for_everyone()
        end
      end
      print(accelhost.sha256(net.weight))]]
    local calm = launch(2, "-e", (text:gsub("MISHAP", "false")))
    folder.remove "run"
    local result = run.host({"launch", "--num_processes", 2, "--max_restarts", 3, "-e",
      (text:gsub("MISHAP", "(os.getenv 'ACCELHOST_RESTART_COUNT' ~= '2')"))}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    local whole, pieces = run.by_rank(calm.stdout), run.by_rank(result.stdout)
    for rank = 0, 1 do
      assert.equal("false\t0\nrun/checkpoints/checkpoint_2\t3\nrun/checkpoints/checkpoint_5\t6\n"
        .. whole[rank]:gsub("^false\t0\n", ""), pieces[rank])
    end
  end)
end)
