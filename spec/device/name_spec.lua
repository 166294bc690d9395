-- accelhost.device: names of devices as torch.device makes them.
local accelhost = require "accelhost"
local check = require "spec.support.check"

describe("accelhost.device", function()
  it("is the name that tensors and options have, of a type and an index, or of a GPU's number", function()
    assert.equal("cpu", accelhost.device "cpu")
    assert.equal("cuda:1", accelhost.device("cuda", 1))
    assert.equal("cuda:1", accelhost.device {type = "cuda", index = 1})
    assert.equal("cuda:0", accelhost.device(0))
    assert.equal("cuda:2", accelhost.device "cuda:2")
    assert.equal("meta", accelhost.zeros(2, {device = accelhost.device "meta"}).device)
    assert.equal("cpu", accelhost.ones(2):to(accelhost.device "cpu").device)
  end)

  it("refuses names of no device, an index that is given twice, and none", function()
    check.raises([[device: expected a device name such as "cpu" or "cuda:1", got 'gpu']], accelhost.device, "gpu")
    check.raises("device: the index is given twice, in 'cuda:0' and as 1", accelhost.device, "cuda:0", 1)
    check.raises("device: type: expected a string or an integer of at least 0, got number -1", accelhost.device, -1)
    check.raises("device: 'type' is missing", accelhost.device)
  end)
end)
