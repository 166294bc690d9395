-- virtual_shards: any number of processes trains to the same bits.
local run = require "spec.support.run"
local checks = require "spec.support.checks"

local function train(ranks, ...)
  local result = run.host({"launch", "--num_processes", ranks, "spec/distributed/cases/virtual.lua", ...},
    {timeout = 120})
  assert.equal(0, result.code, result.output)
  return (result.stdout:gsub("^%[r%d+%] ", "")), result.stderr
end

local titles = {
  mlp = "a perceptron with dropout, SGD with momentum and a schedule",
  cnn = "a convolutional net with batch norm, augmentation and AdamW",
  gpt = "a GPT in bf16 with windows of two steps, dropout and clipping",
  nested = "samples of workers, drawn with replacement, and evaluations in the middle of a pass",
  uneven = "shards that a last round leaves out or cuts short",
  windows = "windows of two steps over means that the model keeps in a buffer",
}
local others = {windows = {2, 3}}

describe("virtual_shards", function()
  for kind, title in pairs(titles) do
    local one = train(1, kind)

    for _, ranks in ipairs(others[kind] or {2, 3, 4, 8}) do
      it(("has the same weights, losses and draws in 1 and %d processes: %s"):format(ranks, title), function()
        local text, said = train(ranks, kind)
        assert.equal(one, text)
        assert.equal("", said)
      end)
    end
  end

  it("resumes from a checkpoint in another number of processes", function()
    local folder = os.tmpname()
    os.remove(folder)
    for _, kind in ipairs {"cnn", "gpt"} do
      local undisturbed = train(2, kind):gsub("losses %x+", "losses -")
      train(3, kind, folder, "save")
      for _, ranks in ipairs {1, 3, 5} do
        local text, said = train(ranks, kind, folder, "load")
        assert.equal(undisturbed, text)
        if ranks ~= 3 then assert.matches("was saved by 3 processes", said, nil, true) end
      end
      os.execute("rm -r " .. run.quote(folder))
    end
  end)

  it("refuses more processes than shards", function()
    local script = "require 'accelhost'.Accelerator{virtual_shards = 2}"
    local result = run.host {"launch", "--num_processes", 3, "-e", script}
    assert.equal(3, result.code)
    assert.matches("virtual_shards: expected at least one for each of the 3 processes, got 2", result.stderr, nil, true)
  end)
end)

checks.describe("A job with virtual_shards", "spec/distributed/cases/virtual_job.lua", {1, 2, 3},
  {allow = "its gradients are "})
