--- Jobs on CUDA devices behave as on the CPU: the cases of spec/distributed with their tensors there, each rank with
--- its own card (NCCL), and two on one card (through the host's memory). All of them where devices are tested (make
--- test-sim, a card), else a few.
local cards = require "spec.support.cards"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local lfs = require "lfs"

-- The cases that run here: true in every run.
local cases = {
  accelerator = true, again = false, collectives = false, comm_hooks = false, ddp = true, ddp_pytorch = false,
  dist_collectives = false, fp8 = true, functional = false, many_buckets = false, metrics = false, optimizers = false,
  plain = true, precision = false, recompute = false, reducer = false, several = false, sharding = false, sync = false,
  sync_batch_norm = false, token_file = false, training = false, uneven = true, unprepared = false, utilities = true,
  windows = true,
}
-- Those that do not, and why.
local others = {
  card = "asks a launcher for cards, which launch_spec does",
  checkpoint = "in a separate folder, below",
  compile = "of steps that are captured on the CPU; device_compile is its twin",
  fail = "of collectives on the host's memory; device_fail is its twin",
  far = "of the device far",
  on_device = "copies the others here",
  options = "checks options of an accelerator, which need no device",
  overlap = "cuda_nccl_spec runs it, with few steps",
  recovered = "killed ranks are replaced on the CPU only, and prepare reports it",
  resumed = "resumes from checkpoints in a folder that its spec passes",
  share = "needs launch --share, with which its spec runs it",
  sharding_fail = "cuda_sharding_spec runs it",
  sharding_losses = "cuda_sharding_spec runs it",
  sharding_resume = "cuda_sharding_spec runs it",
  stream_shares = "its loaders have workers, which make their batches on the CPU, not on the default device",
  stuck = "of the host's loops and locks",
  virtual = "virtual_shards compute on the CPU and refuse other devices",
  virtual_job = "virtual_shards compute on the CPU and refuse other devices",
}

describe("The cases of distributed training", function()
  it("are all here, or have a reason", function()
    for name in lfs.dir "spec/distributed/cases" do
      local case = name:match "^(.+)%.lua$"
      if case and not case:find "^device_" then
        assert.is_true((cases[case] ~= nil) ~= (others[case] ~= nil), case .. ": name it, or say why it cannot be here")
      end
    end
  end)

  for _, way in ipairs {{2, "by NCCL"}, {1, "on one card"}} do
    for case, always in pairs(cases) do
      if always or cards.thorough then
        cards.case(("hold on devices, %s: %s"):format(way[2], case), way[1], function()
          local result = cards.launch("on_device", {case, way[1]})
          assert.equal(0, result.code, result.output)
          assert.is_true(way[1] == 1 or not result.stderr:find(cards.shared, 1, true), result.stderr)
        end)
      end
    end
  end
end)

describe("A job on devices that is saved", function()
  local case = lfs.currentdir() .. "/spec/distributed/cases/checkpoint.lua"
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  for _, way in ipairs {{2, "by NCCL"}, {1, "on one card"}} do
    for _, precision in ipairs(cards.thorough and {"no", "fp16", "bf16"} or {"fp16"}) do
      cards.case(("continues to the bit, %s, mixed precision %s"):format(way[2], precision), way[1], function()
        local env = {PRECISION = precision, [cards.real and "CUDA_VISIBLE_DEVICES" or "ACCELHOST_SIM_DEVICES"] =
          way[1] == 1 and (cards.real and 0 or 1) or nil}
        local function ranks(...)
          local result = cards.launch(case, {...}, {env = env})
          assert.equal(0, result.code, result.output)
          return run.by_rank(result.stdout)
        end
        local whole = ranks "run"
        assert.is_truthy(whole[0] and whole[1])
        for _, steps in ipairs(cards.thorough and {1, 3, 4, 9} or {4}) do
          ranks("save", steps)
          assert.same(whole, ranks "load", "after step " .. steps)
          folder.remove "run"
        end
      end)
    end
  end

  cards.case("continues with the scale of a GradScaler, which steps that overflowed had halved", 2, function()
    local path = lfs.currentdir() .. "/scaler.lua"
    local file = assert(io.open(path, "w"))
    file:write [[
      local accelhost = require "accelhost"
      local mode = arg[1]
      accelhost.manual_seed(3)
      local accelerator = accelhost.Accelerator {mixed_precision = "fp16",
        kwargs_handlers = {accelhost.GradScalerKwargs {init_scale = 1024, growth_interval = 3}}}
      local net = accelhost.nn.Linear(4, 2)
      local optimizer = accelhost.optim.SGD(net:parameters(), {lr = 0.1})
      net, optimizer = accelerator:prepare(net, optimizer)
      if mode == "load" then accelerator:load_state "state" end
      for step = mode == "load" and 5 or 1, mode == "save" and 4 or 8 do
        local x = accelhost.full({3, 4}, (accelerator.process_index + 1) / step, {device = accelerator.device})
        if step == 2 and accelerator.process_index == 1 then x:mul_(math.huge) end
        accelerator:backward(net(x):sum())
        optimizer:step()
        optimizer:zero_grad()
      end
      if mode == "save" then accelerator:save_state "state" end
      print(accelerator.scaler:get_scale(), accelhost.sha256(net:state_dict()))]]
    file:close()
    local function ranks(mode) return run.by_rank(cards.launch(path, {mode}).stdout) end
    local whole, saved = ranks "run", ranks "save"
    assert.matches("^512\t", saved[1])
    assert.matches("^%d+\t%x+\n$", whole[0])
    assert.same(whole, ranks "load")
  end)
end)

describe("A job on devices", function()
  local function refused(words, code)
    local all = {}
    for i, word in ipairs(words) do all[i] = word end
    all[#all + 1], all[#all + 2] = "-e", "local accelhost = require 'accelhost' " .. code
    local env = {ACCELHOST_CUDA = not cards.real and "sim" or nil, ACCELHOST_SIM_DEVICES = 2,
      ACCELHOST_TEST_DEVICE = false}
    local result = run.host(all, {env = env, timeout = 60})
    assert.is_true(result.code ~= 0, result.output)
    return result.stderr
  end

  cards.case("refuses virtual_shards", 1, function()
    local text = refused({}, "accelhost.Accelerator {virtual_shards = 2}")
    assert.matches("virtual_shards: computes on the CPU, whose results are the same bits in any process; here the "
      .. "device is cuda:0", text)
  end)

  cards.case("refuses live recovery as it prepares a loader", 2, function()
    local text = refused({"launch", "--num_processes", 2, "--recover", "live"}, [[
      local set = accelhost.data.TensorDataset(accelhost.ones(4, 2))
      accelhost.Accelerator():prepare(accelhost.data.DataLoader(set))]])
    assert.matches("live recovery: is for models on the CPU, and this process's device is cuda:%d", text)
  end)
end)
