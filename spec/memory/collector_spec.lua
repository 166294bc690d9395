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
