-- Constraints between the parameters of a sweep.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local Space = require "accelhost.sweep.space"
local Store = require "accelhost.sweep.store"
local Study = require "accelhost.sweep.study"
local check = require "spec.support.check"
local file = require "accelhost.sweep.file"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local report = require "accelhost.sweep.report"
local source = require "accelhost.sweep.report.source"
local sweep = require "accelhost".sweep

local function space(list)
  return Space({
    width = sweep.int(1, 16), heads = sweep.choice {1, 2, 4, 8}, limit = 12,
    optim = {name = sweep.choice {"sgd", "adamw"}, momentum = sweep.uniform(0, 1, {when = {name = "sgd"}})},
  }, list)
end

describe("A constraint", function()
  it("is an expression of parameters and constants, with dotted names", function()
    local bounded = space {"width % heads == 0", "width <= limit", "optim.name == 'sgd' or width < 5"}
    local function violation(width, heads, name)
      return bounded:violation {width = width, heads = heads, ["optim.name"] = name}
    end
    assert.is_nil(violation(8, 4, "sgd"))
    assert.equal("width % heads == 0", violation(6, 4, "sgd"))
    assert.equal("width <= limit", violation(16, 4, "sgd"))
    assert.equal("optim.name == 'sgd' or width < 5", violation(8, 4, "adamw"))
  end)

  it("does not apply to a trial without one of its parameters", function()
    local bounded = space {"optim.momentum > 0.5"}
    assert.is_nil(bounded:violation {["optim.name"] = "adamw"})
    assert.equal("optim.momentum > 0.5", bounded:violation {["optim.name"] = "sgd", ["optim.momentum"] = 0.1})
  end)

  it("compares the real values of choices that are tables", function()
    local bounded = Space({shape = sweep.choice {{1, 2}, {3}}, n = sweep.int(1, 4)}, {"#shape < n"})
    assert.is_nil(bounded:violation {shape = "[1, 2]", n = 3})
    assert.equal("#shape < n", bounded:violation {shape = "[1, 2]", n = 2})
  end)

  for _, case in ipairs {
    {"widht > 2", "constraints: 'widht > 2': the space has no parameter 'widht' (did you mean 'width'?)"},
    {"width >", "constraints: 'width >': unexpected symbol near '<eof>'"},
    {"width != heads", "(unequal is ~= in Lua)"},
    {"width + heads", "constraints: 'width + heads': expected a comparison, got the value 2"},
    {"width < optim.name", "constraints: 'width < optim.name': attempt to compare"},
    {"1 < 2", "constraints: '1 < 2' names no parameter"},
    {"optim.name:rep(3) == ''", "expected an expression of parameters, numbers and operators"},
    {"('x').rep('x', 2) == 'width'", "expected an expression of parameters, numbers and operators"},
    {[['\'' == 'x' or ('x'):rep(width) == '']], "expected an expression of parameters, numbers and operators"},
    {"[[']] == ('x'):rep(width) .. [[']]", "expected an expression of parameters, numbers and operators"},
    {"os.exit(width)", "the space has no parameter 'os.exit'"},
    {3, "constraints: expected strings such as 'width >= 2 * heads', got number 3"},
  } do
    it("is refused: " .. case[1], function() check.raises(case[2], space, {case[1]}) end)
  end
end)

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A study with constraints", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

describe("A study with constraints", function()
  local ordered = {a = sweep.int(1, 4), b = sweep.int(1, 4)}
  local line = {x = sweep.uniform(0, 1), y = sweep.uniform(0, 1)}

  local function definition(more)
    local given = {objective = function() end, space = line, constraints = {"x + y <= 0.5"}, seed = 3, trials = 40}
    for key, value in pairs(more) do given[key] = value end
    return Definition(given)
  end

  local function run(given)
    local study, clock = Study(given, Store(":memory:", "create")), 0
    study:set_limit(given.trials)
    while true do
      local trial = study:next(clock, 0)
      if not trial then return study end
      clock = clock + 1
      local params = trial.params
      study:leave(trial, "complete", clock, -(params.x or params.a) - 2 * (params.y or params.b))
    end
  end

  for _, sampler in ipairs {"random", "tpe", "sobol", "cmaes", "nsga2"} do
    it("has only trials that satisfy them, by " .. sampler, function()
      local study = run(definition {sampler = sampler})
      assert.equal(40, #study.trials)
      for _, trial in ipairs(study.trials) do assert.is_true(trial.params.x + trial.params.y <= 0.5) end
    end)
  end

  it("has each allowed combination once, by grid and by random search of a finite space", function()
    for _, sampler in ipairs {"grid", "random"} do
      local study, seen = run(definition {sampler = sampler, space = ordered, constraints = {"a < b"},
        trials = sampler == "grid" and 40 or 6}), {}
      assert.equal(6, #study.trials, sampler)
      for _, trial in ipairs(study.trials) do
        assert.is_true(trial.params.a < trial.params.b)
        seen[trial.params.a * 10 + trial.params.b] = true
      end
      assert.equal(6, #require "accelhost.util.arguments".sorted_keys(seen), sampler)
    end
  end)

  it("finds rare parameters by random draws", function()
    local study = run(definition {constraints = {"x < 0.01", "y > 0.9"}, trials = 3})
    assert.equal(3, #study.trials)
  end)

  it("completes queued parameters within them, and refuses those that break one", function()
    local study = run(definition {enqueue = {{x = 0.49}}, trials = 1})
    assert.equal(0.49, study.trials[1].params.x)
    assert.is_true(study.trials[1].params.y <= 0.01 + 1e-12)
    check.raises("enqueue: item 1: the values break the constraint 'x + y <= 0.5'", definition,
      {enqueue = {{x = 0.3, y = 0.3}}})
  end)

  it("fails when nothing satisfies them", function()
    check.raises("constraints: none of 10000 random configurations satisfies 'x > 2'", run,
      definition {constraints = {"x > 2"}})
  end)

  it("continues when they change, and names the change", function()
    local difference, extensions = Definition.difference(definition({}):facts(), definition({constraints = {}}):facts())
    assert.is_nil(difference)
    assert.same({'constraints are "none" now, and were ["x + y <= 0.5"]; earlier trials stay'}, extensions)
  end)

  -- A study that ran without constraints and continues with one, which its best trial breaks.
  local function narrowed(path, more)
    local store = Store(path .. "/study.db", "create")
    local given = {space = {x = sweep.int(1, 4)}, sampler = "grid", constraints = {}}
    for key, value in pairs(more) do given[key] = value end
    local study, values = Study(definition(given), store), {[0] = 1, 2, 3, 4}
    for number = 0, 3 do
      local trial = study:next(number, 0)
      if given.metrics then study:report(trial, 1, {a = values[number], b = trial.params.x}, number) end
      study:leave(trial, "complete", number + 1, not given.metrics and values[number] or nil)
    end
    given.constraints = {"x >= 2 and x < 4"}
    study = Study(definition(given), store)
    source.store(store, study.definition, {name = "narrowed", total = 4})
    return study, store
  end

  it("does not rank earlier trials that break one, and names them in the reports", function()
    folder.with(function(path)
      local study, store = narrowed(path, {})
      assert.same({2, 2}, {study:best().leader.params.x, study:best().mean})
      for _, found in ipairs {source.read(path), source.of(study, {name = "narrowed", directory = path, total = 4})} do
        local text, page = report.text(found, {now = 9}), report.html(found, {now = 9})
        assert.matches("constraints: x >= 2 and x < 4\nnot ranked, as they break a constraint: trials 0, 3\n",
          text, 1, true)
        assert.matches("best: loss 2 in trial 1", text, 1, true)
        assert.matches("<code>x &gt;= 2 and x &lt; 4</code>. Not ranked, as they break a constraint: trials 0, 3.",
          page, 1, true)
        assert.matches("breaks x &gt;= 2 and x &lt; 4 <a", page, 1, true)
        assert.matches("faint dots are trials that did not run to the end, or that break a constraint.", page, 1, true)
        assert.equal("x: 2\n", report.export(found, "yaml"))
        assert.matches("\n3,complete,4,4,.-,x >= 2 and x < 4\r\n", report.export(found, "csv"))
      end
      store:close()
    end)
  end)

  it("has no best trial when all complete ones break one, and states it", function()
    folder.with(function(path)
      local study, store = narrowed(path, {space = {x = sweep.int(5, 8)}})
      assert.is_nil(study:best())
      assert.matches("best: none, no complete trial satisfies the constraints\n", report.text(source.read(path)), 1,
        true)
      store:close()
    end)
  end)

  it("leaves trials that break one out of the Pareto front", function()
    folder.with(function(path)
      local study, store = narrowed(path, {metrics = {"a", "b"}})
      local function numbers(trials)
        local list = {}
        for i, trial in ipairs(trials) do list[i] = trial.number end
        return list
      end
      assert.same({1}, numbers(study:front()))
      assert.same({1}, numbers(require("accelhost.sweep.report.summary").of(source.read(path)).front))
      store:close()
    end)
  end)

  it("is a list in YAML and in JSON, and a mistake in it has the file's name", function()
    local texts = {
      ["s.yaml"] = "script: t.lua\nparameters:\n  a: {min: 1, max: 4}\nconstraints:\n  - a < 3\n",
      ["s.json"] = '{"script": "t.lua", "parameters": {"a": {"min": 1, "max": 4}}, "constraints": ["a < 3"]}',
      ["r.json"] = '{"script": "t.lua", "parameters": {"a": {"min": 1.0, "max": 4}}, "constraints": ["a < 3"]}',
      ["bad.json"] = '{"script": "t.lua", "parameters": {"a": {"min": 1, "max": 4}}, "constraints": ["b < 3"]}',
    }
    folder.with(function(path)
      files.write(path .. "/t.lua", "")
      for name, text in pairs(texts) do files.write(path .. "/" .. name, text) end
      for _, name in ipairs {"s.yaml", "s.json"} do
        local read = file.read(path .. "/" .. name)
        assert.same({"a < 3"}, read.constraints)
        assert.equal("int", read.space.parameters[1].kind)
        assert.equal("a < 3", read.space:violation {a = 3})
      end
      assert.equal("float", file.read(path .. "/r.json").space.parameters[1].kind)
      check.raises("constraints: 'b < 3': the space has no parameter 'b'", file.read, path .. "/bad.json")
    end)
  end)
end)
