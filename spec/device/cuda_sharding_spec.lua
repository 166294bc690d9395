-- States that are sharded among cards: on the simulated GPU, with ACCELHOST_TEST_DEVICE=cuda on real cards.
local cards = require "spec.support.cards"
local check = require "spec.support.check"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local has = check.has
local kinds = {"optimizer", "gradients", "full"}

-- The lines of losses: {kind = {dtype = text}}.
local function losses_of(result)
  assert.equal(0, result.code, result.output)
  local all = {}
  for kind, dtype, line in result.stdout:gmatch "([%l+]+) (float%d+): ([^\n]+)" do
    all[kind] = all[kind] or {}
    all[kind][dtype] = line
  end
  return all
end

describe("Sharded states on cards", function()
  for _, way in ipairs {{2, 2, "2 ranks by NCCL"}, {4, 4, "4 ranks by NCCL"}, {4, 1, "4 ranks on one card"}} do
    local ranks, count, name = unpack(way)
    cards.case("train to the bits of whole states, " .. name, count, function()
      local env = {ACCELHOST_CUDA_RANDOM = "cpu",
        [cards.real and "CUDA_VISIBLE_DEVICES" or "ACCELHOST_SIM_DEVICES"] = not cards.real and count or nil}
      if cards.real and count == 1 then env.CUDA_VISIBLE_DEVICES = "0" end
      local all = losses_of(cards.launch("sharding_losses", {"none", unpack(kinds)}, {ranks = ranks, env = env}))
      for _, kind in ipairs(kinds) do assert.same(all.none, all[kind], kind) end
      local on_cpu = losses_of(run.host({"launch", "--cpu", "--num_processes", ranks,
        "spec/distributed/cases/sharding_losses.lua", "full"}, {timeout = 60})).full
      for dtype, tolerance in pairs {float64 = 1e-14, float32 = 1e-5} do
        local expected = on_cpu[dtype]:gmatch "%S+"
        for number in all.full[dtype]:gmatch "%S+" do assert.near(tonumber(expected()), tonumber(number), tolerance) end
      end
    end)
  end

  cards.case("use the bytes that the guide states, of 4 ranks", 4, function()
    -- The most after a step and during one: up to three blocks are whole, each an eighth.
    for kind, most in pairs {none = {16.1, 16.6}, optimizer = {10.2, 10.7}, gradients = {7.2, 9.2}, full = {4.7, 7.2},
      ["full+cpu"] = {2.7, 5.2}} do
      local result = cards.launch("device_sharding_memory", {kind}, {ranks = 4})
      assert.equal(0, result.code, result.output)
      local after, peak = result.stdout:match "^([%d.]+) ([%d.]+)\n$"
      assert.is_truthy(peak, kind .. ": " .. result.stdout)
      assert.is_true(tonumber(after) <= most[1] and tonumber(peak) <= most[2], kind .. ": " .. result.stdout)
    end
  end)

  if not cards.real then
    for kind, counts in pairs {optimizer = "1 1 1 1", gradients = "4 4 4 4", full = "1 2 3 4"} do
      cards.case(("are gathered ahead, and no host waits for another, sharding = '%s'"):format(kind), 2, function()
        local function losses(what)
          local result = cards.launch("device_sharding_ahead", {sim.library, what}, {env = {ACCELHOST_TIMEOUT = 20}})
          assert.equal(0, result.code, result.output)
          return result.stdout:match "^(%C*)\n(.*)$"
        end
        local got, numbers = losses(kind)
        assert.equal(counts, got)
        assert.equal(select(2, losses "none"), numbers)
      end)
    end

    cards.case("go wrong where streams do not wait for each other", 2, function()
      local function losses(env) return cards.launch("sharding_losses", {"full"}, {env = env}).stdout end
      assert.is_not.equal(losses(), losses {ACCELHOST_SIM_FAIL = "wait:1+", ACCELHOST_SIM_SEED = 1})
    end)
  end

  for _, kind in ipairs(kinds) do
    cards.case(("name a rank that dies within a step, sharding = '%s'"):format(kind), 3, function()
      local result = cards.launch("sharding_fail", {kind, "within"}, {ranks = 3})
      assert.equal(3, result.code, result.output)
      has(result.stderr, "rank 2 was killed by SIGKILL")
      assert.is_nil(result.stdout:find("trained", 1, true))
    end)
  end
end)

describe("Optimizer state that is offloaded to the host", function()
  local function losses(env, ...)
    local all = {ACCELHOST_CUDA_RANDOM = "cpu"}
    for name, value in pairs(env) do all[name] = value end
    return losses_of(cards.launch("sharding_losses", {...}, {env = all}))
  end

  -- In one block, and in many, which end within parameters.
  for _, bytes in ipairs {"16777216", "3000"} do
    cards.case("has the bits of state on the cards, in blocks of " .. bytes .. " bytes", 2, function()
      local all = losses({ACCELHOST_CUDA_OFFLOAD_BLOCK = bytes}, "none", "optimizer+cpu", "gradients+cpu", "full+cpu")
      for _, kind in ipairs(kinds) do assert.same(all.none, all[kind .. "+cpu"], kind) end
    end)
  end

  if not cards.real then
    cards.case("goes wrong where streams do not wait for each other", 2, function()
      local env = {ACCELHOST_CUDA_OFFLOAD_BLOCK = "3000"}
      local right = losses(env, "optimizer+cpu")
      env.ACCELHOST_SIM_FAIL, env.ACCELHOST_SIM_SEED = "wait:1+", 1
      assert.is_not.same(right, losses(env, "optimizer+cpu"))
    end)

    -- In one process, whose state is a shard of one: the losses, and where the state is. All of it is made on the card,
    -- and a block of 64 KiB is left for its values, so that only the four state tensors pin other memory.
    local function alone(device, env)
      local result = sim.host([[
        local accelhost = require "accelhost"
        local nn = accelhost.nn
        accelhost.set_default_device "cuda"
        local options = {sharding = "optimizer", offload_optimizer_device = "]] .. device .. [["}
        local accelerator = accelhost.Accelerator(options)
        accelhost.manual_seed(1)
        local net = nn.Sequential(nn.Linear(90, 400, {bias = false}), nn.Tanh(), nn.Linear(400, 90, {bias = false}))
        local optimizer = accelhost.optim.AdamW(net:parameters(), {lr = 1e-2})
        local model, prepared = accelerator:prepare(net, optimizer)
        accelhost.ones(4):sum():item()
        for step = 1, 4 do
          local loss = (model(accelhost.ones(4, 90)) - step):square():mean()
          accelerator:backward(loss)
          prepared:step()
          prepared:zero_grad()
          print(("%.17g"):format(loss:item()))
        end
        local count = {cpu = 0, ["cuda:0"] = 0}
        for _, state in pairs(optimizer.state) do
          for _, name in ipairs {"exp_avg", "exp_avg_sq"} do
            count[state[name].device] = count[state[name].device] + 1
          end
        end
        io.stderr:write(count.cpu, " on the host\n")]], env)
      assert.equal(0, result.code, result.stderr)
      return result
    end

    cards.case("is on the host in one process, too", 1, function()
      local here, there = alone "none", alone "cpu"
      assert.same({"0 on the host\n", "4 on the host\n"}, {here.stderr, there.stderr})
      assert.equal(here.stdout, there.stdout)
    end)

    cards.case("is copied block by block while the host waits once for a step", 1, function()
      local function counts(bytes)
        local result = sim.host([[
          COUNTS
          local accelhost = require "accelhost"
          accelhost.set_default_device "cuda"
          local accelerator = accelhost.Accelerator {sharding = "optimizer", offload_optimizer_device = "cpu"}
          local net = accelhost.nn.Linear(40, 50, {bias = false})
          local model, optimizer = accelerator:prepare(net, accelhost.optim.AdamW(net:parameters()))
          local function step()
            accelerator:backward(model(accelhost.ones(4, 40)):sum())
            optimizer:step()
          end
          step()
          local waits, copies = calls "cuStreamSynchronize", calls "cuMemcpyHtoDAsync_v2"
          for _ = 1, 3 do step() end
          print(calls "cuStreamSynchronize" - waits, calls "cuMemcpyHtoDAsync_v2" - copies)]],
          {ACCELHOST_CUDA = "sim", ACCELHOST_CUDA_OFFLOAD_BLOCK = bytes})
        assert.equal(0, result.code, result.stderr)
        return result.stdout
      end
      assert.equal("3\t18\n", counts "16777216") -- two states, each in three parts
      assert.equal("3\t96\n", counts "1024")     -- 16 blocks of two states of 128 elements
    end)

    cards.case("is refused of an optimizer whose step is written in Lua", 1, function()
      local result = sim.host([[
        local accelhost = require "accelhost"
        local accelerator = accelhost.Accelerator {sharding = "optimizer", offload_optimizer_device = "cpu"}
        local net = accelhost.nn.Linear(2, 2)
        accelerator:prepare(net, accelhost.optim.Adafactor(net:parameters()))]])
      assert.equal(1, result.code)
      has(result.stderr, "Adafactor: its state cannot be offloaded, since its step is written in Lua")
    end)

    cards.case("stays on the card, with one warning, where no memory can be pinned", 1, function()
      local right = alone("none").stdout
      for kept = 0, 3 do
        local result = alone("cpu", {ACCELHOST_SIM_FAIL = ("pinned:%d+"):format(2 + kept)})
        assert.equal(right, result.stdout)
        assert.matches("^warning: AdamW: optimizer state stays on cuda:0: [^\n]*262144 bytes of pinned memory: out of "
          .. "memory[^\n]*\n" .. kept .. " on the host\n$", result.stderr)
      end
    end)
  end
end)

describe("A checkpoint of states that cards share", function()
  local function digests(ranks, ...)
    local result = cards.launch("sharding_resume", {...}, {ranks = ranks})
    assert.equal(0, result.code, result.output)
    return assert(result.stdout:match "digests ([%x ]+)", result.output)
  end

  for saved, others in pairs {
    ["4 full parts"] = {{2, "full"}, {3, "gradients"}}, ["2 gradients parts"] = {{4, "optimizer"}, {1, "none"}},
    ["2 full whole"] = {{4, "full"}}, ["2 full+cpu parts"] = {{4, "optimizer+cpu"}, {2, "full"}},
    ["2 gradients whole"] = {{3, "full+cpu"}}, ["2 optimizer+cpu whole"] = {{2, "optimizer"}},
  } do
    cards.case(("saved as %s loads into another number of cards"):format(saved), 4, function()
      local folder = os.tmpname() .. ".state"
      local ranks, kind, parts = saved:match "(%d) (%S+) (%a+)"
      local expected = digests(tonumber(ranks), "save", folder, kind, parts)
      for _, other in ipairs(others) do assert.equal(expected, digests(other[1], "load", folder, other[2])) end
      os.execute("rm -r '" .. folder .. "'")
    end)
  end
end)
