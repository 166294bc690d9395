-- Studies of several metrics: fronts, samplers, files, and the command.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local Store = require "accelhost.sweep.store"
local Study = require "accelhost.sweep.study"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local json = require "accelhost".json
local pareto = require "accelhost.sweep.pareto"
local run = require "spec.support.run"
local samplers = require "accelhost.sweep.samplers"
local sweep = require "accelhost".sweep

describe("Points of several losses", function()
  it("are in front 1 when none dominates them, in front 2 when only those do", function()
    assert.is_true(pareto.dominates({1, 2}, {1, 3}))
    assert.is_false(pareto.dominates({1, 2}, {1, 2}))
    assert.is_false(pareto.dominates({1, 3}, {2, 2}))
    assert.same({1, 1, 2, 3, 1}, pareto.fronts {{1, 4}, {2, 2}, {2, 3}, {3, 3}, {4, 1}})
    assert.same({}, pareto.fronts {})
    assert.same({1, 1}, pareto.fronts {{1, 1}, {1, 1}})
  end)

  it("are the farther from their neighbours, the less crowded they are", function()
    local points = {{0, 10}, {1, 9}, {5, 5}, {10, 0}, {3, 3}}
    local distance = pareto.crowding(points, {1, 2, 3, 4})
    assert.equal(math.huge, distance[1])
    assert.equal(math.huge, distance[4])
    assert.near(1, distance[2], 1e-12)   -- (5 - 0) / 10 + (10 - 5) / 10
    assert.near(1.8, distance[3], 1e-12) -- (10 - 1) / 10 + (9 - 0) / 10
    assert.same({1, 4, 5}, pareto.best({{0, 10}, {1, 9}, {5, 5}, {10, 0}, {4, 5}}, 3))
  end)
end)

-- ZDT1 of Zitzler, Deb and Thiele, with its front at x2 = ... = 0.
local parameters = {}
for i = 1, 5 do parameters[i] = {name = "x" .. i, kind = "float", low = 0, high = 1} end

local function zdt1(params)
  local sum = 0
  for i = 2, 5 do sum = sum + params["x" .. i] end
  local g = 1 + 9 * sum / 4
  return {params.x1, g * (1 - math.sqrt(params.x1 / g))}
end

-- The area between the front and the point (1, 6).
local function area_of(points)
  local area, height = 0, 6
  table.sort(points, function(a, b) return a[1] < b[1] end)
  for _, point in ipairs(points) do
    if point[2] < height then area, height = area + (1 - point[1]) * (height - point[2]), point[2] end
  end
  return area
end

local function search(given, count, seed)
  local sampler, points, all = samplers.new(given, seed):setup(parameters), {}, {}
  for number = 0, count - 1 do
    local params = sampler:suggest(number, {})
    local losses = zdt1(params)
    points[#points + 1], all[#all + 1] = losses, params
    sampler:observe({number = number, state = "complete", params = params, reports = {}}, losses[1], losses)
  end
  return area_of(points), all
end

describe("A sampler of several metrics", function()
  it("finds a larger area than random search: NSGA-II and TPE", function()
    local areas = {0, 0, 0}
    for seed = 1, 3 do
      for i, given in ipairs {"random", {"nsga2", population_size = 20}, "tpe"} do
        areas[i] = areas[i] + search(given, 120, seed) / 3
      end
    end
    assert.truthy(areas[2] > areas[1] + 0.3, ("NSGA-II %.3f, random %.3f"):format(areas[2], areas[1]))
    assert.truthy(areas[3] > areas[1] + 0.3, ("TPE %.3f, random %.3f"):format(areas[3], areas[1]))
  end)

  it("suggests the same for the same seed and results", function()
    local _, first = search({"nsga2", population_size = 8}, 30, 4)
    local _, again = search({"nsga2", population_size = 8}, 30, 4)
    local _, other = search({"nsga2", population_size = 8}, 30, 5)
    assert.same(first, again)
    assert.not_same(first, other)
  end)

  it("keeps conditions of parameters in children", function()
    local space = {
      {name = "kind", kind = "categorical", choices = {"a", "b"}},
      {name = "n", kind = "int", low = 1, high = 9, when = {name = "kind", values = {"b"}}},
    }
    local sampler = samplers.new({"nsga2", population_size = 6}, 0):setup(space)
    for number = 0, 60 do
      local params = sampler:suggest(number, {})
      assert.equal(params.kind == "b", params.n ~= nil)
      sampler:observe({number = number, state = "complete", params = params, reports = {}}, 0, {params.n or 5, number})
    end
  end)
end)

local function definition(more)
  local given = {objective = function() end, sampler = "random", metrics = {"loss", "accuracy"},
    directions = {"minimize", "maximize"}, space = {x = sweep.uniform(0, 1), y = sweep.uniform(0, 1)}}
  for key, value in pairs(more or {}) do given[key] = value end
  return Definition(given)
end

describe("A definition of several metrics", function()
  local function fails(message, more)
    local fine, text = pcall(definition, more)
    assert.is_false(fine)
    assert.truthy(text:find(message, 1, true), text)
  end

  it("minimizes each unless it has directions", function()
    assert.same({"minimize", "minimize"}, Definition {objective = function() end, metrics = {"a", "b"},
      space = {x = sweep.uniform(0, 1)}}.directions)
    assert.equal("loss", definition().metric)
  end)

  it("refuses settings of one metric, and lists that do not fit", function()
    fails("metric: a study of several metrics has none", {metric = "loss"})
    fails("pruner: a study of several metrics has none", {pruner = "median"})
    fails("target: a study of several metrics has none", {target = 1})
    fails("replicates: a study of several metrics has none", {replicates = 2})
    fails("metrics: expected at least 2 names, got 1", {metrics = {"loss"}})
    fails("metrics: 'loss' is there twice", {metrics = {"loss", "loss"}})
    fails("directions: expected 2, one for each of metrics, got 3", {directions = {"minimize", "minimize", "minimize"}})
    fails("directions: unknown item 2 'up' (known: minimize, maximize)", {directions = {"minimize", "up"}})
    fails("sampler: cmaes has one metric; tpe, nsga2 and random have several", {sampler = "cmaes"})
    local fine, text = pcall(Definition, {objective = function() end, directions = {"minimize"},
      space = {x = sweep.uniform(0, 1)}})
    assert.is_false(fine)
    assert.truthy(text:find("directions: there are no 'metrics'", 1, true), text)
  end)
end)

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A study of several metrics", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

describe("A study of several metrics", function()
  local path, leave
  before_each(function()
    path = os.tmpname()
    leave = folder.enter()
  end)
  after_each(function()
    leave()
    for _, ending in ipairs {"", "-wal", "-shm"} do os.remove(path .. ending) end
  end)

  local function continue(given, count)
    local store = Store(path, "create")
    local study = Study(given, store)
    study:set_limit(count)
    for now = 1, 1000 do
      local trial = study:next(now, 0)
      if not trial then break end
      local x, y = trial.params.x, trial.params.y
      study:leave(trial, "complete", now, {x ^ 2 + y, x - y})
    end
    return study, store
  end

  it("continues as if it had never stopped, with the same front", function()
    for _, sampler in ipairs {"tpe", {"nsga2", population_size = 5}} do
      local given = definition {sampler = sampler, seed = 1}
      local _, store = continue(given, 13)
      store:close()
      local study, again = continue(given, 30)
      again:close()
      os.remove(path)
      local whole, other = continue(given, 30)
      other:close()
      os.remove(path)
      for i, trial in ipairs(whole.trials) do assert.same(trial.params, study.trials[i].params) end
      local numbers = {}
      for i, trial in ipairs(whole:front()) do numbers[i] = trial.number end
      assert.truthy(#numbers > 1)
      for i, trial in ipairs(study:front()) do assert.equal(numbers[i], trial.number) end
    end
  end)

  it("has trials fail that lack a metric or have one that is not finite", function()
    local store = Store(path, "create")
    local study = Study(definition(), store)
    study:set_limit(2)
    local first = study:next(1, 0)
    study:report(first, 1, {loss = 1}, 2)
    study:leave(first, "complete", 3, 1)
    assert.equal("failed", first.state)
    assert.equal("it never reported 'accuracy'", first.error)
    local second = study:next(4, 0)
    study:report(second, 1, {loss = 1, accuracy = 1 / 0}, 5)
    study:leave(second, "complete", 6, 1)
    assert.equal("its accuracy is not finite", second.error)
    assert.same({}, study:front())
    store:close()
  end)

  it("is run by the command, with the front in the text, the page and files", function()
    files.write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{width = 1}
      accelhost.report(1, {loss = 1 / args.width, seconds = 100})
      accelhost.report(2, {loss = 1 / args.width})
      accelhost.report(3, {seconds = args.width < 4 and args.width or args.width + 1})]])
    files.write("s.lua", [[return {script = "train.lua", sampler = "grid", metrics = {"loss", "seconds"},
      space = {width = require "accelhost".sweep.choice {1, 2, 3, 4}}}]])
    local result = run.host({"sweep", "s.lua", "-j", "2"}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    assert.matches("complete: loss 0%.5, seconds 2 after [^\n]*, on the Pareto front\n", result.stdout)
    assert.matches("s: minimize loss, minimize seconds, sampler grid\n", result.stdout)
    assert.matches("Pareto front: 4 trials, by loss\n", result.stdout)
    local text = run.host({"sweep", "report", "s.study"}).stdout
    assert.matches("seconds: dots are trials, the line is the Pareto front", text)
    local page = files.read "s.study/report.html"
    assert.matches('<section id="front">', page)
    assert.matches("<strong>4</strong> on the Pareto front of loss, seconds", page)
    local best = run.host {"sweep", "best", "s.study"}
    assert.matches("^%-%- trial %d: loss 0%.25, seconds 5\n{\n  width = 4,\n}\n", best.stdout)
    assert.matches("Pareto front: 4 trials; as YAML: s.study/front\n", best.stderr)
    assert.equal("width: 1\n", files.read "s.study/front/0000.yaml")
    local rows = json.decode(run.host({"sweep", "export", "s.study", "--format", "json"}).stdout)
    assert.same({1, 1}, rows.trials[1].values)
    assert.matches("^number,state,value,values.loss,values.seconds,params.width,",
      run.host({"sweep", "export", "s.study"}).stdout)
  end)

  it("has objectives that return a table, by name or in order", function()
    for _, result in ipairs {"{loss = p.x, size = 2}", "{p.x, 2}"} do
      files.write("o.lua", ([[return {objective = function(trial) local p = trial.params return %s end, trials = 2,
        metrics = {"loss", "size"}, space = {x = require "accelhost".sweep.uniform(0, 1)}}]]):format(result))
      local ended = run.host({"sweep", "o.lua", "-n", "2", "--study", "o" .. #result}, {timeout = 60})
      assert.equal(0, ended.code, ended.output)
      assert.matches("size 2 after", ended.stdout)
    end
    files.write("o.lua", [[return {objective = function(trial) return trial.params.x end, trials = 2, inline = true,
      metrics = {"loss", "size"}, space = {x = require "accelhost".sweep.uniform(0, 1)}}]])
    assert.matches("the objective returned number [%d.]+; expected a table with the numbers loss, size",
      run.host({"sweep", "o.lua", "--study", "wrong"}, {timeout = 60}).stderr)
  end)
end)
