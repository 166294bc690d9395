local accelhost = require "accelhost"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local params = require "accelhost.util.params"
local run = require "spec.support.run"

local script = [[
  local accelhost = require "accelhost"
  local args = accelhost.args{lr = 0.1, hidden = {32, 64}, names = {"a"}, optim = {name = "sgd", nesterov = true}}
  print(accelhost.json.encode(args))]]

local rows = [[
  local accelhost = require "accelhost"
  local args = accelhost.parse_args{{"epochs", 1, "passes", integer = true, minimum = 1}, {"lr", 0.1, "rate"},
    {"kind", "a", "which", choices = {"a", "b"}}, {"smoke", false, "short"}}
  print(args.epochs, args.lr, args.kind, args.smoke)]]

describe("args", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local function parse(code, ...) return run.host {"-e", code, ...} end

  it("returns the defaults, nested", function()
    assert.equal('{"hidden": [32, 64], "lr": 0.1, "names": ["a"], "optim": {"name": "sgd", "nesterov": true}}\n',
      parse(script).stdout)
  end)

  it("accepts numbers, lists, dotted names, and switches both ways", function()
    assert.equal('{"hidden": [8], "lr": 0.001, "names": ["x", "y"], "optim": {"name": "adamw", "nesterov": false}}\n',
      parse(script, "--lr", "1e-3", "--hidden=8", "--names", "x,y", "--optim.name", "adamw",
        "--no_optim.nesterov").stdout)
    assert.matches('"nesterov": false', parse(script, "--optim.nesterov=false").stdout)
  end)

  it("prints its options and their defaults", function()
    local said = parse(script, "--help").stdout
    assert.matches("%-%-hidden A,B,%.%.%. +%(default 32,64%)", said)
    assert.matches("%-%-optim.nesterov +%(default true%)", said)
  end)

  for _, case in ipairs {
    {"--lr=x", "%-%-lr: expected a number, got 'x'"},
    {"--hidden=a", "%-%-hidden: expected a list of numbers, got 'a'"},
    {"--optim.nesterov=1", "%-%-optim.nesterov: expected true or false, got '1'"},
    {"--optim.nam=x", "unknown option '%-%-optim.nam' %(did you mean '%-%-optim.name'%?%)"},
  } do
    it("ends with 2 on " .. case[1], function()
      local result = parse(script, case[1])
      assert.equal(2, result.code)
      assert.matches(case[2], result.stderr)
    end)
  end

  it("refuses defaults that are none", function()
    for defaults, text in pairs {
      ["{f = print}"] = "args: f: expected a number, text, boolean, list or table of such, got a function",
      ["{f = {1, 'a'}}"] = "args: f: a list holds values of one kind, item 2 is 'a'",
      ["{f = {}}"] = "args: f: expected a number",
      ["{['a.b'] = 1}"] = "args: expected names with defaults, got 'a.b'",
    } do
      local result = parse("require('accelhost').args" .. defaults)
      assert.equal(1, result.code)
      assert.matches(text, result.stderr, 1, true)
    end
  end)
end)

describe("Parameters from a file", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local function with(name, text, code, ...)
    write(name, text)
    return run.host {"run", "--params", name, "-e", code, ...}
  end

  for name, text in pairs {
    ["p.yaml"] = "lr: 1e-4\nhidden: 5\noptim:\n  name: \"x\"\n",
    ["p.json"] = '{"lr": 0.0001, "hidden": [5], "optim": {"name": "x"}}',
    ["p.lua"] = "{lr = 1e-4, hidden = {5}, optim = {name = 'x'}}",
    ["q.lua"] = "return {lr = 1e-4, hidden = {5}, optim = {name = 'x'}}",
  } do
    it("override defaults, and the command line overrides them: " .. name, function()
      assert.equal('{"hidden": [5], "lr": 0.0001, "names": ["a"], "optim": {"name": "x", "nesterov": true}}\n',
        with(name, text, script).stdout)
      assert.matches('"lr": 7,', with(name, text, script, "--lr", "7").stdout)
    end)
  end

  it("reach parse_args by launch, in all ranks", function()
    write("p.json", '{"epochs": 3, "kind": "b", "smoke": true}')
    write("t.lua", rows)
    local result = run.host {"launch", "--num_processes", "2", "--params", "p.json", "t.lua", "--lr", "0.5"}
    assert.same(run.everyone(2, "3\t0.5\tb\ttrue\n"), run.by_rank(result.stdout), result.output)
  end)

  it("do not change words that a script reads by itself", function()
    assert.equal("0.1\n", with("p.json", '{"lr": 5}',
      "print(require('accelhost').parse_args({{'lr', 0.1, ''}}, {}).lr)").stdout)
  end)

  for _, case in ipairs {
    {"p.json", '{"epoch": 3}', "p.json sets 'epoch', which is none of the script's options (epochs, lr, kind, smoke) "
      .. "(did you mean 'epochs'?)"},
    {"p.json", '{"epochs": 1.5}', "p.json sets epochs = number 1.5, but the script expects an integer"},
    {"p.json", '{"epochs": 0}', "but the script expects at least 1"},
    {"p.json", '{"kind": "c"}', "p.json sets kind = 'c', but the script expects one of a, b"},
    {"p.json", '{"smoke": 1}', "but the script expects true or false"},
    {"p.json", '{"lr": ', "p.json: "},
    {"p.json", "[1]", "p.json: expected names and values"},
    {"p.toml", "", "p.toml: expected a .yaml, .json or .lua file of parameters"},
    {"p.lua", "os.exit(0)", "p.lua:1: attempt to index global 'os'"},
    {"p.lua", "\27LJ", "expected a table in Lua's words, got bytecode"},
  } do
    it(("end with 2: %s of %q"):format(case[1], case[2]), function()
      local result = with(case[1], case[2], rows)
      assert.equal(2, result.code)
      assert.matches(case[3], result.stderr, 1, true)
    end)
  end

  it("that a script never reads are reported, once for all ranks", function()
    write("p.json", '{"lr": 1}')
    write("t.lua", "print 'ran'")
    for _, words in ipairs {{"run"}, {"launch", "--num_processes", "2"}} do
      words[#words + 1] = "--params=p.json"
      words[#words + 1] = "t.lua"
      local result = run.host(words)
      run.succeeds(result)
      assert.equal("warning: the script never read the parameters of 'p.json': accelhost.args{...} or "
        .. "accelhost.parse_args{...} does\n", result.stderr)
    end
    assert.equal("", run.host {"run", "t.lua"}.stderr)
  end)

  it("that does not exist is reported", function()
    local result = run.host {"run", "--params", "none.yaml", "-e", rows}
    assert.equal(2, result.code)
    assert.matches("cannot read none.yaml: No such file", result.stderr)
  end)

  it("are written so that they read back as they were", function()
    local values = {lr = 0.1 / 3, n = 2 ^ 53, word = "1e-4", ["end"] = true, list = {1, 2},
      deep = {name = "a: b\n\"", ["odd name"] = false}}
    write("p.yaml", params.yaml(values))
    assert.same(values, params.read "p.yaml")
    write("p.lua", params.lua(values))
    assert.same(values, params.read "p.lua")
    assert.equal("{}\n", params.yaml {})
  end)
end)

describe("report", function()
  it("only checks its arguments outside a sweep", function()
    assert.equal("continue", accelhost.report(1, {loss = 0.5}))
    assert.error_matches(function() accelhost.report(1.5, {loss = 1}) end,
      "report: step: expected an integer, got number 1.5$")
    assert.error_matches(function() accelhost.report(1, 0.5) end,
      "report: expected a table {loss = x}, got number 0.5$")
  end)
end)
