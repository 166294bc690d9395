-- From a study's file to its report, also while another process writes it.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local Store = require "accelhost.sweep.store"
local Study = require "accelhost.sweep.study"
local read = require("spec.support.files").read
local folder = require "spec.support.folder"
local report = require "accelhost.sweep.report"
local run = require "spec.support.run"
local source = require "accelhost.sweep.report.source"
local sweep = require "accelhost".sweep

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A study's file", function() pending "needs accelhost-sqlite.so, which is built where SQLite is" end)
end

local function definition()
  return Definition {
    objective = function() end, sampler = "random", seed = 3, trials = 6, direction = "maximize", metric = "accuracy",
    space = {x = sweep.uniform(0, 1), sizes = sweep.choice{{8}, {8, 16}}, optim = {name = "sgd"}},
  }
end

-- A study in the folder `path`: a completed trial, a failed one, a running one.
local function begin(path)
  local store = Store(path .. "/study.db", "create")
  local given = {name = "digits", directory = path, command = "accelhost sweep digits.lua", total = 6, parallel = 2}
  local study = Study(definition(), store)
  source.store(store, study.definition, given)
  study:set_limit(6)
  local first = study:next(100, 0)
  study:report(first, 1, {accuracy = 0.5, loss = 2}, 101)
  study:report(first, 2, {accuracy = 0.75}, 102)
  study:leave(first, "complete", 103, 0.75)
  study:leave(study:next(104, 0), "failed", 105, "train.lua:3: no\ntraceback")
  study:report(study:next(106, 1), 1, {accuracy = 0.25}, 107)
  return study, given, store
end

describe("A study's file", function()
  it("returns the report of a running sweep, without its definition", function()
    folder.with(function(path)
      local _, _, store = begin(path)
      for _, name in ipairs {path, path .. "/", path .. "/study.db"} do
        local found = source.read(name)
        assert.equal(path, found.directory)
        assert.same({"digits", "maximize", "accuracy", "random", 6}, {found.name, found.direction, found.metric,
          found.sampler, found.total})
        assert.same({"complete", "failed", "running"},
          {found.trials[1].state, found.trials[2].state, found.trials[3].state})
        assert.same({{step = 1, value = 0.5}, {step = 2, value = 0.75}}, found.trials[1].reports)
        assert.matches("best: accuracy 0.75 in trial 0, trials/0000\n", report.text(found, {now = 110}), 1, true)
        assert.matches("trial 1 failed: train.lua:3: no\n", report.text(found, {now = 110}), 1, true)
        assert.matches("1 complete, 1 running, 1 failed", report.html(found, {now = 110}), 1, true)
      end
      store:close()
    end)
  end)

  it("prints constants and choices that are tables as the script receives them", function()
    folder.with(function(path)
      local study, given, store = begin(path)
      local best = study.trials[1].params
      for _, found in ipairs {source.read(path), source.of(study, given)} do
        local settings = loadstring("return " .. report.export(found, "lua"))()
        assert.same({x = best.x, sizes = best.sizes == "[8]" and {8} or {8, 16}, optim = {name = "sgd"}}, settings)
        assert.same(settings, C.yaml.decode(report.export(found, "yaml")))
      end
      store:close()
    end)
  end)

  it("reports the times of a trial that was interrupted and resumed", function()
    folder.with(function(path)
      local study, _, store = begin(path)
      study:leave(study.trials[3], "interrupted", 110)
      study:next(120, 0)
      local trial = source.read(path).trials[3]
      assert.same({{started = 106, ended = 110, state = "waiting"}, {started = 120, state = "running"}}, trial.spans)
      assert.equal(14, require("accelhost.sweep.report.summary").seconds(trial, 130))
      assert.matches("Timeline of 3 trials in 1 slot.", report.html(source.read(path), {now = 130}), 1, true)
      store:close()
    end)
  end)

  it("is followed while it runs", function()
    folder.with(function(path)
      local study, given, store = begin(path)
      local parts = {}
      local stream = {write = function(_, text) parts[#parts + 1] = text end, flush = function() end}
      local table_ = require("accelhost.sweep.report.live").new {
        stream = stream, is_terminal = true, columns = 100, study = source.of(study, given),
      }
      table_:update(study, 108)
      study:next(109, 0)
      table_:update(study, 110)
      assert.matches("digits: 2 of 6 ended, 0.00 s", parts[1], 1, true)
      assert.matches("digits: 2 of 6 ended, 2.00 s", parts[2], 1, true)
      store:close()
    end)
  end)

  it("is reported and exported by commands", function()
    folder.with(function(path)
      local _, _, store = begin(path)
      local function sweep_command(...) return run.host({"sweep", ...}, {timeout = 30}) end
      local result = sweep_command("report", path)
      assert.same({0, ""}, {result.code, result.stderr})
      assert.matches("best: accuracy 0.75 in trial 0, trials/0000\n", result.stdout, 1, true)
      assert.matches('<a href="trials/0000/">', read(path .. "/report.html"), 1, true)
      assert.equal(0, sweep_command("report", path, "-o", path .. "/../elsewhere.html").code)
      assert.matches(('<a href="%s/trials/0000/">'):format(path), read(path .. "/../elsewhere.html"), 1, true)
      os.remove(path .. "/../elsewhere.html")
      assert.is_nil(sweep_command("report", "-o", "-", path).stdout:find("the page", 1, true))
      assert.matches("^number,state,value,params.sizes,params.x,.*\r\n0,complete,0.75,",
        sweep_command("export", path).stdout)
      assert.equal("trial,step,value\r\n0,1,0.5\r\n0,2,0.75\r\n2,1,0.25\r\n",
        sweep_command("export", "--reports", path).stdout)
      assert.matches("^optim:\n  name: \"sgd\"\n", sweep_command("export", path, "--format", "yaml").stdout)
      assert.equal(0, sweep_command("export", path, "-o", path .. "/all.json").code)
      assert.equal(3, #require("accelhost").json.decode(read(path .. "/all.json")).trials)
      store:close()
    end)
  end)

  it("reports wrong options or folders", function()
    for words, text in pairs {
      ["report nowhere"] = "there is no study in 'nowhere'", ["report"] = "report: expected a study's folder",
      ["export nowhere --format xml"] = "--format expects csv, json, yaml or lua, got 'xml'",
      ["status nowhere -o a"] = "-o is an option of report and export",
      ["report nowhere --reports"] = "--format and --reports are options of export",
    } do
      local list = {"sweep"}
      for word in words:gmatch "%S+" do list[#list + 1] = word end
      local result = run.host(list, {timeout = 30})
      assert.equal(2, result.code)
      assert.matches(text, result.stderr, 1, true)
      assert.is_nil(result.stderr:find("%.lua:%d"))
    end
  end)

  it("is no study when it is something else", function()
    folder.with(function(path)
      assert.has_error(function() source.read(path) end)
      local store = Store(path .. "/study.db", "create")
      assert.has_error(function() source.read(path) end, ("'%s' has not begun yet"):format(path))
      store:close()
    end)
  end)
end)
