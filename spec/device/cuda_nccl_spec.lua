--- Collectives on CUDA devices: by NCCL where each rank has its own card, through the host's memory where two
--- share one. On the simulated GPU; with ACCELHOST_TEST_DEVICE=cuda on the cards present.
local cards = require "spec.support.cards"
local check = require "spec.support.check"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local real, launch, sentence = cards.real, cards.launch, cards.shared

local function case(name, count, fn) cards.case(name, count, fn) end

-- Failures that the simulator injects.
local function simulated(name, fn)
  case(name, 2, function()
    if real then return pending "for the simulated GPU" end
    fn()
  end)
end

local has = check.has
-- The time of a collective, which includes the start of NCCL.
local slowness = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1

local line = "all_reduce_async #4 at spec/distributed/cases/device_fail.lua:31"

local ways = {{2, "by NCCL", ""}, {1, "through the host on one card", sentence}}

describe("collectives on CUDA devices", function()
  for _, way in ipairs(ways) do
    local count, name, told = way[1], way[2], way[3]
    for _, what in ipairs {"collectives", "reducer", "ddp_pytorch", "several", "many_buckets", "sync_batch_norm"} do
      case(("return the results that the case %s expects, %s"):format(what, name), count, function()
        local result = launch("on_device", {what, count})
        assert.equal(told, result.stderr)
        assert.same(run.everyone(2, "ok\n"), run.by_rank(result.stdout), result.output)
        run.succeeds(result)
      end)
    end

    case("move bits, views, parts and unequal pieces in one order with the CPU's, " .. name, count, function()
      local result = launch("device_collectives", {count})
      assert.equal(told, result.stderr)
      assert.same({[0] = ("cpu:shm,cuda:%s\nok\n"):format(count == 2 and "nccl" or "shm"), "ok\n"},
        run.by_rank(result.stdout))
    end)

    case("send messages in order, from views and in values, concurrently with collectives, " .. name, count, function()
      local result = launch("device_messages", {count})
      assert.equal(told, result.stderr)
      assert.same(run.everyone(2, "ok\n"), run.by_rank(result.stdout), result.output)
    end)

    case("send gradients in halves and compressed, " .. name, count, function()
      local result = launch("on_device", {"comm_hooks", count})
      assert.equal(told, result.stderr)
      run.succeeds(result)
    end)
  end

  case("average gradients of layers that are computed again", 2, function()
    local result = launch("on_device", {"recompute", 2})
    assert.equal("", result.stderr)
    for rank, text in pairs(run.by_rank(result.stdout)) do
      assert.equal(2, select(2, text:gsub("ok [^\n]+\n", "")), rank .. ": " .. text)
    end
    run.succeeds(result)
  end)

  case("start while backward still runs", 2, function()
    local result = launch("on_device", {"overlap", 2, 1})
    has(result.stdout, "12 of 12 buckets were under way before backward ended\n")
    assert.equal(0, result.code, result.stderr)
  end)

  if not real then
    case("are queued before the peer's host has posted them", 2, function()
      local result = launch("device_ahead", {sim.library})
      assert.equal("", result.stderr)
      assert.same({[0] = "6\nok\n", "ok\n"}, run.by_rank(result.stdout), result.output)
    end)
  end

  case("serve three ranks", 3, function()
    local result = launch("device_collectives", {3}, {ranks = 3})
    assert.equal("", result.stderr)
    run.succeeds(result)
    result = launch("device_messages", {3}, {ranks = 3})
    assert.same({run.everyone(3, "ok\n"), ""}, {run.by_rank(result.stdout), result.stderr})
  end)
end)

describe("a group of one rank with ACCELHOST_NCCL_ALONE", function()
  local function alone(words, env)
    local all = {ACCELHOST_CUDA = not real and "sim" or nil, ACCELHOST_SIM_DEVICES = 1, ACCELHOST_TEST_DEVICE = false,
      ACCELHOST_NCCL_ALONE = 1}
    for name, value in pairs(env or {}) do all[name] = value end
    table.insert(words, 1, "scripts/gpu/nccl.lua")
    return run.host(words, {env = all, timeout = 100})
  end

  case("makes every kind of call by NCCL, also within a captured step", 1, function()
    local result = alone {}
    assert.equal("", result.stderr)
    assert.equal("cpu:self,cuda:nccl: every result is as expected\n", result.stdout)
  end)

  case("does so under a launcher of one process too", 1, function()
    local result = cards.launch("scripts/gpu/nccl.lua", {}, {ranks = 1, env = {ACCELHOST_NCCL_ALONE = 1}})
    assert.equal("cpu:self,cuda:nccl: every result is as expected\n", result.stdout, result.stderr)
  end)

  case("opens none without it", 1, function()
    local result = alone({}, {ACCELHOST_NCCL_ALONE = false})
    assert.equal(1, result.code)
    has(result.stderr, "send: expected another rank than this one, 0")
  end)

  if not real then
    case("reports NCCL's error, aborts the communicator, and fails from then on", 1, function()
      local result = alone({"fail"}, {ACCELHOST_SIM_FAIL = "nccl:4"})
      local failure = "cuda:0: all_reduce #4 at scripts/gpu/nccl.lua:"
      has(result.stdout:match "^[^\n]*", failure)
      has(result.stdout:match "^[^\n]*", "NCCL: unhandled system error")
      has(result.stdout, "all_reduce: the group failed before: " .. failure)
      assert.equal(1, result.code)
    end)

    case("has other results in some order of streams that do not wait for each other", 1, function()
      local differs = false
      for seed = 1, 8 do
        differs = differs or alone({}, {ACCELHOST_SIM_FAIL = "wait:1+", ACCELHOST_SIM_SEED = seed}).code == 1
      end
      assert.is_true(differs)
    end)
  end
end)

describe("a compiled step of two processes", function()
  case("has the function's bits: averages, buffers, gathered losses, halves, clipping", 2, function()
    for seed = 1, cards.thorough and not real and 3 or 1 do
      local result = launch("device_compile", {}, {env = {ACCELHOST_SIM_SEED = seed, ACCELHOST_CUDA_RANDOM = false}})
      assert.equal("", result.stderr)
      assert.same(run.everyone(2, "ok\n"), run.by_rank(result.stdout), result.output)
    end
  end)

  case("is refused where collectives go through the host", 2, function()
    local result = launch("device_compile", {}, {env = {[real and "CUDA_VISIBLE_DEVICES" or "ACCELHOST_SIM_DEVICES"] =
      real and "0" or 1}})
    assert.equal(3, result.code)
    has(result.stderr, "compile: gradients of several processes are reduced in the host's memory here, by shm")
  end)

  case("reports that it was captured with a group that is closed", 2, function()
    local result = launch("device_compile", {"closed"})
    local said = "the captured step's collectives are those of a group that was closed since: capture it again"
    for _, text in pairs(run.by_rank(result.stdout)) do has(text, said) end
    assert.equal(0, result.code, result.stderr)
  end)

  case("is compared with the others' calls", 2, function()
    local result = launch("device_compile", {"differ"})
    has(result.stdout, "rank 0 barrier at a captured step; rank 1 all_reduce float32 (3,) on a device at")
    assert.equal(3, result.code)
  end)

  simulated("reports the ranks that died before it, and failures within", function()
    has(cards.by_themselves("device_compile", "kill"), "at a captured step: lost rank 1, which died")
    local result = launch("device_compile", {}, {env = {ACCELHOST_SIM_FAIL = "nccl:60", ACCELHOST_CUDA_RANDOM = false}})
    assert.matches("cuda:%d: barrier #%d+ at a captured step: NCCL: unhandled system error", result.stderr)
  end)
end)

describe("BasicNet in float64 in two processes", function()
  local function losses(count, steps, env)
    local result = launch("device_training", {count, steps}, {env = env})
    assert.equal(0, result.code, result.stderr)
    local list = {}
    for text in result.stdout:gmatch "[^\n]+" do list[#list + 1] = text end
    assert.equal(steps, #list, result.stdout)
    return list
  end

  case("has the same losses in 20 steps by NCCL and through the host, and the CPU's", 2, function()
    local by_nccl, by_host, on_cpu = losses(2, 20), losses(1, 20), losses(0, 20)
    if not real then assert.same(by_nccl, by_host) end
    for step = 1, 20 do
      local exact = tonumber(on_cpu[step])
      assert.near(exact, tonumber(by_nccl[step]), 1e-9)
      assert.near(exact, tonumber(by_host[step]), 1e-9)
    end
  end)

  simulated("has others where streams do not wait for each other", function()
    assert.is_not.same(losses(0, 3), losses(2, 3, {ACCELHOST_SIM_FAIL = "wait:1+", ACCELHOST_SIM_SEED = 1}))
  end)
end)

describe("a collective on devices that does not end", function()
  simulated("names the rank that was killed", function()
    local result = launch("device_fail", {"kill"})
    assert.equal(3, result.code)
    has(result.stderr, "rank 1 was killed by SIGKILL")
    has(cards.by_themselves("device_fail", "kill"), line .. ": lost rank 1, which died")
  end)

  simulated("names the rank that is stopped, when its time is over", function()
    local result = launch("device_fail", {"stop"}, {env = {ACCELHOST_TIMEOUT = slowness}})
    assert.equal(4, result.code)
    has(result.stdout, line .. (": timed out after %d s: rank 1 is at "):format(slowness))
    has(result.stdout, "it is stopped by a signal")
  end)

  simulated("names the rank that was killed while its peer waits for it within NCCL", function()
    local result = launch("device_fail", {"init"})
    assert.equal(3, result.code)
    has(result.stderr, "rank 1 was killed by SIGKILL")
    has(cards.by_themselves("device_fail", "init"), "setting up collectives: lost rank 1, which died")
  end)

  simulated("ends within NCCL's first call when a peer does not arrive there", function()
    local result = launch("device_fail", {"connect"}, {env = {ACCELHOST_TIMEOUT = slowness}})
    assert.equal(4, result.code)
    assert.matches("all_reduce #%d+ at [^\n]+: timed out after " .. slowness .. " s: rank 1 is at ", result.stdout)
    has(result.stdout, "it is stopped by a signal")
  end)

  simulated("reports NCCL's error on the rank that has it, and that rank to the others", function()
    assert.equal(3, launch("device_fail", {"error"}).code)
    local text = cards.by_themselves("device_fail", "error") -- a launcher may end rank 1 before it prints
    has(text, "cuda:1: " .. line .. ": NCCL: unhandled system error")
    has(text, "rank 1 left the group: cuda:1: all_reduce_async #4")
  end)
end)

describe("a bucket that was queued before the peer's host has posted it", function()
  local where = "spec/distributed/cases/device_ahead.lua:32"

  simulated("is compared with the peer's at the end of backward", function()
    local result = launch("device_ahead", {sim.library, "differ"})
    for rank, text in pairs(run.by_rank(result.stdout)) do
      has(text, "differs: rank 0 all_reduce_async(mean) float32 (4096,) on a device in backward at " .. where)
      has(text, "rank 1 all_reduce_async(mean) float32 (1024,) on a device in backward at " .. where, rank)
    end
    assert.equal(3, result.code)
  end)

  simulated("names the rank that is stopped, when its time is over", function()
    local result = launch("device_ahead", {sim.library, "stop"}, {env = {ACCELHOST_TIMEOUT = slowness}})
    assert.equal(4, result.code)
    local late = (": timed out after %d s: rank 1 was last seen"):format(slowness)
    assert.matches("all_reduce_async #%d+ at " .. where .. late, result.stdout)
    has(result.stdout, "it is stopped by a signal")
  end)
end)

describe("a message between devices", function()
  local first = "send to rank 1 at spec/distributed/cases/device_messages.lua:34"

  simulated("is NCCL's: its error is reported with the message", function()
    local result = launch("device_messages", {2}, {env = {ACCELHOST_SIM_FAIL = "nccl:1"}})
    assert.equal(3, result.code)
    has(result.stderr, "NCCL: unhandled system error")
    assert.truthy(result.stderr:find("cuda:%d: %a+ %a+ rank %d at spec/distributed/cases/device_messages.lua:%d+"))
  end)

  case("is compared with its receiver's expectation", 2, function()
    local result = launch("device_messages", {2, "differ"})
    has(result.stderr, "expected float64 (3,), but rank 0 sent float32 (3,)")
  end)

  simulated("names the receiver that was killed as it arrived, and before it could", function()
    for _, how in ipairs {"kill", "early"} do
      has(launch("device_messages", {2, how}).stderr, "rank 1 was killed by SIGKILL")
      has(cards.by_themselves("device_messages", "2 " .. how), first .. ": lost rank 1, which died")
    end
  end)
end)

describe("the transport between CUDA devices", function()
  local function say(code, count, ranks, env)
    local all = {"launch", "--num_processes", ranks or 2, "-e", ("local accelhost = require 'accelhost'\n"
      .. "local dist = accelhost.distributed\nlocal comm = require 'accelhost._C'.comm\n"
      .. "local device = 'cuda:' .. comm.rank() %% %d\n%s"):format(count, code)}
    local with = {ACCELHOST_CUDA = not real and "sim" or nil, ACCELHOST_TEST_DEVICE = false}
    for name, value in pairs(env or {}) do with[name] = value end
    return run.host(all, {env = with, timeout = 60})
  end

  case("may be asked for", 2, function()
    local code = [[
      dist.init_process_group "nccl"
      local x, y = accelhost.ones(2, {device = device}), accelhost.ones(2)
      dist.all_reduce(x) dist.all_reduce(y)
      print(x:sum():item() + y:sum():item(), dist.get_backend(), dist.get_backend_config(), dist.is_nccl_available(),
        dist.get_default_backend_for_device "cuda")]]
    assert.same(run.everyone(2, "8\tnccl\tcpu:shm,cuda:nccl\ttrue\tnccl\n"), run.by_rank(say(code, 2).stdout))
    local result = say(code, 1)
    assert.equal(3, result.code)
    has(result.stderr, "nccl: ranks 0 and 1 share one card")
  end)

  if not real then
    case("is the host where two slices of one card, with different UUIDs, are asked", 2, function()
      local result = say([[
        local x = accelhost.ones(2, {device = device})
        dist.init_process_group()
        dist.all_reduce(x)
        print(x:sum():item())]], 2, nil, {ACCELHOST_SIM_SLICES = "1"})
      assert.same(run.everyone(2, "4\n"), run.by_rank(result.stdout), result.output)
      has(result.stderr, "ranks 0 and 1 share one card")
    end)
  end

  case("is the host where that was asked for", 2, function()
    local result = say([[
      dist.init_process_group "gloo"
      local x = accelhost.ones(2, {device = device})
      dist.all_reduce(x)
      print(x:sum():item(), dist.get_backend(), dist.get_backend_config())]], 2)
    assert.equal("", result.stderr)
    assert.same(run.everyone(2, "4\tshm\tcpu:shm,cuda:shm\n"), run.by_rank(result.stdout), result.output)
  end)

  case("is compared: one rank's tensor on the CPU, another's on a device", 2, function()
    local result = say([[
      comm.all_reduce(accelhost.ones(2, {device = device}))
      comm.all_reduce(accelhost.ones(2, {device = comm.rank() == 0 and "cpu" or device}))]], 2)
    assert.equal(3, result.code)
    has(result.stderr, "rank 0 all_reduce float32 (2,) at")
    has(result.stderr, "rank 1 all_reduce float32 (2,) on a device at")
  end)
end)
