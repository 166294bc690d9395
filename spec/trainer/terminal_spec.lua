-- The output of a training: the banner before it, the bars and logs in it, the summary after it, and one line for each
-- mistake of a user.
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

local CASE = lfs.currentdir() .. "/spec/trainer/cases/mistakes.lua"
local BINARY = run.path:find "^/" and run.path or lfs.currentdir() .. "/" .. run.path

local BANNER = [[
***** Running training *****
  Num examples = 40
  Num Epochs = 2
  Num update steps per epoch = 5
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 8
  Gradient Accumulation steps = 1
  Total optimization steps = 10
  Seed = 42
  Number of trainable parameters = 10
]]

-- The case in a new folder; returns the process's result.
local function start(which, processes, words)
  local result
  folder.with(function(path)
    local all = processes and {"launch", "--num_processes", tostring(processes)} or {}
    for _, word in ipairs {CASE, which, unpack(words or {})} do all[#all + 1] = word end
    result = run.host(all, {timeout = 60, dir = path})
  end)
  return result
end

run.path = BINARY

describe("a training", function()
  it("prints a banner, logged values, and a summary", function()
    local result = start("evaluation")
    assert.equal(0, result.code, result.output)
    assert.equal(BANNER, result.stdout:sub(1, #BANNER))
    assert.matches("\nstep 5: epoch = 1, eval_loss = %d.%d+, eval_runtime = ", result.stdout)
    assert.matches("%*%*%*%*%* Training done %*%*%*%*%*\n  steps 10 of 10, epoch 2.00, 0:00:0%d.%d\n"
      .. "  mean loss %d.%d%d%d%d, %d+.%d samples/s, %d+.%d%d steps/s\n$", result.stdout)
    assert.not_matches("total_flos", result.stdout, 1, true)
  end)

  it("prints the banner, logged values and the summary to stdout in order, while bars go to stderr", function()
    folder.with(function(path)
      local command = ("'%s' '%s' bar 2>&1"):format(run.path, CASE)
      local lines = {}
      for line in run.program({"sh", "-c", command}, {timeout = 60, dir = path}).stdout:gmatch "[^\n]+" do
        lines[#lines + 1] = line:match "^%*%*%*%*%* (%a+)" or line:match "^step %d+: epoch"
      end
      assert.same({"Running", "step 5: epoch", "step 5: epoch", "step 10: epoch", "step 10: epoch", "Training"}, lines)
      local result = run.host({CASE, "bar"}, {timeout = 60, dir = path})
      assert.not_matches("step ", (result.stderr:gsub("%d+ step", "")), 1, true)
      assert.matches("\nstep 10: epoch = 2, eval_loss = [^\n]*, eval_samples_per_second = [%d.]+,", result.stdout)
    end)
  end)

  it("reports where it resumes", function()
    folder.with(function(path)
      local first = run.host({CASE, "saves"}, {timeout = 60, dir = path})
      assert.equal(0, first.code, first.output)
      local rest = run.host({CASE, "saves", "run/checkpoint-5"}, {timeout = 60, dir = path})
      assert.matches("\n  Continuing from epoch 1.00, global step 5\n", rest.stdout)
    end)
  end)

  it("draws bars on a terminal, of updates and evaluations, with logged values above them", function()
    folder.with(function(path)
      local at = terminal.open({run.path, CASE, "bar"}, {columns = 80, dir = path})
      at:wait "steps/s\n"
      local shown = at:shown()
      assert.equal(0, at:close())
      assert.matches("step 10: epoch = 2, eval_loss = ", shown, 1, true)
      assert.matches("evaluating: ", shown, 1, true)
      assert.matches("training: 100%%|[^|\n]*| 10/10 %[[^\n]*loss=%d", shown)
    end)
  end)
end)

describe("a mistake in a training", function()
  -- A user's mistake, and the one line that reports it.
  local mistakes = {
    raises = "mistakes.lua:%d+: boom", labels = "target.*got nil", empty = "evaluation 'eval' has no samples",
    emptytrain = "expected a data set with at least one sample", noloss = "the model returns no loss but a tensor",
    vecloss = "a tensor of one element, the mean over the batch, got a tensor of shape %(8, 2%)",
    nilloss = "compute_loss: expected it to return a tensor of one element, the mean over the batch, got nil",
    dataset = "train_dataset: expected a data set .*got a tensor of shape %(40, 4%); data.TensorDataset makes one of",
    evalname = "eval_dataset: expected a data set .*got 'set'",
    evalnames = "eval_dataset.second: expected a data set .*got 'set'",
    metrics = "compute_metrics: expected it to return a table of numbers by name, got 'good'",
    optim = "optimizers: the SGD holds no parameter of the model",
    optimkind = "expected {optimizer, schedule}, got number 3",
    optiminit = "optimizers: they hold no parameters of model_init's model",
    schedule = "unknown lr_scheduler_type 'linea'.*did you mean 'linear'", frozen = "no parameters to train",
    folder = "Trainer: output_dir: cannot make the folder /proc/none",
    best = "metric_for_best_model: the evaluation has no 'f1' %(it has: eval_loss",
    callback = "callbacks: expected a TrainerCallback, got number 3",
    resume = "'nowhere' cannot be used",
  }
  for _, which in ipairs(require("accelhost.util.arguments").sorted_keys(mistakes)) do
    it("is one line: " .. which, function()
      local result = start(which)
      assert.equal(1, result.code, result.output)
      local line = result.stderr:match "([^\n]*)\n  [^\n]*\n?" or result.stderr
      assert.matches(mistakes[which], result.stderr:gsub("^warning[^\n]*\n", ""):match "^[^\n]*", line)
    end)
  end

  it("in a batch without labels is announced before the loss fails", function()
    assert.matches("warning: Trainer: the batch has no 'labels' (it has: inputs): compute_loss_func gets nil",
      start("labels").stderr, 1, true)
  end)

  it("on one rank is reported once, as its own", function()
    local result = start("raises_on_1", 2)
    assert.is_true(result.code ~= 0)
    assert.matches("rank 1 failed: [^\n]*mistakes.lua:%d+: boom\n", result.stderr)
    local _, times = result.stderr:gsub("boom", "")
    assert.equal(1, times)
  end)

  it("in a folder that cannot be made is reported by both ranks before the first update", function()
    local result = start("folder", 2)
    assert.is_true(result.code ~= 0)
    assert.matches("rank 0 failed: [^\n]*output_dir: cannot make the folder /proc/none", result.stderr)
    assert.not_matches("Running training", result.stdout, 1, true)
  end)

  it("leaves nan, not 0, as the mean of losses that were none", function()
    local result = start("nan")
    assert.equal(0, result.code, result.output)
    assert.matches("mean loss nan", result.stdout, 1, true)
    assert.matches("the loss of step 1 is not finite (rank 0)", result.stderr, 1, true)
  end)
end)
