-- The sweep among the examples, in Lua and in YAML.
local C = require "accelhost._C"
local Definition = require "accelhost.sweep.definition"
local file = require "accelhost.sweep.file"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

describe("examples/sweep_mnist", function()
  it("defines the same in Lua and in YAML", function()
    local lua, yaml = file.read "examples/sweep_mnist.lua", file.read "examples/sweep_mnist.yaml"
    assert.is_nil(Definition.difference(lua:facts(), yaml:facts()))
    assert.same(lua.space.constants, yaml.space.constants)
    assert.same({lua.sampler, lua.trials, lua.seed, lua.arguments}, {yaml.sampler, yaml.trials, yaml.seed,
      yaml.arguments})
  end)

  it("pauses trials that are not among the best, and runs the best to its end", function()
    if not pcall(C.sqlite.open, ":memory:") then return pending "needs accelhost-sqlite.so" end
    local home, leave = lfs.currentdir(), folder.enter()
    local result = run.host({"sweep", home .. "/examples/sweep_mnist.lua", "-n", "3", "-j", "1", "--quiet"},
      {timeout = 120, env = {ACCELHOST_DATA = false}})
    assert.equal(0, result.code, result.output)
    local db = C.sqlite.open("sweep_mnist.study/study.db", "read")
    local rows = db:execute "SELECT max(step) AS step FROM report GROUP BY trial ORDER BY step"
    db:close()
    leave()
    assert.same({{step = 1}, {step = 1}, {step = 9}}, rows)
  end)
end)
