-- Streams that give each process a share of their own.
local checks = require "spec.support.checks"
local run = require "spec.support.run"

checks.describe("Shares of a stream", "spec/distributed/cases/stream_shares.lua", {2, 3})

describe("A share without samples", function()
  it("cannot be filled up while others have some, and says so", function()
    local result = run.host({"launch", "--num_processes", 2, "-e", [[
      local accelhost = require "accelhost"
      local Half = accelhost.data.IterableDataset:extend "Half"
      function Half:init(count) self.count = count or 3 end
      function Half:iter()
        local i = 0
        return function() i = i + 1 return i <= self.count and i or nil end
      end
      function Half:shard(num_shards, index) return Half(index == 0 and 3 or 0) end
      for _ in accelhost.Accelerator():prepare(accelhost.data.DataLoader(Half())) do end]]}, {timeout = 30})
    assert.equal(3, result.code, result.output)
    assert.matches("rank 1 failed: [^\n]*Half: shard%(2, 1%) gave no samples, so nothing can fill its batches up",
      result.stderr)
  end)
end)
