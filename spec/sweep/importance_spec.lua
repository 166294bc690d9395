local fixture = require("spec.support.fixtures").load("importance").cases
local importance = require "accelhost.sweep.importance"
local spaces = require "spec.support.spaces"

-- The space of scripts/fixtures/importance.py.
local space = {
  spaces.categorical("c", {"p", "q", "r"}), spaces.float("f", -3, 3), spaces.int("i", 1, 6),
  spaces.float("l", 1e-4, 1, {log = true}), spaces.int("m", 1, 200, {log = true}),
  spaces.float("s", 0, 1, {step = 0.1}), spaces.float("w", 0, 2, {when = {name = "c", values = {"p"}}}),
}

local function trials_of(rows)
  local trials = {}
  for i, row in ipairs(rows) do
    trials[i] = {number = i - 1, state = "complete", value = row.value, params = row.params, reports = {}}
  end
  return trials
end

-- A hundred trials whose loss is made from their parameters.
local function made(loss_of)
  local trials = {}
  for i = 1, 100 do
    local params = {f = i * 37 % 100 / 100 * 6 - 3, l = 10 ^ (-4 * (i * 61 % 100) / 100)}
    params.c = ({"p", "q", "r"})[i % 3 + 1]
    trials[i] = {number = i - 1, state = "complete", value = loss_of(params), params = params}
  end
  return trials
end

local three = {space[1], space[2], space[4]}

describe("the importance of parameters", function()
  it("is Optuna's PED-ANOVA", function()
    for _, case in ipairs(fixture) do
      local list = importance.of(space, trials_of(case.trials), case.direction)
      assert.equal(7, #list)
      local before, sum = 1, 0
      for _, entry in ipairs(list) do
        assert.near(case.importance[entry.name], entry.importance, 1e-6, entry.name)
        assert.is_true(entry.importance <= before)
        before, sum = entry.importance, sum + entry.importance
      end
      assert.near(1, sum, 1e-12)
    end
  end)

  it("names the parameter that matters first, and its correlation with the metric", function()
    local list = importance.of(three, made(function(params) return math.log(params.l) end))
    assert.equal("l", list[1].name)
    assert.is_true(list[1].importance > 0.8)
    assert.near(1, list[1].correlation, 1e-12)
    list = importance.of(three, made(function(params) return -params.f end), "maximize")
    assert.equal("f", list[1].name)
    assert.near(-1, list[1].correlation, 1e-12)
    list = importance.of(three, made(function(params) return params.c == "q" and 0 or 1 end))
    assert.equal("c", list[1].name)
    assert.is_nil(list[1].correlation)
  end)

  it("counts pruned and paused trials as worse than complete ones", function()
    local trials = made(function(params) return math.abs(params.f) end)
    for _, trial in ipairs(trials) do
      if trial.params.l < 0.01 then
        trial.state = trial.params.f < 0 and "pruned" or "paused"
        trial.reports, trial.value = {{step = 1, value = 0}}, nil
      end
    end
    local list = importance.of(three, trials)
    for _, entry in ipairs(list) do
      if entry.name == "l" then assert.is_true(entry.importance > 0.05) end
      if entry.name == "c" then assert.is_true(entry.importance < 0.05) end
    end
  end)

  it("is silent without data", function()
    assert.is_nil(importance.of(three, {}))
    assert.is_nil(importance.of(three, made(function() return 1 end)))
    assert.is_nil(importance.of({}, made(function(params) return params.f end)))
    local trials = made(function(params) return params.f end)
    for i, trial in ipairs(trials) do
      if i > 19 then trial.value = i % 2 == 0 and 0 / 0 or 1 / 0 end
    end
    assert.is_nil(importance.of(three, trials))
    for i, trial in ipairs(trials) do
      if i > 19 then trial.state = "failed" end
    end
    assert.is_nil(importance.of(three, trials))
  end)

  it("refuses a direction that there is not", function()
    assert.error_matches(function() importance.of(three, {}, "up") end, "unknown direction 'up'")
  end)
end)

describe("rank correlation", function()
  it("is Spearman's, with ties sharing their rank", function()
    assert.near(1, importance.rank_correlation({1, 2, 3, 10}, {1, 4, 9, 100}), 1e-12)
    assert.near(-1, importance.rank_correlation({1, 2, 3}, {3, 2, 1}), 1e-12)
    -- scipy.stats.spearmanr
    assert.near(0.8207826816681233, importance.rank_correlation({1, 2, 2, 3, 5}, {2, 1, 4, 5, 6}), 1e-12)
    assert.is_nil(importance.rank_correlation({1, 2}, {1, 2}))
    assert.is_nil(importance.rank_correlation({1, 1, 1}, {1, 2, 3}))
  end)
end)
