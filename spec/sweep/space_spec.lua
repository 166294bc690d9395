-- The contents that a sweep's file may have, and the errors for others.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local Space = require "accelhost.sweep.space"
local file = require "accelhost.sweep.file"
local folder = require "spec.support.folder"
local json = require "accelhost".json
local sweep = require "accelhost".sweep

local function message(call, ...)
  local fine, text = pcall(call, ...)
  assert.is_false(fine)
  return tostring(text)
end

describe("A space", function()
  local space = Space {
    lr = sweep.log_uniform(1e-4, 1), shape = sweep.choice{{1, 2}, {3}}, epochs = 3, sizes = {4, 5},
    optim = {name = sweep.choice{"sgd", "adamw"}, momentum = sweep.uniform(0, 1, {when = {name = "sgd"}})},
  }

  it("is a list sorted by dotted names, without constants", function()
    local names = {}
    for i, row in ipairs(space.parameters) do names[i] = row.name end
    assert.same({"lr", "optim.momentum", "optim.name", "shape"}, names)
    assert.same({name = "optim.name", values = {"sgd"}}, space.by_name["optim.momentum"].when)
    assert.same({epochs = 3, sizes = {4, 5}}, space.constants)
  end)

  it("passes a script nested values, constants and tables among them", function()
    assert.same({lr = 0.1, shape = {1, 2}, epochs = 3, sizes = {4, 5}, optim = {name = "sgd", momentum = 0.5}},
      space:expand {lr = 0.1, shape = "[1, 2]", ["optim.name"] = "sgd", ["optim.momentum"] = 0.5})
  end)

  it("accepts a user's values nested or dotted, and completes only the parameters that apply", function()
    assert.same({lr = 0.1, shape = "[3]", ["optim.name"] = "adamw"},
      space:accept("enqueue", {lr = 0.1, shape = {3}, optim = {name = "adamw"}, epochs = 3}))
    assert.same({lr = 0.1, shape = "[1, 2]", ["optim.name"] = "adamw"},
      space:complete({lr = 0.1, ["optim.name"] = "adamw"}, {["optim.momentum"] = 0.3}))
  end)

  for _, case in ipairs {
    {{lrr = 1}, "enqueue: the space has no parameter 'lrr' %(did you mean 'lr'%?%)"},
    {{lr = 2}, "enqueue: lr: 2 is outside 0.0001 to 1"},
    {{lr = "x"}, "enqueue: lr: expected a number, got 'x'"},
    {{optim = {name = "rmsprop"}}, "enqueue: optim.name: 'rmsprop' is none of its choices"},
    {{optim = {name = "adamw", momentum = 0.1}}, 'optim.momentum is there only when optim.name is "sgd"'},
    {{epochs = 4}, "enqueue: epochs is the constant 3"},
  } do
    it("refuses " .. json.encode(case[1]), function()
      assert.matches(case[2], message(space.accept, space, "enqueue", case[1]))
    end)
  end

  it("counts the points of finite spaces, in steps from the lower end", function()
    assert.equal(30, Space {a = sweep.int(1, 5), b = sweep.choice{1, 2}, c = sweep.quniform(0, 1, 0.4)}:size())
    assert.equal(math.huge, Space {a = sweep.uniform(0, 1)}:size())
    assert.equal(0.8, Space {c = sweep.quniform(0, 1, 0.4)}.parameters[1].high)
  end)

  for _, case in ipairs {
    {function() return sweep.uniform(1, 0) end, "uniform: the range from 1 to 0 is empty"},
    {function() return sweep.uniform(0, 1 / 0) end, "uniform: high: expected a number, got number inf"},
    {function() return sweep.log_uniform(0, 1) end, "log_uniform: a logarithm needs a range above 0, got one from 0"},
    {function() return sweep.int(1.5, 2) end, "int: expected whole numbers, got 1.5 and 2"},
    {function() return sweep.quniform(0, 1, 0) end, "quniform: step: expected a number above 0, got number 0"},
    {function() return sweep.choice{} end, "choice: expected at least one value, got none"},
    {function() return sweep.choice{1, 1} end, "choice: 1 is repeated"},
    {function() return sweep.choice{print} end, "choice: a choice is a number, text, boolean or a table of them"},
    {function() return sweep.uniform(0, 1, {stepp = 1}) end, "unknown option 'stepp' .*did you mean 'step'"},
    {function() return sweep.normal(0, 1) end, "accelhost.sweep has no normal: samplers learn the location"},
    {function() return sweep.unifrom(0, 1) end, "has no 'unifrom' %(did you mean 'uniform'%?%)"},
    {function() return Space {a = print} end, "space: a: expected a distribution or a constant, got a function"},
    {function() return Space {["a.b"] = 1} end, "expected names of parameters, got 'a.b'"},
    {function() return Space {a = sweep.int(0, 1), b = sweep.int(0, 1, {when = {a = 1}})} end,
      "space: b: when: 'a' is no choice"},
    {function() return Space {a = sweep.choice{1}, b = sweep.int(0, 1, {when = {a = 2}})} end,
      "space: b: when: a is never number 2"},
    {function() return Space {rate = sweep.choice{1}, b = sweep.int(0, 1, {when = {rat = 1}})} end,
      "there is no parameter 'rat' %(did you mean 'rate'%?%)"},
    {function()
      return Space {a = sweep.choice({1}, {when = {b = 1}}), b = sweep.choice({1}, {when = {a = 1}})}
    end, "its conditions go in a circle"},
  } do
    it("refuses with: " .. case[2], function() assert.matches(case[2], message(case[1])) end)
  end
end)

describe("A definition", function()
  local function define(more)
    local given = {objective = function() end, space = {x = sweep.uniform(0, 1)}}
    for key, value in pairs(more) do given[key] = value ~= "none" and value or nil end
    return Definition(given)
  end

  for _, case in ipairs {
    {{sampeler = "tpe"}, "unknown key 'sampeler' %(did you mean 'sampler'%?%)"},
    {{script = "train.lua"}, "'objective' and 'script': one of them, not both"},
    {{objective = "none"}, "there is neither 'script' %(a file that trains%) nor 'objective' %(a function%)"},
    {{space = "none"}, "there is no 'space'"},
    {{trials = 0}, "trials: expected an integer of at least 1, got number 0"},
    {{direction = "up"}, "direction: expected one of 'minimize', 'maximize', got 'up'"},
    {{metric = {name = "loss", goal = "minimise"}}, "metric: unknown goal 'minimise'"},
    {{metric = {name = "loss", goal = "minimize"}, direction = "maximize"}, "goal is 'minimize', but direction 'max"},
    {{enqueue = {{y = 1}}}, "enqueue: item 1: the space has no parameter 'y'"},
    {{["repeat"] = 2, replicates = 3}, "are the same setting"},
    {{inline = true, num_processes = 2}, "inline: there is one process"},
    {{objective = "none", script = "not/there.lua"}, "script: there is no 'not/there.lua'"},
  } do
    it("refuses with: " .. case[2], function() assert.matches(case[2], message(define, case[1])) end)
  end

  it("reports the differences from another one", function()
    local old = define({}):facts()
    assert.is_nil(Definition.difference(old, define({sampler = "random", seed = 8, trials = 5}):facts()))
    local function difference(x) return Definition.difference(old, define({space = {x = x}}):facts()) end
    assert.equal("parameter 'x' is float from 0 to 0.5 now, and was float from 0 to 1",
      (difference(sweep.uniform(0, 0.5))))
    assert.equal("parameter 'x' is float from 0.1 to 2 now, and was float from 0 to 1",
      (difference(sweep.uniform(0.1, 2))))
    assert.matches("in steps of 0.5 now", (difference(sweep.quniform(0, 2, 0.5))))
    local none, extensions = difference(sweep.uniform(-1, 2))
    assert.is_nil(none)
    assert.same({"parameter 'x' is float from -1 to 2 now, and was float from 0 to 1; earlier trials stay"}, extensions)
    assert.equal("parameter 'x' is not there now, and was float from 0 to 1",
      (Definition.difference(old, define({space = {}}):facts())))
    assert.equal('metric is "accuracy" now, and was "loss"',
      (Definition.difference(old, define({metric = "accuracy"}):facts())))
    local stepped = define({space = {n = sweep.quniform(0, 4, 2)}}):facts()
    assert.matches("in steps of 2 now",
      (Definition.difference(stepped, define({space = {n = sweep.quniform(-1, 5, 2)}}):facts())))
    assert.is_nil((Definition.difference(stepped, define({space = {n = sweep.quniform(-2, 6, 2)}}):facts())))
    local chosen = define({space = {c = sweep.choice{"a", "b"}}}):facts()
    assert.is_nil((Definition.difference(chosen, define({space = {c = sweep.choice{"b", "c", "a"}}}):facts())))
    assert.matches("was", (Definition.difference(chosen, define({space = {c = sweep.choice{"b", "c"}}}):facts())))
  end)
end)

describe("A definition in YAML", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local function write(name, text)
    local handle = assert(io.open(name, "w"))
    handle:write(text)
    handle:close()
  end

  local function read(text, notes)
    write("train.lua", "")
    write("sweep.yaml", "program: train.lua\n" .. text)
    return file.read("sweep.yaml", {}, function(note) notes[#notes + 1] = note end)
  end

  it("accepts the keys of Weights & Biases, and reports the keys that it ignores", function()
    local notes = {}
    local definition = read([[
method: bayes
metric: {name: accuracy, goal: maximize}
run_cap: 12
command: [python, "${program}"]
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  dropout: {min: 0.0, max: 1.0}
  layers: {min: 1, max: 4}
  optimizer:
    parameters:
      name: {values: [adamw, sgd]}
      momentum: {min: 0, max: 0.9, when: {name: sgd}}
  epochs: {value: 3}
early_terminate: {type: hyperband, min_iter: 1, eta: 3}
]], notes)
    assert.equal("command: left out; trials run by this program, with 'arguments' after the script", notes[1])
    assert.equal("early_terminate: hyperband is the pruner asha here (min_resource 1, reduction_factor 3), which "
      .. "pauses trials and resumes them from their checkpoints", notes[2])
    assert.same({"maximize", "accuracy", 12, "tpe", "train.lua"}, {definition.direction, definition.metric,
      definition.trials, definition.sampler, definition.script_path})
    assert.same({name = "asha", min_resource = 1, reduction_factor = 3}, definition.pruner)
    local kinds = {}
    for _, row in ipairs(definition.space.parameters) do kinds[row.name] = row.kind end
    assert.same({lr = "float", dropout = "float", layers = "int", ["optimizer.name"] = "categorical",
      ["optimizer.momentum"] = "float"}, kinds)
    assert.same({name = "lr", kind = "float", low = 1e-4, high = 0.1, log = true}, definition.space.by_name.lr)
    assert.same({epochs = 3}, definition.space.constants)
  end)

  for _, case in ipairs {
    {"parameters: {a: {distribution: log_uniform, min: -3, max: 0}}",
      "sweep.yaml: .*parameters: a: log_uniform has logarithms as bounds in W&B: write log_uniform_values"},
    {"parameters: {a: {distribution: normal, mu: 0, sigma: 1}}", "parameters: a: normal is not here"},
    {"parameters: {a: {distribution: unifrom, min: 0, max: 1}}", "no distribution 'unifrom' %(did you mean 'uniform'"},
    {"parameters: {a: {values: [1, 2], probabilities: [0.1, 0.9]}}", "'probabilities' is not here"},
    {"parameters: {a: {min: 2, max: 1}}", "parameters: a: int: the range from 2 to 1 is empty"},
    {"parameters: {a: {mim: 2, max: 1}}", "unknown option 'mim' .*did you mean 'min'"},
    {"parameters: {a: [1, 2]}", "parameters: a: expected {values: %[...%]}"},
    {"method: bayesian\nparameters: {}", "method: expected grid, random or bayes, got 'bayesian'"},
    {"parameters: {a: 1", "sweep.yaml: .*line %d+: no YAML"},
    {"parameters: {}\nearly_terminate: {type: median}", "early_terminate: type: expected hyperband, got 'median'"},
    {"paramters: {}", "unknown key 'paramters' %(did you mean 'parameters'%?%)"},
  } do
    it("refuses " .. case[1]:gsub("\n", "; "), function() assert.matches(case[2], message(read, case[1], {})) end)
  end

  it("reads plain scalars as YAML 1.2 does", function()
    local value, reals = C.yaml.decode [[
a: [1e-4, "1e-4", 0x10, 1.0, -.5, .inf, true, no, 1_0, ~, 2026-01-01]
b: {x: 1e3}]]
    assert.same({1e-4, "1e-4", 16, 1, -0.5, math.huge, true, "no", "1_0", json.null, "2026-01-01"}, value.a)
    assert.same({[value.a] = {[1] = true, [4] = true, [5] = true, [6] = true}, [value.b] = {x = true}},
      reals)
  end)

  it("is refused when its file is not there, is a folder, or of another kind", function()
    assert.matches("cannot read no.yaml: No such file", message(file.read, "no.yaml"))
    assert.matches("expected a .lua, .yaml or .json file, got 'x.toml'", message(file.read, "x.toml"))
    write("broken.lua", "return {")
    assert.matches("broken.lua:1: unexpected symbol", message(file.read, "broken.lua"))
    write("none.lua", "")
    assert.matches("none.lua: .*expected a table {script =, space =, ...}, got nil", message(file.read, "none.lua"))
  end)
end)
