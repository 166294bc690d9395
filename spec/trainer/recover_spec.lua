-- A Trainer under accelhost launch --recover live: whatever rank is killed wherever, the results are those of
-- an undisturbed run. The script does nothing for it.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local case = require("lfs").currentdir() .. "/spec/trainer/cases/regression.lua"
local files = require "spec.support.files"
local leave

local read = files.read

local function train(out, words, recover)
  local all = {"launch", "--num_processes", 2}
  for _, word in ipairs(recover and {"--recover", "live", "--max_restarts", 12} or {}) do all[#all + 1] = word end
  for _, word in ipairs {case, "--out", out, "--output_dir", "run"} do all[#all + 1] = word end
  for word in words:gmatch "%S+" do all[#all + 1] = word end
  for _, word in ipairs(recover and {"--kill", recover} or {}) do all[#all + 1] = word end
  folder.remove "run"
  local result = run.host(all, {timeout = 60})
  assert.equal(0, result.code, result.output)
  return read(out), result
end

describe("A Trainer whose ranks are killed", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("continues to the bit, with its logs, evaluations and checkpoints", function()
    local words = "--rows 50 --save_steps 3 --eval_strategy steps --eval_steps 4 --save_total_limit 2 "
      .. "--gradient_accumulation_steps 2 --num_train_epochs 3 --logging_steps 3"
    local kill = "0:update:1 1:update:3 0:evaluate:4 1:evaluate:4 0:save:6 1:save:9 0:epoch:8 1:update:11 0:epoch:12"
    local calm = train("calm", words)
    local killed, result = train("killed", words, kill)
    assert.equal(calm, killed)
    local _, count = result.stderr:gsub("was killed by SIGKILL", "")
    assert.equal(9, count, result.stderr)
    assert.same({"checkpoint-12", "checkpoint-9"}, folder.names "run")
  end)

  it("stops early, evaluates first and follows a metric as it would have", function()
    local words = "--rows 40 --eval_strategy epoch --num_train_epochs 6 --eval_on_start --patience 2 "
      .. "--save_strategy epoch --load_best_model_at_end --metric_for_best_model loss --dropout 0.6"
    assert.equal(train("calm", words), (train("killed", words, "0:update:0 1:evaluate:10 0:update:12 1:save:15")))
  end)
end)
