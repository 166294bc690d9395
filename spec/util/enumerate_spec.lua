-- Counting the steps of a loop.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local data = accelhost.data

describe("enumerate", function()
  local set = data.TensorDataset(accelhost.arange(5), accelhost.arange(5) * 2)

  it("counts batches from 0, and yields all their values", function()
    local seen = {}
    for i, a, b in accelhost.enumerate(data.DataLoader(set, {batch_size = 2})) do
      seen[#seen + 1] = {i, #a, b[0]:item()}
    end
    assert.same({{0, 2, 0}, {1, 2, 4}, {2, 1, 8}}, seen)
  end)

  it("counts from its start argument, and may be left and nested", function()
    local loader, seen = data.DataLoader(set, {batch_size = 2}), {}
    for i in accelhost.enumerate(loader, 1) do
      for j in accelhost.enumerate(loader, {start = 10}) do
        seen[#seen + 1] = {i, j}
        if j == 11 then break end
      end
    end
    assert.same({{1, 10}, {1, 11}, {2, 10}, {2, 11}, {3, 10}, {3, 11}}, seen)
  end)

  it("counts the samples of a data set and the values of an iterator", function()
    local seen = {}
    for i, a, b in accelhost.enumerate(set) do seen[#seen + 1] = {i, a:item(), b:item()} end
    assert.same({{0, 0, 0}, {1, 1, 2}, {2, 2, 4}, {3, 3, 6}, {4, 4, 8}}, seen)
    local words = {}
    for i, word in accelhost.enumerate(("a b c"):gmatch "%a") do words[#words + 1] = i .. word end
    assert.same({"0a", "1b", "2c"}, words)
  end)

  it("refuses wrong arguments", function()
    check.raises("enumerate: iterable: expected", function() accelhost.enumerate(3) end)
    check.raises("enumerate: start: expected an integer", function() accelhost.enumerate(set, "x") end)
  end)
end)
