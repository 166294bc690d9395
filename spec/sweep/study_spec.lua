-- A study without processes: the trials it asks for, the results it is passed, and the contents of its file.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local Store = require "accelhost.sweep.store"
local Study = require "accelhost.sweep.study"
local source = require "accelhost.sweep.report.source"
local summary = require "accelhost.sweep.report.summary"
local sweep = require "accelhost".sweep

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A study", function() pending "needs accelhost-sqlite.so, which is built where SQLite is" end)
end

local function definition(more)
  local given = {
    objective = function() end, sampler = "random", seed = 3,
    space = {x = sweep.uniform(-1, 1), kind = sweep.choice{"a", "b"},
      deep = {n = sweep.int(1, 9, {when = {kind = "b"}})}, fixed = 7},
  }
  for key, value in pairs(more or {}) do given[key] = value end
  return Definition(given)
end

local function open(given, path)
  local store = Store(path or ":memory:", "create")
  local study = Study(given, store)
  study:set_limit(given.trials)
  return study, store
end

local function objective(params) return params.x ^ 2 + (params["deep.n"] or 0) end

-- Run to the end, one trial after another.
local function run(study, count)
  local clock = 0
  for _ = 1, count or 1000 do
    local trial = study:next(clock, 0)
    if not trial then break end
    clock = clock + 1
    study:leave(trial, "complete", clock, objective(trial.params))
  end
end

local function params_of(study)
  local list = {}
  for i, trial in ipairs(study.trials) do list[i] = study.space:key(trial.params) end
  return list
end

describe("A study", function()
  local path
  before_each(function() path = os.tmpname() end)
  after_each(function()
    for _, ending in ipairs {"", "-wal", "-shm"} do os.remove(path .. ending) end
  end)

  it("runs as many configurations as requested, all different, and knows the best", function()
    local study = open(definition {trials = 20})
    run(study)
    assert.equal(20, #study.trials)
    assert.is_true(study:is_over())
    local least, seen = math.huge, {}
    for _, trial in ipairs(study.trials) do
      assert.equal("complete", trial.state)
      assert.equal(trial.params.kind == "b", trial.params["deep.n"] ~= nil)
      assert.is_nil(seen[study.space:key(trial.params)])
      seen[study.space:key(trial.params)] = true
      least = math.min(least, trial.value)
    end
    assert.equal(least, study:best().mean)
  end)

  it("draws the same trials again for the same seed, and others for another", function()
    local first, second, other = open(definition {trials = 9}), open(definition {trials = 9}),
      open(definition {trials = 9, seed = 4})
    for _, study in ipairs {first, second, other} do run(study) end
    assert.same(params_of(first), params_of(second))
    assert.are_not.same(params_of(first), params_of(other))
  end)

  it("resumes from its file as if it had never stopped", function()
    local whole = open(definition {trials = 12})
    run(whole)
    local study, store = open(definition {trials = 12}, path)
    run(study, 5)
    store:close()
    study, store = open(definition {trials = 12}, path)
    assert.equal(5, #study.trials)
    run(study)
    assert.same(params_of(whole), params_of(study))
    store:close()
  end)

  it("continues a trial that ran when its process was killed, with its parameters and reports", function()
    local study, store = open(definition {trials = 3, pruner = "median"}, path)
    local trial = study:next(1, 0)
    study:report(trial, 1, {loss = 0.5, other = 2}, 2)
    store:close()
    study, store = open(definition {trials = 3, pruner = "median"}, path)
    local again = study:next(5, 0)
    assert.equal(0, again.number)
    assert.same(trial.params, again.params)
    assert.same({{step = 1, value = 0.5}}, again.reports)
    local answer, is_new = study:report(again, 1, {loss = 0.5}, 6)
    assert.equal("continue", answer)
    assert.is_false(is_new)
    assert.equal(1, study:next(7, 1).number)
    store:close()
  end)

  it("ends a trial as pruned that was asked to stop before its process was killed", function()
    local given = definition {trials = 3, pruner = {"median", n_startup_trials = 1}}
    local study, store = open(given, path)
    local good = study:next(1, 0)
    study:report(good, 0, {loss = 0}, 1)
    study:leave(good, "complete", 2, 0)
    local bad = study:next(3, 0)
    assert.equal("stop", (study:report(bad, 0, {loss = 9}, 4)))
    store:close()
    study, store = open(given, path)
    assert.equal("pruned", study.trials[2].state)
    assert.equal(9, study.trials[2].value)
    store:close()
  end)

  it("negates a metric to maximise for samplers and pruners, and nowhere else", function()
    local losses = {}
    local given = definition {trials = 2, metric = {name = "accuracy", goal = "maximize"}}
    local study = open(given)
    study.sampler.observe = function(_, _, loss) losses[#losses + 1] = loss end
    for i = 1, 2 do study:leave(study:next(i, 0), "complete", i, i) end
    assert.same({-1, -2}, losses)
    assert.equal(2, study:best().mean)
  end)

  it("tries queued trials first, whole or in part", function()
    local study = open(definition {trials = 3, enqueue = {{x = 0.25, kind = "b", deep = {n = 4}}, {kind = "a"}}})
    run(study)
    assert.same({x = 0.25, kind = "b", ["deep.n"] = 4}, study.trials[1].params)
    assert.equal("a", study.trials[2].params.kind)
    assert.is_true(study.trials[2].queued)
    assert.is_false(study.trials[3].queued)
  end)

  it("runs replicates of complete trials, and ranks by mean + s / sqrt(n)", function()
    local observed, values = {}, {1, 1.2, 5, 1.4, 1.2}
    local study = open(definition {trials = 2, replicates = 2})
    study.sampler.observe = function(_, trial, loss) observed[#observed + 1] = {trial.number, loss} end
    for i = 1, 4 do study:leave(study:next(i, 0), "complete", i, values[i]) end
    assert.is_nil(study:next(9, 0))
    assert.same({0, 1}, {study.trials[1].replicate, study.trials[2].replicate})
    assert.same(study.trials[1].params, study.trials[2].params)
    assert.equal(2, #observed)
    assert.near(1.1, observed[1][2], 1e-12)
    local best = study:best()
    assert.equal(0, best.leader.number)
    assert.near(1.1, best.mean, 1e-12)
    assert.near(1.1 + math.sqrt(0.02) / math.sqrt(2), best.bound, 1e-12)
  end)

  it("retries a failed trial as often as retries allows, with the same parameters", function()
    local study = open(definition {trials = 1, retries = 1})
    local trial = study:next(1, 0)
    study:leave(trial, "failed", 2, "no luck")
    assert.equal("waiting", trial.state)
    assert.equal(trial, study:next(3, 0))
    study:leave(trial, "failed", 4, "none again")
    assert.equal("failed", trial.state)
    assert.equal("none again", trial.error)
    assert.is_nil(study:next(5, 0))
    assert.is_nil(study:best())
  end)

  it("counts NaN as a failure and does not retry it", function()
    local study = open(definition {trials = 1, retries = 3})
    local trial = study:next(1, 0)
    study:leave(trial, "complete", 2, 0 / 0)
    assert.equal("failed", trial.state)
    assert.equal("its loss is NaN", trial.error)
  end)

  it("starts no more when the first three fail alike", function()
    local study = open(definition {trials = 9})
    for i = 1, 3 do study:leave(study:next(i, 0), "failed", i, "train.lua:3: no such file\ntraceback") end
    assert.is_nil(study:next(4, 0))
    assert.equal("the first 3 runs failed alike: train.lua:3: no such file", study.stopping)
  end)

  it("continues when they fail differently", function()
    local study = open(definition {trials = 9})
    for i = 1, 3 do study:leave(study:next(i, 0), "failed", i, "reason " .. i) end
    assert.truthy(study:next(4, 0))
  end)

  it("repeats no combination of a finite space before all were tried", function()
    local given = {objective = function() end, sampler = "random", trials = 14,
      space = {a = sweep.int(1, 3), b = sweep.choice{1, 2}, c = sweep.choice({5, 6}, {when = {b = 2}})}}
    local study = open(Definition(given))
    local seen, count = {}, 0
    for i = 1, 14 do
      local trial = study:next(i, 0)
      local key = study.space:key(trial.params)
      if not seen[key] then count = count + 1 end
      seen[key] = true
      if i == 9 then assert.equal(9, count) end
      study:leave(trial, "complete", i, 1)
    end
    assert.equal(9, count)
  end)

  it("is over when a grid is exhausted", function()
    local study = open(Definition {objective = function() end, sampler = "grid",
      space = {a = sweep.int(1, 3), b = sweep.choice{"x", "y"}}})
    for i = 1, 6 do study:leave(study:next(i, 0), "complete", i, i) end
    assert.is_nil(study:next(9, 0))
    assert.is_true(study:is_over())
  end)

  it("ends when the target is reached", function()
    local study = open(definition {trials = 9, target = 0.5})
    study:leave(study:next(1, 0), "complete", 1, 0.7)
    study:leave(study:next(2, 0), "complete", 2, 0.5)
    assert.is_nil(study:next(3, 0))
    assert.equal("trial 1 reached the target", study.stopping)
  end)

  it("has a rollback journal on a network file system, which readers on other hosts understand", function()
    local is_shared, asked = C.io.is_shared, nil
    local function journal_of(shared)
      C.io.is_shared = function(folder)
        asked = folder
        return shared
      end
      local store = Store(path, "create")
      local mode = store._db:execute("PRAGMA journal_mode")[1].journal_mode
      store:put("text", mode)
      local wal = io.open(path .. "-wal")
      if wal then wal:close() end
      local reader = Store(path, "read")
      assert.equal(mode, reader:get "text")
      reader:close()
      store:close()
      return mode, wal ~= nil
    end
    finally(function() C.io.is_shared = is_shared end)
    assert.same({"wal", true}, {journal_of(false)})
    assert.equal(path:match "^(.*)/", asked)
    assert.same({"truncate", false}, {journal_of(true)})
    assert.same({"wal", true}, {journal_of(false)})
  end)

  it("has a rollback journal where a write-ahead log is not possible", function()
    local open_database = C.sqlite.open
    local memory = open_database(path, "create")
    local statements = {}
    C.sqlite.open = function()
      return {execute = function(_, sql, values)
        statements[#statements + 1] = sql
        if sql:find "WAL" then return {{journal_mode = "delete"}} end
        return memory:execute(sql, values)
      end, close = function() memory:close() end}
    end
    finally(function() C.sqlite.open = open_database end)
    local store = Store(path, "create")
    assert.same({"PRAGMA journal_mode = WAL", "PRAGMA journal_mode = TRUNCATE"}, {statements[1], statements[2]})
    assert.equal("truncate", memory:execute("PRAGMA journal_mode")[1].journal_mode)
    store:close()
  end)

  it("sums the time that a trial ran, without its pauses, now and read from its file", function()
    local study, store = open(definition {trials = 1}, path)
    local trial = study:next(0, 0)
    study:report(trial, 1, {loss = 1}, 1)
    study:leave(trial, "paused", 2)
    assert.equal(trial, study:next(100, 0))
    study:leave(trial, "interrupted", 101)
    assert.equal(trial, study:next(200, 0))
    study:leave(trial, "complete", 203, 0.5)
    local found = summary.count({trials = study.trials, direction = "minimize"}, 300)
    assert.same({6, 6}, {summary.seconds(trial), found.mean_seconds})
    source.store(store, study.definition, {name = "x"})
    store:close()
    local again = open(definition {trials = 1}, path)
    assert.equal(6, summary.seconds(again.trials[1]))
  end)

  it("replaces a failed trial's reports when it runs again, from its first new step on", function()
    local function retried(first)
      local study, store = open(definition {trials = 1, retries = 0}, path)
      local trial = study:next(0, 0)
      for step = 1, 3 do study:report(trial, step, {loss = 10 * step}, step) end
      study:leave(trial, "failed", 4, "broken")
      assert.is_nil(study:next(5, 0))
      store:event(trial, "retry", 6)
      store:close()
      study, store = open(definition {trials = 1}, path)
      trial = study:next(7, 0)
      assert.equal(0, trial.number)
      for step = first, 3 do study:report(trial, step, {loss = step}, 7 + step) end
      study:leave(trial, "complete", 11, 3)
      local values = {}
      for i, report in ipairs(trial.reports) do values[i] = report.value end
      assert.equal(3, study:best().mean)
      store:close()
      study = open(definition {trials = 1}, path)
      for i, report in ipairs(study.trials[1].reports) do assert.equal(values[i], report.value) end
      os.remove(path)
      return values
    end
    assert.same({1, 2, 3}, retried(1))
    assert.same({10, 2, 3}, retried(2))
  end)

  it("writes a file that any SQLite reads", function()
    if os.execute "command -v sqlite3 > /dev/null" ~= 0 then return pending "needs sqlite3" end
    local study, store = open(definition {trials = 2}, path)
    local trial = study:next(1, 0)
    study:report(trial, 1, {loss = 0.5, accuracy = 0.9}, 2)
    study:leave(trial, "complete", 3, 0.25)
    store:close()
    local function ask(sql)
      local pipe = io.popen(("sqlite3 '%s' \"%s\""):format(path, sql))
      local text = pipe:read "*a"
      pipe:close()
      return text
    end
    assert.equal("0|complete|0.25\n", ask "SELECT number, state, value FROM trial")
    assert.equal('0|1|0.5|{"accuracy": 0.9, "loss": 0.5}\n', ask "SELECT trial, step, value, metrics FROM report")
    assert.equal(trial.params.kind .. "\n", ask "SELECT value FROM param WHERE name = 'kind'")
    assert.equal("ok\n", ask "PRAGMA integrity_check")
  end)
end)
