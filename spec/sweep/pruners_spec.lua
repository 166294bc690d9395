local pruners = require "accelhost.sweep.pruners"

-- A trial that reports losses from step 0 on: the step at which it was told to stop, nil when it was complete.
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

describe("pruners", function()
  it("let everything go on when there is none", function()
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
    assert.error_matches(function() pruners.new "medium" end, "there is no pruner 'medium'.*did you mean 'median'")
  end)
end)
