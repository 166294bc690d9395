-- The output of print.
local run = require "spec.support.run"

local function printed(code)
  local result = run.host {"-e", "local a = require 'accelhost' " .. code}
  assert.equal("", result.stderr)
  return result.stdout
end

describe("print", function()
  it("shows the contents of plain tables, such as shapes", function()
    assert.equal("{2, 3}\t{2, 3}\n", printed "print(a.ones(2, 3):shape(), a.ones(2, 3):size())")
    assert.equal('{1, {"x", true}, ["a b"] = 2, lr = 0.1}\n', printed "print{1, {'x', true}, lr = 0.1, ['a b'] = 2}")
    assert.equal("{}\tnil\t1\tx\n", printed "print({}, nil, 1, 'x')")
  end)

  it("shows neither endless nor very long tables to their end", function()
    assert.equal("{{...}}\n", printed "local t = {} t[1] = t print(t)")
    assert.equal("{{{{...}}}}\n", printed "print{{{{{}}}}}")
    assert.matches("^{1, 2, .* 100, %.%.%.}\n$", printed "local t = {} for i = 1, 1000 do t[i] = i end print(t)")
  end)

  it("shows loaders, data sets, schedulers and namespaces by name", function()
    assert.equal("TensorDataset(len=6)\tDataLoader(len=2)\n",
      printed "local d = a.data.TensorDataset(a.ones(6)) print(d, a.data.DataLoader(d, {batch_size = 3}))")
    assert.equal("StepLR(step_size=3, gamma=0.1)\tnn\n",
      printed "print(a.optim.lr_scheduler.StepLR(a.optim.SGD{a.ones(1)}, 3), a.nn)")
  end)
end)
