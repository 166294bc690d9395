local datasets = require "spec.support.datasets"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local fixture = require("spec.support.fixtures").load "parity_example"

-- MNIST's training files and a small test set in the folder `path`.
local function link_mnist(dir, path)
  for name in lfs.dir(dir) do
    if name:find "^train" then assert(lfs.link(dir .. "/" .. name, path .. "/" .. name, true)) end
  end
  datasets.write_mnist(path, "t10k", 100)
end

-- The example as users start it, on 640 real images, against PyTorch's losses for the same program.
local function follow(options, ranks, dir)
  local log = os.tmpname()
  local result = run.host({
    "launch", "--num_processes", ranks, "examples/mnist.lua", "--data", dir, "--train_size", options.subset,
    "--batch_size", options.batch / ranks, "--dtype", options.dtype, "--log_losses", log,
    not options.dropout and "--no_dropout" or nil,
  }, {timeout = 300})
  assert.equal(0, result.code, result.output)
  assert.matches("Accuracy: %d+%.%d", result.stdout)
  local losses = {}
  for line in io.lines(log) do losses[#losses + 1] = tonumber(line) end
  os.remove(log)
  assert.equal(options.steps, #losses)
  for step, expected in ipairs(options.losses) do
    -- AdamW makes a whole step of a gradient that is nothing but rounding: float32 drifts apart soon.
    local tolerance = options.dtype == "float64" and 1e-10 or step <= 3 and 1e-5 or 1e-4
    assert.near(expected, losses[step], tolerance * expected, "step " .. step)
  end
end

describe("examples/mnist.lua", function()
  for _, options in ipairs(fixture.runs) do
    -- Two processes draw the same dropout for different samples; without it they have the losses of one.
    local ranks = options.dropout and 1 or 2
    datasets.it(("has PyTorch's losses: %s, %d process%s"):format(options.name, ranks, ranks > 1 and "es" or ""),
      "mnist", function(dir)
        folder.with(function(path)
          link_mnist(dir, path)
          follow(options, ranks, path)
        end)
      end)
  end
end)
