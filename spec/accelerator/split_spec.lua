-- The part of each process, for any number of them (Accelerate's split_between_processes tests).
local accelhost = require "accelhost"
local split = require "accelhost.accelerator.process.split"

local items = {}
for i = 1, 17 do items[i] = "item " .. i end

describe("17 items split between processes", function()
  for _, ranks in ipairs {2, 4, 8} do
    it(("go to %d in order, the first ones getting one more"):format(ranks), function()
      local seen = {}
      for rank = 0, ranks - 1 do
        local part = split(items, rank, ranks, {})
        assert.equal(math.floor(17 / ranks) + (rank < 17 % ranks and 1 or 0), #part)
        for _, item in ipairs(part) do seen[#seen + 1] = item end
      end
      assert.same(items, seen)
    end)

    it(("are restored from %d when padded parts are gathered and cut"):format(ranks), function()
      local all = {list = {}, tensor = {}}
      for rank = 0, ranks - 1 do
        local part = split({list = items, tensor = accelhost.arange(17)}, rank, ranks, {apply_padding = true})
        assert.equal(math.ceil(17 / ranks), #part.list)
        assert.equal(math.ceil(17 / ranks), part.tensor:size(0))
        -- The padding is the last item.
        local own = math.floor(17 / ranks) + (rank < 17 % ranks and 1 or 0)
        for i = own + 1, #part.list do assert.equal("item 17", part.list[i]) end
        for i = 1, own do all.list[#all.list + 1] = part.list[i] end
        all.tensor[rank + 1] = part.tensor:narrow(0, 0, own)
      end
      assert.same(items, all.list)
      assert.is_true(accelhost.cat(all.tensor, 0):equal(accelhost.arange(17)))
      assert.equal(17, #items)
    end)
  end
end)
