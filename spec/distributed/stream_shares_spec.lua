-- Streams that yield each process its own shard.
local checks = require "spec.support.checks"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

checks.describe("Shares of a stream", "spec/distributed/cases/stream_shares.lua", {2, 3})

describe("A share without samples", function()
  it("is filled up by the whole stream's, which do not count", function()
    local result = run.host({"launch", "--num_processes", 2, "-e", [[
      local accelhost = require "accelhost"
      local Half = accelhost.data.IterableDataset:extend "Half"
      function Half:init(count) self.count = count or 3 end
      function Half:iter()
        local i = 0
        return function() i = i + 1 return i <= self.count and i or nil end
      end
      function Half:shard(num_shards, index) return Half(index == 0 and 3 or 0) end
      local accelerator, seen = accelhost.Accelerator(), {}
      for batch in accelerator:prepare(accelhost.data.DataLoader(Half())) do
        for _, n in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = n end
      end
      accelerator:print(table.concat(seen, " "))]]}, {timeout = 30})
    assert.equal(0, result.code, result.output)
    run.prints("1 2 3\n", result)
  end)
end)

describe("A stream of a file's rows", function()
  it("has each row once in every pass, with any reader and any transformation", function()
    folder.with(function(dir)
      local lines = {"n,text"}
      for n = 0, 99 do lines[#lines + 1] = ('%d,"row\n%d"'):format(n, n) end
      local file = assert(io.open(dir .. "/rows.csv", "wb"))
      file:write(table.concat(lines, "\n"))
      file:close()
      for _, processes in ipairs {2, 3} do
        for _, workers in ipairs {0, 2} do
          local result = run.host({"launch", "--num_processes", processes, "-e", ([[
            local accelhost = require "accelhost"
            local accelerator = accelhost.Accelerator()
            local set = accelhost.data.load_dataset("csv", {data_files = %q, split = "train", streaming = true})
            set = set:filter(function(row) return row.n %% 3 ~= 0 end):shuffle{seed = 4, buffer_size = 10}
            local loader = accelerator:prepare(accelhost.data.DataLoader(set, {batch_size = 4, num_workers = %d}))
            local orders = {}
            for epoch = 1, 2 do
              local seen = {}
              for batch in loader do
                for _, n in ipairs(accelerator:gather_for_metrics(batch.n):tolist()) do seen[#seen + 1] = n end
              end
              orders[epoch] = table.concat(seen, " ")
              table.sort(seen)
              accelerator:print(table.concat(seen, " "))
            end
            accelerator:print(orders[1] ~= orders[2])]]):format(dir .. "/rows.csv", workers)}, {timeout = 60})
          local wanted = {}
          for n = 0, 99 do
            if n % 3 ~= 0 then wanted[#wanted + 1] = n end
          end
          wanted = table.concat(wanted, " ")
          assert.equal(0, result.code, result.output)
          assert.equal(("%s\n%s\ntrue\n"):format(wanted, wanted), result.stdout)
        end
      end
    end)
  end)
end)
