-- The table of a sweep while it runs, on a terminal and piped.
local live = require "accelhost.sweep.report.live"
local screen = require "spec.support.screen"
local studies = require "spec.support.studies"

-- A study in the middle: two trials run, the rest waits.
local function running_study()
  local study = studies.make(8)
  study.total = 20
  for number = 6, 7 do
    local trial = study.trials[number + 1]
    trial.state, trial.value, trial.ended, trial.started = "running", nil, nil, 1040
    for i = #trial.reports, 5, -1 do trial.reports[i] = nil end
  end
  return study
end

-- A live table and the terminal that it draws on.
local function on_terminal(width, height, study)
  local terminal = screen.new(width)
  local options = {stream = terminal:stream(), is_terminal = true, rows = height or 24}
  options.study = study or running_study()
  options.columns = function() return terminal.width end
  return options, terminal
end

local function piped()
  local parts = {}
  local stream = {write = function(_, ...) parts[#parts + 1] = table.concat {...} end, flush = function() end}
  return {stream = stream, is_terminal = false}, function() return table.concat(parts) end
end

describe("The live table of a sweep", function()
  it("shows running trials, the best so far, counts and the estimated end", function()
    local options, terminal = on_terminal(100)
    options.study.parallel = 2
    local table_ = live.new(options)
    table_:update(running_study(), 1042)
    assert.equal([[
digits: 6 of 20 ended, 0.00 s, about 55 s left (4 complete, 2 pruned, 2 running), -j 2
best: loss 0.057122 in trial 3: layers=3 optim.lr=0.00042693 optimizer=adamw
  trial  step     loss    rank    time  parameters
      6     4   0.1988  2 of 6  2.00 s  layers=4 optim.lr=0.00029604 optimizer=muon
      7     4  0.39155  5 of 6  2.00 s  layers=2 optim.lr=1.037e-5 optimizer=adamw
]], terminal:text())
    assert.same({}, terminal.unknown)
  end)

  it("estimates its end from the rate at which trials reach a pause, where they do", function()
    local options, terminal = on_terminal(100)
    local table_, study = live.new(options), running_study()
    study.trials[7].state = "paused"
    table_:update(study, 1042)
    assert.is_nil(terminal:text():find("left", 1, true))
    study.trials[8].state = "paused"
    table_:update(study, 1052)
    -- One in ten seconds, and 12 of 20 are still missing.
    assert.matches("10.0 s, about 2 min left (4 complete, 2 pruned, 2 paused)", terminal:text(), 1, true)
  end)

  it("draws over itself, and leaves nothing of longer lines or more trials", function()
    local options, terminal = on_terminal(100)
    local table_, study = live.new(options), running_study()
    terminal:feed "$ accelhost sweep\n"
    table_:update(study, 1042)
    study.trials[7].state, study.trials[7].ended, study.trials[7].value = "complete", 1043, 0.01
    table_:update(study, 1043)
    local text = terminal:text()
    assert.matches("^%$ accelhost sweep\ndigits: 7 of 20 ended", text)
    assert.matches("best: loss 0.01 in trial 6", text)
    assert.is_nil(text:find("\n      6 ", 1, true))
    assert.equal(5, select(2, text:gsub("\n", "")))
  end)

  it("draws at most ten times a second, in one piece", function()
    local count = 0
    local stream = {write = function() count = count + 1 end, flush = function() end}
    local table_ = live.new {stream = stream, is_terminal = true, columns = 80, study = running_study()}
    for i = 0, 99 do table_:update(running_study(), 1042 + i / 100) end
    assert.is_true(count <= 11 and count >= 9, tostring(count))
  end)

  it("never wraps, however narrow the terminal is", function()
    for _, width in ipairs {10, 17, 30, 44, 61, 80, 200} do
      local options, terminal = on_terminal(width)
      local table_ = live.new(options)
      table_:update(running_study(), 1042)
      for _, line in ipairs(terminal.lines) do assert.is_nil(line.goes_on) end
      assert.matches("^digits: ", terminal:text())
    end
  end)

  it("finds its lines again when the terminal becomes narrower or wider", function()
    for _, widths in ipairs {{100, 40, 25, 90}, {30, 100, 31}} do
      local options, terminal = on_terminal(widths[1])
      local table_ = live.new(options)
      terminal:feed "before\n"
      for i, width in ipairs(widths) do
        terminal:resize(width)
        table_:update(running_study(), 1042 + i)
        local text = terminal:text()
        assert.equal(1, select(2, text:gsub("digits: ", "")), text)
        assert.matches("^before\n", text)
      end
    end
  end)

  it("fits into a low terminal and reports how many trials it does not show", function()
    local study = studies.make(30)
    for _, trial in ipairs(study.trials) do trial.state, trial.ended, trial.value = "running", nil, nil end
    local options, terminal = on_terminal(80, 12)
    local table_ = live.new(options)
    table_:update(study, 2000)
    assert.is_true(#terminal.lines <= 12)
    assert.matches("  and 23 more\n$", terminal:text())
  end)

  it("prints errors above the table, without control characters", function()
    local options, terminal = on_terminal(90)
    local table_, study = live.new(options), running_study()
    table_:update(study, 1042)
    study.trials[8].state, study.trials[8].error = "failed", "train.lua:3: \27[2J bad\ntraceback"
    table_:event("failed", study.trials[8])
    table_:update(study, 1043)
    table_:print "one\27[31m\ntwo"
    local text = terminal:text()
    assert.matches("^trial 7 failed: train.lua:3: %?%[2J bad\none%?%[31m\ntwo\ndigits: ", text)
    assert.equal(1, select(2, text:gsub("digits: ", "")))
  end)

  it("leaves the words of the end in its place", function()
    local options, terminal = on_terminal(90)
    local table_ = live.new(options)
    table_:update(running_study(), 1042)
    table_:finish(studies.make(8), 1100)
    local text = terminal:text()
    assert.matches("^digits: minimize loss, sampler tpe, pruner asha\n8 trials: 6 complete, 2 pruned\n", text)
    assert.matches("\nbest: loss 0.057122 in trial 3, trials/0003\n", text)
    assert.is_nil(text:find("left", 1, true))
  end)

  it("reports that no trial has ended, also for a metric that is to be maximised", function()
    local study = {name = "new", direction = "maximize", metric = "accuracy", space = {}, trials = {}}
    local options, terminal = on_terminal(90, 24, study)
    live.new(options):update({trials = {}}, 5)
    assert.equal("new: 0 ended, 0.00 s (none yet)\nbest: none yet\n", terminal:text())
    options, terminal = on_terminal(90, 24, study)
    live.new(options):update({trials = {
      {number = 0, state = "complete", value = 0.5, params = {}},
      {number = 1, state = "complete", value = 0.9, params = {}},
      {number = 2, state = "complete", value = 0 / 0, params = {}},
    }}, 5)
    assert.matches("best: accuracy 0.9 in trial 1", terminal:text())
  end)

  it("rounds durations to a sensible precision", function()
    local show = require "accelhost.sweep.report.show"
    for seconds, words in pairs {
      [0.2] = "1 s", [89] = "89 s", [110] = "2 min", [5000] = "83 min", [9000] = "2 h 30 min", [200000] = "2 d 7 h",
    } do
      assert.equal(words, show.rough_duration(seconds))
    end
  end)

  it("piped, writes a line for each event", function()
    local options, written = piped()
    local study = studies.make(6)
    options.study = {name = "digits", direction = "minimize", metric = "loss", space = study.space, trials = {}}
    local table_ = live.new(options)
    for number, trial in ipairs(study.trials) do
      options.study.trials[number] = trial
      table_:update(options.study, 1000 + number)
      if number == 1 then table_:event("start", trial) end
      table_:event(trial.state, trial)
    end
    study.trials[1].error = "out of memory"
    table_:event("report", study.trials[1])
    table_:event("waiting", study.trials[1], "failed")
    table_:event("failed", study.trials[1])
    table_:event("waiting", study.trials[2], "interrupted")
    table_:event("note", study.trials[2], "never read lr")
    table_:event("interrupt", nil, 2)
    assert.equal([[
trial 0 started: layers=1 optim.lr=0.40203 optimizer=muon
trial 0 complete: loss 0.46649 after 10.5 s, the best so far
trial 1 complete: loss 0.17743 after 10.5 s, the best so far
trial 2 pruned at step 3 with loss 0.63789
trial 3 complete: loss 0.057122 after 10.5 s, the best so far
trial 4 complete: loss 0.095953 after 10.5 s
trial 5 pruned at step 3 with loss 0.33347
trial 0 failed and is tried again: out of memory
trial 0 failed: out of memory
trial 1 interrupted at step 10 with loss 0.17743
trial 1 never read lr
interrupted: 2 trials will end at the next report (once more: at once)
]], written())
    assert.has_error(function() table_:event("ended", study.trials[1]) end, "live: there is no event 'ended'")
  end)

  it("stays quick with ten thousand trials", function()
    local C = require "accelhost._C"
    local study = studies.make(10000, {steps = 3})
    local stream = {write = function() end, flush = function() end}
    local table_ = live.new {stream = stream, is_terminal = true, columns = 100, study = study}
    table_:update(study, 1e6)
    local began = C.system.now()
    for i = 1, 10 do table_:update(study, 1e6 + i) end
    -- A hundredth of a second each on a busy machine; 10 times that is far below the time of a walk through all.
    assert.is_true(C.system.now() - began < 1)
  end)
end)
