local accelhost = require "accelhost"
local check = require "spec.support.check"

local nn, optim, data, isinstance = accelhost.nn, accelhost.optim, accelhost.data, accelhost.isinstance

describe("isinstance", function()
  local Wide = nn.Linear:extend "Wide"
  local parameter = nn.Parameter(accelhost.ones(1))

  it("is true for an object of the class or of a subclass", function()
    for _, row in ipairs {
      {nn.Linear(1, 1), nn.Linear}, {nn.Linear(1, 1), nn.Module}, {Wide(1, 1), nn.Linear}, {Wide(1, 1), Wide},
      {nn.Sequential(), nn.Sequential}, {accelhost.ones(1), accelhost.Tensor}, {parameter, accelhost.Tensor},
      {parameter, nn.Parameter}, {optim.AdamW({parameter}), optim.Optimizer}, {optim.SGD({parameter}), optim.SGD},
      {optim.lr_scheduler.StepLR(optim.SGD({parameter}), 2), optim.lr_scheduler.StepLR},
      {data.TensorDataset(accelhost.ones(2)), data.Dataset}, {accelhost.Generator(), accelhost.Generator},
      {data.DataLoader(data.TensorDataset(accelhost.ones(2))), data.DataLoader},
      {nn.ReLU(), {nn.Linear, nn.ReLU}}, {accelhost.Accelerator(), accelhost.Accelerator},
    } do
      assert.is_true(isinstance(row[1], row[2]))
    end
  end)

  it("is false for anything else", function()
    for _, row in ipairs {
      {nn.Linear(1, 1), Wide}, {nn.Linear, nn.Linear}, {nn.Linear(1, 1), {nn.ReLU, nn.Conv2d}}, {nn.ReLU(), {}},
      {accelhost.ones(1), nn.Parameter}, {accelhost.ones(1), nn.Linear}, {3, accelhost.Tensor}, {{}, nn.Module},
      {data.TensorDataset(accelhost.ones(2)), data.IterableDataset}, {optim.SGD({parameter}), optim.Adam},
    } do
      assert.is_false(isinstance(row[1], row[2]))
    end
    assert.is_false(isinstance(nil, nn.Module))
  end)

  it("refuses values that are not classes", function()
    check.raises("isinstance: classinfo: expected a class such as nn.Linear, or an array of classes, got 'Linear'",
      function() isinstance(nn.ReLU(), "Linear") end)
    check.raises("isinstance: item 2 of classinfo: expected a class", function()
      isinstance(nn.ReLU(), {nn.Linear, nn.ReLU()})
    end)
    check.raises("isinstance: classinfo: expected a class such as nn.Linear, or an array of classes, got",
      function() isinstance(nn.ReLU()) end)
  end)
end)

describe("The class of tensors", function()
  it("reports how tensors are made", function()
    check.raises("Tensor: expected accelhost.empty(2, 3) for a tensor of a size", function()
      local _ = accelhost.Tensor(3, 4)
    end)
  end)
end)

describe("The name of a class", function()
  it("is asked of an object", function()
    local Net = nn.Module:extend "Net"
    assert.equal("Net", Net():class_name())
    assert.equal("Linear", nn.Linear(1, 1):class_name())
    assert.equal("SGD", optim.SGD({nn.Parameter(accelhost.ones(1))}):class_name())
    assert.equal("TensorDataset", data.TensorDataset(accelhost.ones(2)):class_name())
    check.raises("class_name: expected a Module as the object, got nil; write object:class_name(...), with a colon",
      function() Net.class_name() end)
  end)
end)
