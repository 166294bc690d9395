local run = require "spec.support.run"

local function launch(ranks, case)
  return run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/" .. case .. ".lua"}, {timeout = 60})
end

describe("collectives between launched ranks", function()
  for _, ranks in ipairs {1, 2, 3, 5} do
    it(("return the right result to each of %d ranks"):format(ranks), function()
      local result = launch(ranks, "collectives")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)

    it(("average the gradients of %d ranks"):format(ranks), function()
      local result = launch(ranks, "reducer")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
      run.succeeds(result)
    end)
  end

  it("normalise a batch that is shared out as one process does the whole", function()
    for _, ranks in ipairs {1, 2, 3} do
      local result = launch(ranks, "sync_batch_norm")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
    end
  end)

  it("serve tensors of other devices", function()
    for _, ranks in ipairs {1, 2} do
      local result = launch(ranks, "far")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
    end
  end)

  it("are reported one by one on request", function()
    local script = "local a = require 'accelhost'; local comm = require 'accelhost._C'.comm " ..
      "comm.all_reduce(a.ones(2, 5)) comm.all_gather_async(a.ones(3)):wait()"
    local result = run.host({"launch", "--num_processes", 2, "-e", script},
      {timeout = 20, env = {ACCELHOST_DEBUG = "other,comm"}})
    for rank = 0, 1 do
      local who = ("accelhost: comm: rank %d of 2: "):format(rank)
      assert.matches(who .. "#1 all_reduce float32 %(2, 5%) at %-e:1, [%d.]+ ms", result.stderr)
      assert.matches(who .. "#2 all_gather_async float32 %(3,%) at %-e:1 started", result.stderr)
    end
    assert.equal("", run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 20}).stderr)
  end)

  it("start while backward still runs", function()
    local result = launch(2, "overlap")
    assert.equal("", result.stderr)
    assert.same(run.everyone(2, "12 of 12 buckets were under way before backward ended\n"
      .. "the first was averaged before backward ended\n"), run.by_rank(result.stdout))
  end)

  it("average more buckets than the control block has room for", function()
    for _, ranks in ipairs {2, 3} do
      local result = launch(ranks, "many_buckets")
      assert.equal("", result.stderr)
      assert.same(run.everyone(ranks, "ok\n"), run.by_rank(result.stdout), result.output)
    end
  end)
end)
