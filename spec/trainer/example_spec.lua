-- The tutorial's Trainer script and its bare loop: the same losses, step by step.
local json = require "accelhost.util.json"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local EXAMPLES = lfs.currentdir() .. "/examples/"

local function start(processes, words)
  local all = {"launch", "--num_processes", tostring(processes)}
  for _, word in ipairs(words) do all[#all + 1] = word end
  local result = run.host(all, {timeout = 60, env = {ACCELHOST_DATA = false}})
  assert.equal(0, result.code, result.output)
end

describe("examples/mnist_trainer.lua", function()
  for processes, tolerance in ipairs {0, 2.4e-7} do -- the loop's mean over processes is rounded to float32
    it(("has the losses of examples/mnist.lua with %d process%s"):format(processes, processes == 1 and "" or "es"),
      function()
        folder.with(function(path)
          start(processes, {EXAMPLES .. "mnist.lua", "--smoke", "--optimizer", "sgd", "--lr", "0.05", "--seed", "7",
            "--log_losses", path .. "/losses"})
          start(processes, {EXAMPLES .. "mnist_trainer.lua", "--smoke", "--optim", "sgd", "--learning_rate", "0.05",
            "--seed", "7", "--lr_scheduler_type", "constant", "--max_grad_norm", "0", "--logging_steps", "1",
            "--max_steps", "5", "--save_strategy", "steps", "--eval_strategy", "no", "--output_dir", path})
          local file = assert(io.open(path .. "/checkpoint-5/trainer_state.json"))
          local history = json.decode(file:read "*a").log_history
          file:close()
          local step = 0
          for line in io.lines(path .. "/losses") do
            step = step + 1
            if step <= 5 then assert.near(tonumber(line), history[step].loss, tolerance) end
          end
          assert.is_true(step >= 5)
        end)
      end)
  end
end)
