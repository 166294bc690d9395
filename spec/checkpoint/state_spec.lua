-- save_state and load_state in one process: their contents, files and refusals.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local read, write = files.read, files.write
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local leave

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

-- A small run: its objects, and its steps. Everything that is random in a script is in it.
local function new(options)
  options = options or {}
  accelhost.manual_seed(options.seed or 0)
  local accelerator = accelhost.Accelerator {
    gradient_accumulation_steps = options.window or 1,
    project_config = {project_dir = "run", automatic_checkpoint_naming = true, total_limit = options.limit},
  }
  local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
  local optimizer = (options.optimizer or function(p) return optim.AdamW(p, {lr = 1e-2}) end)(net:parameters())
  local set = data.TensorDataset(accelhost.arange(88):reshape(22, 4):sin(), accelhost.arange(22):remainder(2))
  local loader = data.DataLoader(set, options.loader and options.loader() or {batch_size = 4, shuffle = true})
  local scheduler = (options.scheduler or function(o) return optim.lr_scheduler.StepLR(o, 3) end)(optimizer)
  local self = {accelerator = accelerator}
  self.net, self.optimizer, self.loader, self.scheduler = accelerator:prepare(net, optimizer, loader, scheduler)
  return self
end

-- Train to the end of three passes, or for `steps`; at `save_at` steps the state is saved.
local function train(self, steps, save_at)
  local done = 0
  for _ = self.loader.epoch, 2 do
    for x, y in self.loader do
      self.accelerator:accumulate(self.net)
      local loss = F.cross_entropy(self.net(x), y)
      self.accelerator:backward(loss)
      self.optimizer:step()
      if self.scheduler.step then self.scheduler:step(self.plateau and loss:item() or nil) end
      self.optimizer:zero_grad()
      done = done + 1
      if done == save_at then self.path = self.accelerator:save_state() end
      if done == steps then return self end
    end
  end
  return self
end

-- Weights, the optimizer's state, and the next random numbers.
local function signature(self)
  local values = {}
  for name, tensor in nn.utils.state_pairs(self.net:state_dict()) do
    values[#values + 1] = name .. accelhost.to_string(tensor:contiguous())
  end
  for _, parameter in ipairs(self.net:parameters()) do
    local state = self.optimizer.state[parameter] or {}
    for _, name in ipairs {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"} do
      values[#values + 1] = state[name] and name .. accelhost.to_string(state[name]) or name
    end
  end
  values[#values + 1] = accelhost.to_string(accelhost.rand(4))
  values[#values + 1] = ("%.17g"):format(self.optimizer.param_groups[1].lr)
  return table.concat(values)
end

describe("save_state and load_state", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  -- Accelerate's test_state_checkpointing, at every place of a pass.
  for _, at in ipairs {1, 3, 6, 7, 12, 15} do
    it(("resumes after step %d to the bit, weights, optimizer, schedule, order and generator"):format(at), function()
      local whole = signature(train(new()))
      train(new(), at, at)
      local again = new {seed = 9}
      assert.equal("run/checkpoints/checkpoint_0", again.accelerator:load_state())
      assert.equal(whole, signature(train(again)))
    end)
  end

  for _, at in ipairs {1, 2, 4, 5, 7} do
    it(("resumes after micro-step %d of windows of three"):format(at), function()
      local whole = signature(train(new {window = 3}))
      train(new {window = 3}, at, at)
      local again = new {window = 3, seed = 9}
      again.accelerator:load_state()
      assert.equal(whole, signature(train(again)))
      assert.equal(at % 3 ~= 0 and at ~= 6, exists "run/checkpoints/checkpoint_0/gradients_0.safetensors")
    end)
  end

  it("keeps gradients between backward and step, and none that an optimizer has used", function()
    local function resumed(window)
      local one = new()
      for i = 1, window do
        local loss = one.net(accelhost.ones(4, 4) * i):sum()
        if i == 1 then one.accelerator:backward(loss) else loss:backward() end
      end
      one.accelerator:save_state "state"
      local grads = {}
      for i, p in ipairs(one.net:parameters()) do grads[i] = p.grad:clone() end
      local again = new {seed = 4}
      again.accelerator:load_state "state"
      for i, p in ipairs(again.net:parameters()) do assert.is_true(p.grad:equal(grads[i])) end
      one.optimizer:step()
      again.optimizer:step()
      accelhost.manual_seed(1)
      local expected = signature(one)
      accelhost.manual_seed(1)
      assert.equal(expected, signature(again))
      again.accelerator:save_state "after"
      assert.is_false(exists "after/gradients_0.safetensors")
      again.optimizer:zero_grad()
      one.accelerator:load_state "after"
      for _, p in ipairs(one.net:parameters()) do assert.is_nil(p.grad) end
    end
    resumed(1)
    resumed(2)
  end)

  it("refuses gradients that were unscaled before their step", function()
    local accelerator = accelhost.Accelerator {mixed_precision = "fp16"}
    local net = nn.Linear(2, 2)
    local optimizer
    net, optimizer = accelerator:prepare(net, optim.SGD(net:parameters()))
    accelerator:backward(net(accelhost.ones(1, 2)):sum())
    accelerator:save_state "scaled"
    accelerator:clip_grad_norm_(net:parameters(), 1)
    assert.error_matches(function() accelerator:save_state "state" end,
      "save_state: gradients are unscaled .* and wait for their optimizer's step: save after it")
    optimizer:step()
    accelerator:save_state "state"
    assert.same({"scaled", "state"}, folder.names ".")
  end)

  it("keeps the scale of losses and how long it has been right", function()
    local function run()
      accelhost.manual_seed(0)
      local accelerator = accelhost.Accelerator {
        mixed_precision = "fp16",
        kwargs_handlers = {accelhost.GradScalerKwargs {init_scale = 1024, growth_interval = 4}},
      }
      local net = nn.Linear(2, 2)
      local optimizer
      net, optimizer = accelerator:prepare(net, optim.SGD(net:parameters(), {lr = 0.1}))
      -- The scale after each step.
      return accelerator, net, function(factors)
        local scales = {}
        for i, factor in ipairs(factors) do
          accelerator:backward(net(accelhost.ones(1, 2)):sum() * factor)
          optimizer:step()
          optimizer:zero_grad()
          scales[i] = accelerator.scaler:get_scale()
        end
        return scales
      end
    end
    local rest = {1, 1, math.huge, 1}
    local one, net, train_on = run()
    assert.same({512, 512, 512, 512, 1024, 1024, 1024}, train_on {math.huge, 1, 1, 1, 1, 1, 1})
    one:save_state "state"
    local expected = train_on(rest)
    assert.same({1024, 2048, 1024, 1024}, expected)
    local again, its_net, go_on = run()
    again:load_state "state"
    assert.equal(1024, again.scaler:get_scale())
    assert.same(expected, go_on(rest))
    assert.is_true(its_net.weight:equal(net.weight))
    local other = accelhost.Accelerator()
    other:prepare(nn.Linear(2, 2))
    assert.error_matches(function() other:load_state "state" end, "load_state")
  end)

  it("keeps the state of math.random", function()
    local accelerator = accelhost.Accelerator()
    math.random()
    accelerator:save_state "state"
    local drawn = {math.random(), math.random(100), math.random(7, 9)}
    math.randomseed(5)
    accelerator:load_state "state"
    assert.same(drawn, {math.random(), math.random(100), math.random(7, 9)})
  end)

  it("finishes a save whose accelerator has no references any more", function()
    for i = 1, 3 do
      local accelerator = accelhost.Accelerator()
      local net = accelerator:prepare(nn.Linear(200, 200))
      accelerator:save_state("state" .. i, {async = true})
      assert(net)
      accelerator = nil -- luacheck: ignore
      collectgarbage()
    end
    for i = 1, 3 do
      for _ = 1, 1000 do
        if exists(("state%d/manifest.json"):format(i)) then break end
        os.execute "sleep 0.01"
      end
      assert.is_true(exists(("state%d/manifest.json"):format(i)))
    end
  end)

  it("saves the values of the call, even if they change while they are written", function()
    local accelerator = accelhost.Accelerator()
    local net = accelerator:prepare(nn.Linear(300, 300))
    for round = 1, 5 do
      accelhost.no_grad(function() net.weight:fill_(round) end)
      accelerator:save_state("state", {async = true})
      accelhost.no_grad(function() net.weight:fill_(-1) end)
      accelerator:end_training()
      local saved = accelhost.load "state/model.safetensors"
      assert.equal(round * 300 * 300, saved.weight:sum():item())
    end
  end)

  it("accepts a folder by its relative or its whole path", function()
    local first = train(new(), 4)
    assert.equal("a/b/state", first.accelerator:save_state "a/b/state")
    local whole = signature(first)
    for _, path in ipairs {"a/b/state", "./a/../a/b/state/", require("lfs").currentdir() .. "/a/b/state"} do
      local again = new {seed = 5}
      again.accelerator:load_state(path)
      assert.equal(whole, signature(again))
    end
  end)

  it("names the files as Accelerate does, and the second of a kind with a number", function()
    local accelerator = accelhost.Accelerator()
    local a, b = nn.Linear(2, 2), nn.Linear(3, 3)
    local oa, ob = optim.SGD(a:parameters()), optim.Adam(b:parameters())
    a, b, oa, ob = accelerator:prepare(a, b, oa, ob)
    accelerator:register_for_checkpointing(nn.Linear(1, 1))
    accelerator:save_state "state"
    assert.same({
      "accelerator.json", "custom_checkpoint_0.safetensors", "loaders.json", "manifest.json", "model.safetensors",
      "model_1.safetensors", "optimizer.json", "optimizer_1.json", "random_states_0.safetensors",
    }, folder.names "state")
    assert.is_true(accelhost.load("state/model_1.safetensors").weight:equal(b.weight))
    local was = b.weight:clone()
    accelhost.no_grad(function()
      a.weight:fill_(0)
      b.weight:fill_(0)
    end)
    accelerator:load_state "state"
    assert.is_true(b.weight:equal(was))
    assert(oa and ob)
  end)

  it("keeps the manifest: sizes, hashes and the settings that decide about the bits", function()
    new().accelerator:save_state "state"
    local facts = accelhost.json.decode(read "state/manifest.json")
    for name, entry in pairs(facts.files) do
      local text = read("state/" .. name)
      assert.equal(#text, entry.size)
      assert.equal(accelhost.sha256(text), entry.sha256)
    end
    assert.equal(1, facts.world_size)
    assert.equal(accelhost.get_num_threads(), facts.threads)
    for _, name in ipairs {"cpu", "kernels", "blas", "accelhost"} do assert.is_string(facts[name]) end
  end)

  it("replaces a checkpoint, and no folder that has something else in it", function()
    local one = train(new(), 2)
    one.accelerator:save_state "state"
    local first = read "state/model.safetensors"
    train(one, 1)
    one.accelerator:save_state "state"
    assert.is_false(first == read "state/model.safetensors")
    write("state/notes.txt", "mine")
    local second = read "state/model.safetensors"
    assert.error_matches(function() one.accelerator:save_state "state" end,
      "save_state: cannot replace 'state': 'notes.txt' in it is no part of the checkpoint: pass another folder")
    assert.equal(second, read "state/model.safetensors")
    write("file", "")
    assert.error_matches(function() one.accelerator:save_state "file" end, "save_state: 'file' is a file")
    assert.same({"file", "state"}, folder.names ".")
  end)

  it("leaves the old checkpoint and nothing else when a new one cannot be written", function()
    local one = train(new(), 2)
    one.accelerator:save_state "state"
    local before = read "state/manifest.json"
    one.accelerator:register_for_checkpointing {
      state_dict = function() return {value = print} end, load_state_dict = function() end,
    }
    assert.error_matches(function() one.accelerator:save_state "state" end,
      "save_state: 'value' is a function; a file holds tensors, numbers, texts, booleans and tables of them")
    assert.equal(before, read "state/manifest.json")
    assert.same({"state"}, folder.names ".")
  end)

  it("removes files of a dead save, and not those of a running one", function()
    local one = new()
    local host = require "accelhost._C".system.host_name()
    local foreign = {".checkpoint_7.saving-" .. host .. "-1-x", ".my.saving-accounts", ".saving-plans"}
    os.execute(("mkdir -p run/checkpoints/.checkpoint_7.saving-%s-1-0/sub .state.saving-%s-1-3"):format(host, host))
    for _, name in ipairs(foreign) do os.execute("mkdir run/checkpoints/" .. name) end
    one.accelerator:save_state()
    table.insert(foreign, "checkpoint_0")
    table.sort(foreign)
    assert.same(foreign, folder.names "run/checkpoints")
    assert.same({(".state.saving-%s-1-3"):format(host), "run"}, folder.names ".")
    one.accelerator:save_state "state"
    assert.same({"run", "state"}, folder.names ".")
  end)

  it("refuses to resume with other objects than were saved", function()
    local one = new()
    one.accelerator:save_state "state"
    local other = accelhost.Accelerator()
    other:prepare(nn.Linear(2, 2))
    assert.error_matches(function() other:load_state "state" end,
      "load_state: 'state' holds 1 optimizers, here are 0 prepared: prepare and register the same objects")
    local wide = new {seed = 1}
    wide.accelerator:register_for_checkpointing(accelhost.Generator(1))
    assert.error_matches(function() wide.accelerator:load_state "state" end,
      "load_state: 'state' holds 0 registered objects, here are 1 registered")
    local net = nn.Linear(2, 2)
    local third = accelhost.Accelerator()
    local optimizer = optim.AdamW(net:parameters())
    local held = {third:prepare(net, optimizer,
      data.DataLoader(data.TensorDataset(accelhost.ones(3))), optim.lr_scheduler.StepLR(optimizer, 2))}
    assert.error_matches(function() third:load_state "state" end, "Missing key%(s%) in state_dict")
    assert(held)
  end)

  it("reports a missing folder argument", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function() accelerator:save_state() end,
      "save_state: pass a folder, or the accelerator a project_config")
    assert.error_matches(function() accelerator:load_state() end,
      "load_state: pass a folder, or the accelerator a project_dir")
    assert.error_matches(function() accelerator:load_state "nowhere" end,
      "load_state: 'nowhere' cannot be used: it has no manifest.json %(No such file or directory%)")
    assert.error_matches(function() accelerator:save_state("state", {safe_serialization = false}) end,
      "safe_serialization: files here are data always")
    assert.error_matches(function() accelerator:save_state("state", {asynch = true}) end,
      "save_state: unknown option 'asynch'")
    assert.is_false(accelhost.Accelerator{project_dir = "run"}:load_state())
  end)

  it("registers objects with a state, and names the positions of those without", function()
    local accelerator = accelhost.Accelerator()
    assert.error_matches(function()
      accelerator:register_for_checkpointing(nn.Linear(1, 1), 3, {}, accelhost.Generator())
    end, "register_for_checkpointing: expected objects with state_dict and load_state_dict; arguments 2 %(number 3%), "
      .. "3 %(a table%) have none")
    assert.error_matches(function()
      accelerator:register_for_checkpointing(accelhost.Generator(), {per_process = 1})
    end, "register_for_checkpointing: per_process: expected true or false, got number 1")
    local generator, object = accelhost.Generator(3), {value = 1}
    function object:state_dict() return {value = self.value} end
    function object:load_state_dict(state) self.value = state.value end
    local average = optim.swa_utils.AveragedModel(nn.Linear(2, 2))
    accelerator:register_for_checkpointing(generator, object, average)
    accelerator:save_state "state"
    local drawn, kept = accelhost.rand(3, {generator = generator}), average.module.weight:clone()
    object.value = 2
    average:update_parameters(nn.Linear(2, 2))
    accelerator:load_state "state"
    assert.is_true(drawn:equal(accelhost.rand(3, {generator = generator})))
    assert.equal(1, object.value)
    assert.is_true(kept:equal(average.module.weight))
  end)
end)

describe("Automatic names", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  -- Accelerate's test_checkpoint_deletion.
  it("keep the newest two of eleven", function()
    local one = new {limit = 2}
    for _ = 1, 11 do one.accelerator:save_state() end
    assert.same({"checkpoint_10", "checkpoint_9"}, folder.names "run/checkpoints")
    assert.equal(11, one.accelerator.save_iteration)
  end)

  it("continue from those on the disk, and never collide", function()
    new().accelerator:save_state()
    new().accelerator:save_state()
    assert.same({"checkpoint_0", "checkpoint_1"}, folder.names "run/checkpoints")
    local third = new()
    assert.equal("run/checkpoints/checkpoint_1", third.accelerator:load_state())
    assert.equal(2, third.accelerator.save_iteration)
    third.accelerator:save_state()
    assert.equal("run/checkpoints/checkpoint_2", new().accelerator:load_state())
    local accelerator = accelhost.Accelerator {
      project_config = {project_dir = "run", automatic_checkpoint_naming = true, iteration = 20},
    }
    assert.equal("run/checkpoints/checkpoint_20", accelerator:save_state())
  end)

  it("are not used when a folder is named", function()
    local one = new {limit = 1}
    one.accelerator:save_state()
    one.accelerator:save_state "elsewhere"
    assert.same({"checkpoint_0"}, folder.names "run/checkpoints")
    assert.equal("elsewhere", one.accelerator:load_state "elsewhere")
  end)
end)

describe("Nothing is lost or cast", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("of tied weights, which are written once", function()
    local Tied = nn.Module:extend "Tied"
    function Tied:init()
      self.first = nn.Linear(3, 3)
      self.second = nn.Linear(3, 3)
      self.second.weight = self.first.weight
    end
    local accelerator = accelhost.Accelerator()
    local net = accelerator:prepare(Tied())
    accelerator:save_state "state"
    local was = net.first.weight:clone()
    accelhost.no_grad(function() net.first.weight:fill_(0) end)
    accelerator:load_state "state"
    assert.is_true(net.first.weight:equal(was))
    assert.is_true(net.first.weight == net.second.weight)
    local text = read "state/model.safetensors"
    assert.is_truthy(text:find('"second.weight":"first.weight"', 1, true))
    assert.is_true(accelhost.load("state/model.safetensors")["second.weight"]:equal(was))
  end)

  it("of buffers that are not persistent, of other dtypes and extra state", function()
    local Odd = nn.Module:extend "Odd"
    function Odd:init()
      self.scale = nn.Parameter(accelhost.ones(2, {dtype = "float64"}))
      self:register_buffer("seen", accelhost.tensor({1, 2}, {dtype = "int64"}))
      self:register_buffer("cache", accelhost.tensor({3, 4}, {dtype = "bfloat16"}), {persistent = false})
      self.words = "one"
    end
    function Odd:get_extra_state() return {words = self.words, at = accelhost.tensor{7}} end
    function Odd:set_extra_state(state) self.words = state.words .. state.at:item() end
    local accelerator = accelhost.Accelerator()
    local net = accelerator:prepare(Odd())
    accelerator:save_state "state"
    net.seen:fill_(0)
    net.cache:fill_(0)
    net.words = "two"
    accelhost.no_grad(function() net.scale:fill_(0.1) end)
    accelerator:load_state "state"
    assert.same({1, 2}, net.seen:tolist())
    assert.same({3, 4}, net.cache:tolist())
    assert.equal("bfloat16", net.cache.dtype)
    assert.same({1, 1}, net.scale:tolist())
    assert.equal("one7", net.words)
  end)

  it("of the state of frozen parameters and of state in another dtype", function()
    local accelerator = accelhost.Accelerator()
    local net = nn.Linear(2, 2)
    local optimizer
    net, optimizer = accelerator:prepare(net, optim.AdamW(net:parameters()))
    accelerator:backward(net(accelhost.ones(1, 2)):sum())
    optimizer:step()
    net.weight.requires_grad = false
    local average = optimizer.state[net.weight].exp_avg:clone()
    optimizer.state[net.bias].master = accelhost.tensor({1 / 3}, {dtype = "float64"})
    accelerator:save_state "state"
    optimizer.state[net.weight].exp_avg:fill_(0)
    optimizer.state[net.bias].master = nil
    accelerator:load_state "state"
    assert.is_true(optimizer.state[net.weight].exp_avg:equal(average))
    assert.equal("float64", optimizer.state[net.bias].master.dtype)
    assert.equal(1 / 3, optimizer.state[net.bias].master:item())
    assert.equal(1, optimizer.state[net.weight].step:item())
  end)

  local schedules = optim.lr_scheduler
  for name, make in pairs {
    LambdaLR = function(o) return schedules.LambdaLR(o, function(epoch) return 0.9 ^ epoch end) end,
    LambdaLR_by_group = function(o) return schedules.LambdaLR(o, {function(epoch) return 0.9 ^ epoch end}) end,
    MultiplicativeLR = function(o) return schedules.MultiplicativeLR(o, function() return 0.95 end) end,
    StepLR = function(o) return schedules.StepLR(o, 2) end,
    MultiStepLR = function(o) return schedules.MultiStepLR(o, {2, 5}) end,
    CosineAnnealingLR = function(o) return schedules.CosineAnnealingLR(o, 10) end,
    CosineAnnealingWarmRestarts = function(o) return schedules.CosineAnnealingWarmRestarts(o, 4) end,
    CyclicLR = function(o) return schedules.CyclicLR(o, 1e-3, 1e-2, {step_size_up = 3, cycle_momentum = false}) end,
    OneCycleLR = function(o) return schedules.OneCycleLR(o, 0.1, {total_steps = 30}) end,
    LinearLR = function(o) return schedules.LinearLR(o, {total_iters = 9}) end,
    PolynomialLR = function(o) return schedules.PolynomialLR(o, {total_iters = 9, power = 2}) end,
    ExponentialLR = function(o) return schedules.ExponentialLR(o, 0.9) end,
    SequentialLR = function(o)
      return schedules.SequentialLR(o, {schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)}, {4})
    end,
    ChainedScheduler = function(o)
      return schedules.ChainedScheduler({schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)})
    end,
  } do
    it("of " .. name, function()
      local whole = signature(train(new {scheduler = make}))
      train(new {scheduler = make}, 5, 5)
      local again = new {scheduler = make, seed = 3}
      again.accelerator:load_state()
      assert.equal(whole, signature(train(again)))
    end)
  end

  it("of ReduceLROnPlateau", function()
    local function plateau(o) return schedules.ReduceLROnPlateau(o, {patience = 0}) end
    local function run(seed)
      local one = new {scheduler = plateau, seed = seed}
      one.plateau = true
      return one
    end
    local whole = signature(train(run(0)))
    for _, at in ipairs {1, 5} do
      train(run(0), at, at)
      local again = run(3)
      again.accelerator:load_state()
      assert.equal(whole, signature(train(again)))
    end
  end)

  local loaders = {
    ["a loader's own generator"] = function()
      return {batch_size = 4, shuffle = true, generator = accelhost.Generator(3)}
    end,
    ["the generator of a random sampler"] = function()
      return {batch_size = 4, sampler = data.RandomSampler(22, {generator = accelhost.Generator(3)})}
    end,
    ["the generator of a weighted sampler"] = function()
      local weights = {}
      for i = 1, 22 do weights[i] = i end
      return {batch_size = 4, sampler = data.WeightedRandomSampler(weights, 22, {generator = accelhost.Generator(3)})}
    end,
    ["the generator of a subset's sampler"] = function()
      return {
        batch_size = 4, sampler = data.SubsetRandomSampler({1, 4, 9, 16, 20, 21}, {generator = accelhost.Generator(3)}),
      }
    end,
    ["a seeded order"] = function() return {batch_size = 4, shuffle = true, seed = 7} end,
  }
  for name, options in pairs(loaders) do
    it("of " .. name, function()
      local whole = signature(train(new {loader = options}))
      for _, at in ipairs {1, 3, 6} do
        train(new {loader = options}, at, at)
        local again = new {loader = options, seed = 3}
        again.accelerator:load_state()
        assert.equal(whole, signature(train(again)), "after step " .. at)
      end
    end)
  end
end)

describe("A loader in a state", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local Numbers = data.IterableDataset:extend "Numbers"
  function Numbers:iter()
    local i = -1
    return function()
      i = i + 1
      return i < 13 and accelhost.tensor{i} or nil
    end
  end

  -- Accelerate's test_distributed_data_loop, stateful.
  for name, set in pairs {map = data.TensorDataset(accelhost.arange(13)), stream = Numbers()} do
    it("yields exactly the rest of its pass, of a " .. name, function()
      local accelerator = accelhost.Accelerator()
      local loader = accelerator:prepare(data.DataLoader(set, {batch_size = 2}))
      local count = 0
      for _ in loader do
        count = count + 1
        if count == 3 then accelerator:save_state "state" break end
      end
      local other = accelhost.Accelerator()
      local again = other:prepare(data.DataLoader(set, {batch_size = 2}))
      other:load_state "state"
      assert.error_matches(function() other:skip_first_batches(again, 3) end,
        "skip_first_batches: a saved state has moved this loader to the middle of a pass")
      local seen = {}
      for x in again do
        for _, value in ipairs(x:reshape(-1):tolist()) do seen[#seen + 1] = value end
      end
      assert.same({6, 7, 8, 9, 10, 11, 12}, seen)
    end)
  end
end)
