-- Trainings under accelhost launch --recover live whose ranks are killed by SIGKILL at a step: the results must equal,
-- to the bit, those of an undisturbed training.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave
local specs = require("lfs").currentdir() .. "/spec/"
local case = specs .. "distributed/cases/recovered.lua"

local function launch(options)
  local words = {"launch", "--num_processes", options.ranks or 2}
  if options.live ~= false then
    for _, word in ipairs {"--recover", "live", "--max_restarts", 12} do words[#words + 1] = word end
  end
  words[#words + 1] = options.script or case
  folder.remove "run"
  os.execute "rm -f killed_*"
  return run.host(words, {timeout = 60, env = {
    FOLDER = require("lfs").currentdir(), FEATURES = options.features or "", KILL = options.kill or "",
  }})
end

local undisturbed = {} -- results by configuration

-- The results are those of the undisturbed run, which is one without recovery, and as many ranks were replaced as were
-- killed; `look` is called when that run has ended.
local function check(options)
  local key = ("%s|%s"):format(options.features or "", options.ranks or 2)
  local calm = not options.look and undisturbed[key]
  if not calm then
    calm = launch {features = options.features, ranks = options.ranks, live = false}
    assert.equal(0, calm.code, calm.output)
    undisturbed[key] = calm
  end
  if options.look then options.look() end
  local result = launch(options)
  assert.equal(0, result.code, result.output)
  assert.same(run.by_rank(calm.stdout), run.by_rank(result.stdout), result.stderr)
  local _, wanted = options.kill:gsub("%d+:%a", "")
  local count = 0
  for _ in result.stderr:gmatch "was killed by SIGKILL" do count = count + 1 end
  for more in result.stderr:gmatch "and (%d+) that was to replace it" do count = count + tonumber(more) end
  assert.equal(wanted, count, result.stderr)
  return result, run.by_rank(calm.stdout)
end

local places = "0:forward:2 1:backward:4 0:reduced:7 1:stepped:9 0:evaluation:12 1:forward:18"

describe("A rank that is killed in a training", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  for _, place in ipairs {"set_up", "loaded"} do
    it(("before its first step is replaced (%s)"):format(place), function()
      check {kill = ("0:%s:0 1:%s:0"):format(place, place)}
    end)
  end

  for _, place in ipairs {"forward", "backward", "reduced", "stepped"} do
    it(("and the other one too, each in its turn and both at once, is replaced (%s)"):format(place), function()
      local kill = "0:%s:1 1:%s:6 0:%s:7 0:%s:9 1:%s:9"
      local result = check {kill = (kill:gsub("%%s", place))}
      assert.matches("rank 1 %(pid %d+%) was killed by SIGKILL; replaced in [%d.]+ s, resumes at step 5\n",
        result.stderr)
    end)
  end

  it("while it replaces another is replaced once more", function()
    check {kill = "1:forward:5 1:loaded:4 1:forward:6"}
  end)

  it("in an evaluation is replaced, after a pass and within one", function()
    check {kill = "1:evaluation:6 0:evaluation:12", features = "norm"}
    check {kill = "1:evaluation:4 0:evaluation:8 1:evaluation:12", features = "norm within"}
  end)

  for _, place in ipairs {"saving", "writing"} do
    it("while all save a state is replaced, and the states are whole: " .. place, function()
      local features = place == "writing" and "saving heavy" or "saving"
      local kill = place == "writing" and "0:writing:3 1:writing:6 0:writing:9"
        or "1:saving:3 0:saving:6 1:saving:9 0:saving:9 0:saving:12"
      local _, calm = check {kill = kill, features = features}
      assert.same({"checkpoint_4", "checkpoint_5"}, folder.names "run/checkpoints")
      local resumed = run.host({"launch", "--num_processes", 2, case}, {timeout = 60,
        env = {FOLDER = require("lfs").currentdir(), FEATURES = features, KILL = ""}})
      local weights = run.by_rank(resumed.stdout)
      for rank = 0, 1 do assert.equal(calm[rank]:match "^%x+", weights[rank]:match "^%x+", resumed.output) end
    end)
  end

  it("leaves each row once in the files of trackers", function()
    local calm = {}
    local function read(list)
      for _, kind in ipairs {"csv", "jsonl"} do
        local file = assert(io.open("run/logs/metrics." .. kind))
        list[kind] = file:read("*a"):gsub("%d%d%d%d%d%d%d%d%d%d%.%d+", "TIME")
        file:close()
      end
      return list
    end
    check {features = "logs", kill = "0:logged:1 0:forward:4 0:logged:6 1:forward:8", look = function() read(calm) end}
    local _, rows = calm.jsonl:gsub("\n", "")
    assert.equal(36, rows)
    assert.same(calm, read {})
  end)

  for _, features in ipairs {"workers torch", "workers persistent dropout", "workers stream"} do
    it("is replaced to the bit with a data set's random numbers in workers: " .. features, function()
      check {features = features, kill = "0:forward:2 1:backward:8 0:evaluation:12"}
    end)
  end

  for _, features in ipairs {
    "norm dropout clip", "windows norm", "bf16 dropout", "fp16 windows", "sgd zero_first", "within dropout", "drawn",
    "dispatch dropout", "stream", "buckets norm", "breaks dropout", "saving windows norm dropout clip", "torch dropout",
    "fresh extra peeks",
  } do
    it("is replaced to the bit with: " .. features, function()
      check {features = features, kill = features:find "windows" and (places:gsub("1:stepped:9 ", ""))
        or features:find "breaks" and "0:forward:3 1:backward:4 0:stepped:6" or places}
    end)
  end

  it("is replaced to the bit where another loader is walked now and then and let go of", function()
    check {features = "zipped drawn", kill = "0:forward:4 0:forward:5 1:forward:7 0:reduced:8 1:stepped:9 1:forward:18"}
    check {features = "zipped drawn peeks breaks", kill = "1:forward:4 0:forward:6"}
  end)

  it("resumes at the step before, whatever passes of other loaders were left before", function()
    local result = check {features = "peeked", kill = "1:forward:3 0:forward:9"}
    assert.matches("rank 1 %(pid %d+%) was killed by SIGKILL; replaced in [%d.]+ s, resumes at step 2\n",
      result.stderr)
    assert.matches("rank 0 %(pid %d+%) was killed by SIGKILL; replaced in [%d.]+ s, resumes at step 8\n",
      result.stderr)
  end)

  it("is replaced in the first step after a checkpoint in the middle of a pass", function()
    local function resume(kill)
      folder.remove "run"
      os.execute "rm -f killed_*"
      local env = {FOLDER = require("lfs").currentdir(), FEATURES = "saving stops drawn", KILL = ""}
      local first = run.host({"launch", "--num_processes", 2, case}, {timeout = 60, env = env})
      assert.equal(0, first.code, first.output)
      env.FEATURES, env.KILL = "drawn", kill
      local rest = run.host({"launch", "--num_processes", 2, "--recover", "live", case}, {timeout = 60, env = env})
      assert.equal(0, rest.code, rest.output)
      return run.by_rank(rest.stdout)
    end
    assert.same(resume "", resume "1:forward:4 0:forward:4")
  end)

  it("is replaced with an optimizer whose state is more than tensors", function()
    check {features = "lbfgs", kill = "0:forward:2 1:forward:9 0:evaluation:12"}
  end)

  it("is replaced with virtual_shards", function()
    check {features = "shards norm dropout", kill = "0:forward:2 1:evaluation:6 0:forward:8"}
  end)

  it("is replaced so soon that the next step is less than a second behind the kill", function()
    local text = [[
      local accelhost = require "accelhost"
      local C, F = require "accelhost._C", accelhost.nn.functional
      local accelerator = accelhost.Accelerator()
      local net = dofile(os.getenv "NETS").basic()
      local optimizer = accelhost.optim.AdamW(net:parameters())
      local images, labels = accelhost.ones(64, 1, 28, 28), accelhost.zeros(64, {dtype = "int64"})
      local loader = accelhost.data.DataLoader(accelhost.data.TensorDataset(images, labels), {batch_size = 2})
      net, optimizer, loader = accelerator:prepare(net, optimizer, loader)
      local step = {n = 0}
      function step:state_dict() return {n = self.n} end
      function step:load_state_dict(state) self.n = state.n end
      accelerator:register_for_checkpointing(step)
      accelerator:load_state()
      for x, y in loader do
        accelerator:backward(F.cross_entropy(net(x), y))
        step.n = step.n + 1
        local mark = "dead" .. step.n
        if accelerator.process_index == 1 and step.n % 5 == 0 and not io.open(mark) then
          assert(io.open(mark, "w")):close()
          io.write(("kill %.6f\n"):format(C.system.now()))
          io.flush()
          os.execute "kill -9 $PPID"
        end
        optimizer:step()
        optimizer:zero_grad()
        if accelerator.process_index == 1 then io.write(("step %.6f\n"):format(C.system.now())) end
      end]]
    local result = run.host({"launch", "--num_processes", 2, "--recover", "live", "-e", text},
      {timeout = 60, env = {NETS = specs .. "parity/nets.lua"}})
    assert.equal(0, result.code, result.output)
    local times = {}
    for killed, next_step in result.stdout:gmatch "kill ([%d.]+)\n%[r1%] step ([%d.]+)" do
      times[#times + 1] = next_step - killed
    end
    assert.equal(3, #times, result.output)
    local limit = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1
    assert.is_true(math.min(unpack(times)) < limit, table.concat(times, " "))
  end)

  it("is replaced in a job of one, and of four", function()
    check {ranks = 1, kill = "0:forward:3 0:stepped:9"}
    check {ranks = 4, kill = "3:forward:2 1:backward:2 0:reduced:4 2:evaluation:3", features = "norm dropout"}
  end)
end)

describe("Live recovery", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("needs no folder, and reports the source of a state", function()
    local text = [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator()
      accelhost.manual_seed(0)
      local net = accelhost.nn.Linear(2, 1)
      local optimizer = accelhost.optim.Adam(net:parameters())
      local loader = accelhost.data.DataLoader(accelhost.data.TensorDataset(accelhost.ones(8, 2)), {batch_size = 2})
      net, optimizer, loader = accelerator:prepare(net, optimizer, loader)
      local found = accelerator:load_state()
      io.stderr:write(("%s\n"):format(tostring(found)))
      for x in loader do
        accelerator:backward(net(x):sum())
        if not found and accelerator.process_index == 1 then os.execute "kill -9 $PPID" end
        optimizer:step()
      end]]
    local result = run.host({"launch", "--num_processes", 2, "--recover", "live", "-e", text}, {timeout = 30})
    assert.equal(0, result.code, result.output)
    assert.matches("\n%[r1%] live\n", "\n" .. result.stderr)
  end)

  it("reports that a script must call load_state, where it does not", function()
    local result = launch {features = "forgets", kill = "1:forward:5"}
    assert.equal(3, result.code, result.output)
    assert.matches("recovered.lua:%d+: .-call accelerator:load_state%(%) before the loop", result.stderr)
  end)

  it("refuses by name objects that it cannot restore", function()
    for text, expected in pairs {
      ["local a = Accelerator{sharding = 'gradients'} a:prepare(net(), loader())"] =
        "live recovery: needs states that all processes have, and with sharding = 'gradients' they have parts",
      ["Accelerator():join_uneven_inputs({net()}, print)"] =
        "join_uneven_inputs: with live recovery all processes iterate over equally many batches: leave it out",
      ["local a = Accelerator() accelhost.LocalSGD(a, a:prepare(net()), 2)"] =
        "LocalSGD: live recovery needs weights that are equal on all processes; here each has its own",
      ["local a, b = Accelerator(), Accelerator() for _, x in ipairs {a, b} do "
        .. "local n, l = x:prepare(net(), loader()) local o = x:prepare(accelhost.optim.SGD(n:parameters(), {lr = 1})) "
        .. "x:load_state() for i in l do x:backward(n(i):sum()) o:step() end end"] =
        "live recovery: the loops of one accelerator can be recovered, here are two",
      ["local a = Accelerator() local n, l = a:prepare(net(), loader()) a:register_for_checkpointing {"
        .. "state_dict = function() return {best = {print}} end, load_state_dict = print} a:load_state() "
        .. "for i in l do a:backward(n(i):sum()) end"] =
        "live recovery: a run's state is tensors, numbers, texts, booleans and tables of them: item 'registered': "
        .. "item number 1: item 'best': item number 1: a function",
      ["local a = Accelerator() local n, l = a:prepare(net(), loader()) a:load_state() "
        .. "for i in a:skip_first_batches(l, 1) do a:backward(n(i):sum()) end"] =
        "live recovery: the state has the positions of prepared loaders only, and this loop is over another one",
    } do
      local head = [[local accelhost = require "accelhost" local Accelerator = accelhost.Accelerator
        local function net() return accelhost.nn.Linear(2, 1) end
        local function loader() return accelhost.data.DataLoader(accelhost.data.TensorDataset(accelhost.ones(8, 2))) end
        ]]
      local result = run.host({"launch", "--num_processes", 2, "--recover", "live", "-e", head .. text}, {timeout = 30})
      assert.equal(3, result.code, result.output)
      assert.is_truthy(result.stderr:find(expected, 1, true), result.stderr)
    end
  end)
end)
