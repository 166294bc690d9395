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
  for kind, dtype, line in result.stdout:gmatch "(%l+) (float%d+): ([^\n]+)" do
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
    local result = cards.launch("device_sharding_memory", {}, {ranks = 4})
    assert.equal(0, result.code, result.output)
    -- The most after a step and during one: up to three blocks are whole, each an eighth.
    local most = {none = {16.1, 16.6}, optimizer = {10.2, 10.7}, gradients = {7.2, 9.2}, full = {4.7, 7.2}}
    for kind, after, peak in result.stdout:gmatch "(%l+) ([%d.]+) ([%d.]+)" do
      assert.is_true(tonumber(after) <= most[kind][1] and tonumber(peak) <= most[kind][2], result.stdout)
      most[kind] = nil
    end
    assert.is_nil(next(most))
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

describe("A checkpoint of states that cards share", function()
  local function digests(ranks, ...)
    local result = cards.launch("sharding_resume", {...}, {ranks = ranks})
    assert.equal(0, result.code, result.output)
    return assert(result.stdout:match "digests ([%x ]+)", result.output)
  end

  for saved, others in pairs {
    ["4 full parts"] = {{2, "full"}, {3, "gradients"}}, ["2 gradients parts"] = {{4, "optimizer"}, {1, "none"}},
    ["2 full whole"] = {{4, "full"}},
  } do
    cards.case(("saved as %s loads into another number of cards"):format(saved), 4, function()
      local folder = os.tmpname() .. ".state"
      local ranks, kind, parts = saved:match "(%d) (%a+) (%a+)"
      local expected = digests(tonumber(ranks), "save", folder, kind, parts)
      for _, other in ipairs(others) do assert.equal(expected, digests(other[1], "load", folder, other[2])) end
      os.execute("rm -r '" .. folder .. "'")
    end)
  end
end)
