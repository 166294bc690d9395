local pruners = require "accelhost.sweep.pruners"

-- A trial that reports losses from step 0 on: the step at which it was pruned, nil when it was complete.
local function run(pruner, number, losses)
  local trial = {number = number, state = "running"}
  for i, loss in ipairs(losses) do
    if pruner:report(trial, i - 1, loss) == "stop" then
      trial.state = "pruned"
      pruner:finish(trial, loss)
      return i - 1
    end
  end
  trial.state = "complete"
  pruner:finish(trial, losses[#losses])
  return nil
end

describe("the median pruner", function()
  it("stops a trial whose best is worse than the median at its step, once five are complete", function()
    local pruner = pruners.new("median"):setup()
    for number, level in ipairs {1, 2, 3, 4} do assert.is_nil(run(pruner, number, {level, level})) end
    assert.is_nil(run(pruner, 5, {9, 9}))
    assert.equal(0, run(pruner, 6, {3.1, 0}))
    assert.is_nil(run(pruner, 7, {3, 2.9}))
  end)

  it("does not count trials that failed or were stopped, nor those without a report at the step", function()
    local pruner = pruners.new {"median", n_startup_trials = 1}
    pruner:setup()
    pruner:report({number = 0}, 0, 1)
    pruner:finish({number = 0, state = "failed"}, nil)
    assert.is_nil(run(pruner, 1, {5}))
    assert.is_nil(run(pruner, 2, {4, 100}))
    assert.equal(0, run(pruner, 3, {6}))
    assert.is_nil(run(pruner, 4, {1, 1, 0 / 0}))
  end)

  it("waits for its warm-up and judges at intervals", function()
    local pruner = pruners.new {"median", n_startup_trials = 1, n_warmup_steps = 2, interval_steps = 3}
    pruner:setup()
    run(pruner, 0, {1, 1, 1, 1, 1, 1, 1})
    assert.equal(2, run(pruner, 1, {2, 2, 2, 2}))
    assert.is_nil(run(pruner, 2, {2, 2, 1, 2, 2, 2, 2}))
  end)

  it("stops a trial whose losses are all NaN", function()
    local pruner = pruners.new {"median", n_startup_trials = 1}
    pruner:setup()
    run(pruner, 0, {1, 1})
    assert.equal(0, run(pruner, 1, {0 / 0, 1}))
  end)
end)

describe("asynchronous successive halving", function()
  local function asha(options)
    options[1] = "asha"
    return pruners.new(options):setup()
  end

  it("pauses trials at a rung until they are among the best quarter there", function()
    local pruner = asha {min_resource = 2}
    local trials = {}
    for number = 0, 3 do
      trials[number] = {number = number}
      assert.equal("continue", pruner:report(trials[number], 1, 5 - number))
      assert.equal(number < 3 and "pause" or "continue", pruner:report(trials[number], 2, 5 - number))
      assert.is_nil(pruner:promote())
    end
    assert.equal("continue", pruner:report(trials[3], 7, 1))
    assert.equal("pause", pruner:report(trials[3], 8, 1))
  end)

  it("resumes a paused trial when worse ones have been reported, the best of the highest rung first", function()
    local pruner, trials = asha {reduction_factor = 2}, {}
    local function report(number, step, loss)
      trials[number] = trials[number] or {number = number}
      return pruner:report(trials[number], step, loss)
    end
    assert.equal("pause", report(0, 1, 1))
    assert.is_nil(pruner:promote())
    assert.equal("pause", report(1, 1, 2))
    assert.equal(trials[0], pruner:promote())
    assert.is_nil(pruner:promote())
    assert.equal("continue", report(0, 1, 1))
    assert.equal("pause", report(0, 2, 1))
    assert.equal("continue", report(2, 1, 0.5))
    assert.equal("continue", report(2, 2, 0.5))
    assert.equal("pause", report(2, 4, 0.5))
    assert.equal("pause", report(3, 1, 3))
    assert.equal("pause", report(4, 1, 4))
    assert.equal("pause", report(5, 1, 5))
    assert.equal("continue", report(6, 1, 0.7))
    assert.equal("pause", report(6, 2, 0.7))
    assert.equal("pause", report(7, 1, 6))
    assert.equal(trials[1], pruner:promote())
    assert.equal("pause", report(1, 2, 2))
    assert.equal(trials[6], pruner:promote())
    assert.is_nil(pruner:promote())
  end)

  it("promotes over several rungs at once when reports are rare, and stops at NaN", function()
    local pruner = asha {reduction_factor = 2, bootstrap_count = 0}
    pruner:report({number = 0}, 100, 9)
    assert.equal("pause", pruner:report({number = 1}, 100, 1))
    assert.equal("stop", pruner:report({number = 2}, 1, 0 / 0))
  end)

  it("continues trials from max_resource on", function()
    local pruner = asha {max_resource = 4, reduction_factor = 4}
    assert.equal("pause", pruner:report({number = 0}, 1, 1))
    assert.equal("continue", pruner:report({number = 0}, 4, 1))
    assert.equal("continue", pruner:report({number = 0}, 16, 0 / 0))
  end)

  it("accepts a trial that restarts, or ends while it waits", function()
    local pruner = asha {reduction_factor = 2}
    local first, second = {number = 0}, {number = 1}
    assert.equal("pause", pruner:report(first, 1, 1))
    assert.equal("pause", pruner:report(second, 1, 2))
    assert.equal(first, pruner:promote())
    assert.equal("continue", pruner:report(first, 0, 3))
    assert.equal("continue", pruner:report(first, 1, 3))
    assert.equal("pause", pruner:report(first, 2, 1))
    assert.equal("pause", pruner:report({number = 2}, 1, 5))
    assert.equal("pause", pruner:report({number = 3}, 1, 5))
    second.state = "failed"
    pruner:finish(second, nil)
    assert.is_nil(pruner:promote())
  end)

  it("assigns trials to brackets, by the seed", function()
    local pruner, counts = asha {brackets = 3, reduction_factor = 3, seed = 4}, {[0] = 0, 0, 0}
    for number = 0, 2999 do
      local bracket = pruner:assign {number = number}
      assert.equal(bracket, pruner:assign {number = number})
      counts[bracket] = counts[bracket] + 1
    end
    -- 9, 5 and 3 of 17.
    assert.near(9 / 17, counts[0] / 3000, 0.03)
    assert.near(5 / 17, counts[1] / 3000, 0.03)
    assert.near(3 / 17, counts[2] / 3000, 0.03)
    assert.equal("continue", pruner:report({number = 1, bracket = 2}, 8, 1))
    assert.equal("pause", pruner:report({number = 1, bracket = 2}, 9, 1))
  end)

  it("decides the same when the study is replayed", function()
    local function course()
      local pruner, random, said, waiting = asha {reduction_factor = 2, brackets = 2, seed = 1}, 1, {}, {}
      for at = 1, 300 do
        random = random * 16807 % 2147483647
        local trial = waiting[random % 40] or {number = random % 40}
        waiting[trial.number] = trial
        said[at] = pruner:report(trial, at % 9, random % 101)
        local promoted = pruner:promote()
        said[at] = said[at] .. (promoted and promoted.number or "")
      end
      return said
    end
    assert.same(course(), course())
  end)
end)

describe("Hyperband", function()
  it("learns the number of steps of a trial from the first complete one", function()
    local pruner = pruners.new("hyperband"):setup()
    local first = {number = 0}
    assert.is_nil(pruner:assign(first))
    for step = 0, 80 do assert.equal("continue", pruner:report(first, step, 1)) end
    first.state = "complete"
    pruner:finish(first, 1)
    assert.equal("pause", pruner:report({number = 1, bracket = 0}, 1, 1))
    assert.equal(81, pruner.max_resource)
    assert.equal(5, pruner:_count_brackets())
    assert.equal("continue", pruner:report({number = 2, bracket = 1}, 1, 1))
    assert.equal("continue", pruner:report({number = 3, bracket = 4}, 80, 1))
  end)
end)

describe("the threshold pruner", function()
  it("applies its bounds to the metric itself, also when it is maximised", function()
    local pruner = pruners.new({"threshold", lower = 0.2}):setup {direction = "maximize"}
    assert.equal("continue", pruner:report({number = 0}, 0, -0.3))
    assert.equal("stop", pruner:report({number = 0}, 1, -0.1))
    assert.equal("stop", pruner:report({number = 1}, 0, 0 / 0))
  end)
end)

describe("pruners", function()
  it("let every trial continue when there is none", function()
    local pruner = pruners.new("none"):setup()
    for number = 0, 9 do assert.is_nil(run(pruner, number, {number, 0 / 0, 1 / 0})) end
    assert.is_nil(pruner:promote())
    assert.is_nil(pruner:assign {number = 3})
  end)

  it("refuse options that mean nothing", function()
    assert.error_matches(function() pruners.new {"median", n_warmup = 3} end, "unknown option 'n_warmup'")
    assert.error_matches(function() pruners.new {"median", percentile = 30} end, "unknown option 'percentile'")
    assert.error_matches(function() pruners.new {"percentile", percentile = 101} end,
      "percentile: expected a number from 0 to 100, got 101")
    assert.error_matches(function() pruners.new "threshold" end, "lower or upper is missing")
    assert.error_matches(function() pruners.new {"threshold", lower = 2, upper = 1} end, "lower 2 is above upper 1")
    assert.error_matches(function() pruners.new {"asha", reduction_factor = 1} end,
      "reduction_factor: expected at least 2, got 1")
    assert.error_matches(function() pruners.new {"asha", min_resource = 9, max_resource = 3} end,
      "max_resource 3 is below min_resource 9")
    assert.error_matches(function() pruners.new {"asha", min_resource = "auto", bootstrap_count = 2} end,
      "bootstrap_count needs a min_resource that is a number")
    assert.error_matches(function() pruners.new {"asha", min_resource = "some"} end, "unknown min_resource 'some'")
    assert.error_matches(function() pruners.new {"patience", pruner = "mean"} end, "there is no pruner 'mean'")
    assert.error_matches(function() pruners.new "medium" end, "there is no pruner 'medium'.*did you mean 'median'")
  end)
end)

describe("pruners that Optuna has", function()
  for _, case in ipairs(require("spec.support.fixtures").load("pruners").cases) do
    local options = {}
    for key, value in pairs(case.pruner) do
      local text = type(value) == "table" and value[1] or tostring(value)
      if key ~= 1 then options[#options + 1] = ("%s=%s"):format(key, text) end
    end
    table.sort(options)
    it(("decide the same: %s %s"):format(case.pruner[1], table.concat(options, " ")), function()
      local pruner, trials, stopped = pruners.new(case.pruner):setup(), {}, 0
      for at, event in ipairs(case.events) do
        local number, step, loss, stop = unpack(event)
        local trial = trials[number] or {number = number, bracket = case.brackets[number + 1]}
        trials[number] = trial
        if not step then
          trial.state = step == nil and "complete" or "failed"
          pruner:finish(trial, trial.state == "complete" and trial.loss or nil)
        else
          trial.loss = loss
          assert.equal(stop and "stop" or "continue", pruner:report(trial, step, loss), ("event %d"):format(at))
          if stop then
            stopped, trial.state = stopped + 1, "pruned"
            pruner:finish(trial, loss)
          end
        end
      end
      assert.is_true(stopped > 0 and stopped < 26)
    end)
  end
end)
