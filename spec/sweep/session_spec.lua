-- accelhost.sweep.run: a sweep of a function within a session.
local accelhost = require "accelhost"
local display = require "accelhost.display"
local folder = require "spec.support.folder"

local sweep = accelhost.sweep

local function definition(more)
  local given = {
    objective = function(trial) return (trial.params.x - 1) ^ 2 end,
    space = {x = sweep.uniform(-5, 5), kept = 3}, metric = "loss", trials = 12, seed = 1,
  }
  for name, value in pairs(more or {}) do given[name] = value end
  return given
end

describe("accelhost.sweep.run", function()
  after_each(function() display.front_end = nil end)

  it("returns the best parameters and their value, the same for the same seed", function()
    local best, value = sweep.run(definition())
    assert.equal(3, best.kept)
    assert.equal((best.x - 1) ^ 2, value)
    assert.same({best, value}, {sweep.run(definition())})
    local _, most = sweep.run(definition {direction = "maximize"})
    assert.truthy(most > value)
  end)

  it("draws the trials in one figure where a front end shows figures", function()
    local figures = {}
    display.front_end = {
      show = function(_, value) figures[#figures + 1] = value end,
      update = function(_, value) figures[#figures + 1] = value end,
    }
    local _, value = sweep.run(definition())
    local figure = figures[#figures]
    assert.equal(figures[1], figure)
    assert.equal(12, #figure.curves.loss.y)
    assert.equal(value, figure.curves.best.y[12])
    assert.matches(">best<", figure:svg(), 1, true)
  end)

  it("resumes a study in a folder", function()
    folder.with(function(path)
      local calls = 0
      local function objective(trial)
        calls = calls + 1
        return trial.params.x
      end
      sweep.run(definition {objective = objective, study = path .. "/own.study"})
      sweep.run(definition {objective = objective, study = path .. "/own.study"})
      assert.equal(12, calls)
      sweep.run(definition {objective = objective, study = path .. "/own.study", trials = 15})
      assert.equal(15, calls)
      assert.error_matches(function()
        sweep.run(definition {study = path .. "/own.study", space = {y = sweep.uniform(0, 1)}})
      end, "was begun with another definition")
    end)
  end)

  it("refuses definitions without a function, a number of trials, or with unknown keys", function()
    assert.error_matches(function()
      sweep.run(definition {objective = "train.lua"})
    end, "objective: expected a function")
    assert.error_matches(function() sweep.run(definition {spac = 1}) end, "unknown key 'spac'")
    local endless = definition()
    endless.trials = nil
    assert.error_matches(function() sweep.run(endless) end, "trials: expected the number of trials")
    assert.error_matches(function()
      sweep.run(definition {objective = function() error "bad" end})
    end, "no trial has completed")
  end)
end)
