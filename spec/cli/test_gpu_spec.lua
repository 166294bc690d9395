--- make test-gpu without a card, and the list of specs that it shares with the simulator.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local lfs = require "lfs"

local blind = {CUDA_VISIBLE_DEVICES = "", ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false}
local build = run.path:gsub("/?[^/]*$", "")

describe("make test-gpu", function()
  it("fails in one line where there is no card", function()
    local result = run.program({"scripts/gpu/test.sh", build}, {env = blind})
    assert.equal(1, result.code)
    assert.matches("^test%-gpu: there is no card to test on: [^\n]+\n$", result.output)
  end)

  it("does not count the simulator as a GPU", function()
    local result = run.program({"scripts/gpu/test.sh", build}, {env = {ACCELHOST_CUDA = "sim"}})
    assert.equal(1, result.code)
    assert.matches("^test%-gpu: ACCELHOST_CUDA=sim is no card[^\n]*\n$", result.output)
  end)

  it("runs the specs of every device, and card_spec", function()
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

  it("runs each spec of spec/device that starts programs on a GPU", function()
    local cuda, count = run.program({"scripts/device-specs.sh", "cuda"}).stdout, 0
    for name in lfs.dir "spec/device" do
      local path = "spec/device/" .. name
      if name:find "_spec%.lua$" then
        local text = files.read(path)
        if text:find("spec.support.sim", 1, true) or text:find("spec.support.cards", 1, true) then
          count = count + 1
          assert.truthy(("\n" .. cuda):find("\n" .. path .. "\n", 1, true), path)
        else
          -- One that starts it otherwise would never see a card.
          assert.is_nil(text:find('ACCELHOST_CUDA = "sim"', 1, true), path)
        end
      end
    end
    assert.is_true(count > 25)
  end)

  it("fails where nothing ran", function()
    local result = run.program({"scripts/test.sh", build, "spec/data/cifar"},
      {env = {DEVICE_ONLY = "1", ACCELHOST_TEST_DEVICE = "none"}})
    assert.equal(1, result.code, result.output)
    assert.matches("FAILED", result.output)
  end)
end)

describe("make gpu-checks", function()
  local function check(env, results)
    local all = {CUDA_VISIBLE_DEVICES = "", ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false, PYTHON = "false",
      NVCC = "false"}
    for name, value in pairs(env) do all[name] = value end
    return run.program({"scripts/gpu/checks.sh", build, results}, {env = all, timeout = 100})
  end

  local read = files.read

  it("ends with a table of missing parts where there is no card", function()
    folder.with(function(results)
      local result = check({}, results)
      assert.equal(1, result.code, result.output)
      assert.matches("the plugin opens the card +missed +none: ", read(results .. "/table.txt"))
    end)
  end)

  it("runs specs within its time limit and reports those that did not finish", function()
    local there = io.open(build .. "/accelhost-cudasim.so")
    if not there then return pending "needs the simulated GPU (make sim)" end
    there:close()
    folder.with(function(results)
      local env = {ACCELHOST_CUDA = "sim", ACCELHOST_TEST_DEVICE = false}
      local words = {"scripts/gpu/specs.sh", build, "60", results, "spec/autograd/anomaly_spec.lua"}
      local result = run.program(words, {env = env, timeout = 100})
      assert.matches("^%d+ passed, 0 failed, 0 skipped, 0 files not ended\n$", result.output)
      assert.is_false(result.output:find "^0 passed" ~= nil)
      words[3], words[4] = "0", results .. "/none"
      assert.matches("^0 passed, 0 failed, 0 skipped, 1 files not ended\n$", run.program(words, {env = env}).output)
    end)
  end)
end)
