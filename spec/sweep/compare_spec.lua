-- Studies next to each other: accelhost sweep compare.
local compare = require "accelhost.sweep.report.compare"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

-- A study whose trials have these values, in order; false: the trial failed.
local function study(name, values, options)
  local one = {name = name, directory = name .. ".study", metric = "loss", direction = "minimize", sampler = "random",
    space = {{name = "lr", kind = "float"}}, trials = {}}
  for key, value in pairs(options or {}) do one[key] = value end
  for i, value in ipairs(values) do
    local list = type(value) == "table" and value
    one.trials[i] = {
      number = i - 1, state = value and "complete" or "failed", value = not list and value or nil,
      values = list or nil, params = {lr = i / 10}, started = 10 * i, ended = 10 * i + 5,
    }
  end
  return one
end

local function lines_of(...)
  local lines = {}
  for line in compare.text({...}):gmatch "([^\n]*)\n" do lines[#lines + 1] = line:gsub(" +$", "") end
  return lines
end

describe("accelhost sweep compare", function()
  it("prints counts, the best values and the trials until each had the worst of them", function()
    assert.same({
      "minimize loss",
      "study    sampler  trials  complete  failed    time  best  trials to 2",
      "a.study  random        4         4       0  35.0 s     1            3",
      "b.study  tpe           3         2       1  25.0 s     2            2",
      "",
      "best parameters  a.study  b.study",
      "  lr             0.4      0.3",
      "  width                   7",
    }, lines_of(study("a", {5, 3, 2, 1}),
      (function()
        local b = study("b", {4, false, 2}, {sampler = "tpe"})
        b.space[2] = {name = "width", kind = "int"}
        b.trials[3].params.width = 7
        return b
      end)()))
  end)

  it("maximizes where the studies do, and shows one without a value", function()
    local up = {direction = "maximize", metric = "accuracy"}
    local lines = lines_of(study("a", {0.5, 0.75, 0.9}, up), study("b", {0.25, 0.75}, up), study("c", {false}, up))
    assert.matches("trials to 0%.75$", lines[2])
    assert.matches(" 0%.9 +2$", lines[3])
    assert.matches(" 0%.75 +2$", lines[4])
    assert.matches(" %- +%-$", lines[5])
  end)

  it("counts the trials on the Pareto front, and on that of all studies", function()
    local two = {metrics = {"loss", "size"}, directions = {"minimize", "minimize"}}
    local lines = lines_of(study("a", {{1, 9}, {5, 5}, {9, 9}}, two), study("b", {{2, 4}, {8, 1}}, two))
    assert.equal("minimize loss, minimize size", lines[1])
    assert.matches("front  common front$", lines[2])
    assert.matches(" 2 +1$", lines[3])
    assert.matches(" 2 +2$", lines[4])
    assert.equal(4, #lines)
  end)

  it("refuses studies with other goals", function()
    local well, message = pcall(lines_of, study("a", {1}), study("b", {1}, {direction = "maximize"}))
    assert.is_false(well)
    assert.equal("compare: expected studies with the same goals, got 'a.study' (minimize loss) and 'b.study' "
      .. "(maximize loss)", message)
  end)

  it("reads the studies that the command names", function()
    folder.with(function(path)
      for _, name in ipairs {"one", "two"} do
        files.write(path .. "/" .. name .. ".lua", ([[return {inline = true, trials = 3, sampler = "random", seed = %d,
          objective = function(trial) return trial.params.x end, space = {x = require "accelhost".sweep.uniform(0, 1)},
          }]]):format(#name))
        run.succeeds(run.host({"sweep", name .. ".lua", "--quiet"}, {dir = path, timeout = 60}))
      end
      local result = run.host({"sweep", "compare", "one.study", "two.study"}, {dir = path, timeout = 60})
      run.succeeds(result)
      assert.matches("^minimize loss\nstudy +sampler", result.stdout)
      assert.matches("\none%.study +random +3 +3 +0 ", result.stdout)
      assert.matches("\nbest parameters +one%.study +two%.study\n  x ", result.stdout)
      local alone = run.host({"sweep", "compare", "one.study"}, {dir = path})
      assert.equal(2, alone.code)
      assert.matches("compare: expected 2 to 64 studies' folders, got 1\n", alone.stderr)
    end)
  end)
end)
