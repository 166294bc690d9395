local run = require "spec.support.run"

describe("Lua's collector, in steps of one size,", function()
  for _, net in ipairs {"training", "evaluation", "elementwise"} do
    it("lets dropped tensors raise the peak of " .. net .. " by 15 % at most", function()
      local result = run.host({"spec/memory/cases/collector.lua", net}, {timeout = 120})
      assert.equal("", result.stderr)
      local peak, live = result.stdout:match "peak%s+([%d.]+)\nlive%s+([%d.]+)"
      assert.is_true(tonumber(peak) <= 1.15 * tonumber(live), ("%s MB, %s MB of them in use"):format(peak, live))
    end)
  end
end)

describe("A rank that waits for one that collects garbage", function()
  local function job(mebibytes)
    local result = run.host({"launch", "--num_processes", 2, "spec/memory/cases/join.lua", mebibytes}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    return result.stdout
  end

  it("collects too from half of its limit on, so that both do it at once", function()
    assert.matches("collected", job(12))
  end)

  it("waits where it has less garbage", function()
    assert.matches("kept", job(3))
  end)
end)
