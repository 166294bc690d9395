--- make test-gpu without a card, and the list of specs that it shares with the simulator.
local run = require "spec.support.run"

local blind = {CUDA_VISIBLE_DEVICES = "", ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false}
local build = run.path:gsub("/?[^/]*$", "")

describe("make test-gpu", function()
  it("fails in one line where there is no card", function()
    local result = run.program({"scripts/gpu/test.sh", build}, {env = blind})
    assert.equal(1, result.code)
    assert.matches("^test%-gpu: there is no card to test on: [^\n]+\n$", result.output)
  end)

  it("takes the simulator for no card", function()
    local result = run.program({"scripts/gpu/test.sh", build}, {env = {ACCELHOST_CUDA = "sim"}})
    assert.equal(1, result.code)
    assert.matches("^test%-gpu: ACCELHOST_CUDA=sim stands for no card[^\n]*\n$", result.output)
  end)

  it("runs the specs of every device, and what only a card is asked", function()
    local function list(device)
      local lines = {}
      for line in run.program({"scripts/device-specs.sh", device}).stdout:gmatch "[^\n]+" do lines[line] = true end
      return lines
    end
    local cuda = list "cuda"
    for path in pairs(list "far") do assert.is_true(cuda[path], path) end
    for path in pairs(list "some") do assert.is_true(cuda[path], path) end
    assert.is_true(cuda["spec/device/card_spec.lua"])
  end)

  it("fails where nothing ran", function()
    local result = run.program({"scripts/test.sh", build, "spec/data/cifar"},
      {env = {DEVICE_ONLY = "1", ACCELHOST_TEST_DEVICE = "none"}})
    assert.equal(1, result.code, result.output)
    assert.matches("FAILED", result.output)
  end)
end)
