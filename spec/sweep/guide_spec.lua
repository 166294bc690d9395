-- The guide about sweeps works as written: its files are written down, its commands run, in their order.
local C = require "accelhost._C"
local read = require("spec.support.files").read
local folder = require "spec.support.folder"
local run = require "spec.support.run"

if not pcall(C.sqlite.open, ":memory:") then
  return describe("The guide about sweeps", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

local guide = read "examples/guides/sweeps.md"

local function write_files()
  local names = {}
  for name, rest in guide:gmatch "\n```%l+\n[-#]+ ([%w_]+%.%l+)\n(.-\n)```" do
    local file = assert(io.open(name, "wb"))
    file:write(rest)
    file:close()
    names[#names + 1] = name
  end
  return names
end

local function commands()
  local list = {}
  for block in guide:gmatch "\n```sh\n(.-)\n```" do
    for line in block:gmatch "[^\n]+" do list[#list + 1] = (line:gsub("%s+#.*$", "")) end
  end
  return list
end

local function shell(command)
  return run.program({"sh", "-c", (command:gsub("^accelhost ", run.quote(run.path) .. " "))}, {timeout = 120})
end

describe("The guide about sweeps", function()
  local leave
  setup(function()
    local home = require("lfs").currentdir()
    if run.path:sub(1, 1) ~= "/" then run.path = home .. "/" .. run.path end
    leave = folder.enter()
  end)
  teardown(function() leave() end)

  it("has files and commands that run in their order", function()
    assert.same({"train.lua", "sweep.lua", "sweep.yaml", "branin.lua", "bounded.lua", "tradeoff.lua", "resumable.lua"},
      write_files())
    local has_sqlite3 = os.execute "command -v sqlite3 > /dev/null" == 0
    for _, command in ipairs(commands()) do
      if has_sqlite3 or not command:find "^sqlite3" then
        local result = shell(command)
        assert.equal(0, result.code, command .. "\n" .. result.output)
      end
    end
    assert.matches("^<!DOCTYPE html>.*%.study/trials/0000/log%.txt", read "report.html")
    assert.matches("^number,state,value,params.lr,params.optimizer,params.width,", read "trials.csv")
    assert.matches("lr: ", read "sweep.study/best.yaml")
  end)

  it("has equivalent files in YAML, and a function", function()
    local result = shell "accelhost sweep sweep.yaml --study other.study"
    assert.equal(0, result.code, result.output)
    assert.matches("12 trials: ", shell("accelhost sweep status other.study").stdout, 1, true)
    result = shell "accelhost sweep branin.lua"
    assert.equal(0, result.code, result.output)
    local value = tonumber(shell("accelhost sweep status branin.study").stdout:match "best: loss (%S+) in trial")
    assert.is_true(value < 3, tostring(value)) -- the minimum is 0.398
  end)

  it("has a sweep with constraints", function()
    local result = shell "accelhost sweep bounded.lua"
    assert.equal(0, result.code, result.output)
    assert.matches("8 trials: ", result.output, 1, true)
    for row in shell("accelhost sweep export bounded.study").stdout:gmatch "\n(%d+,[^\n]+)" do
      local lr, optimizer, width = row:match "^[^,]*,[^,]*,[^,]*,([^,]+),([^,]+),([^,]+)"
      assert.is_true(lr * width <= 4 and (optimizer == "sgd" or tonumber(lr) < 0.1), row)
    end
  end)

  it("has a sweep of two metrics", function()
    local result = shell "accelhost sweep tradeoff.lua"
    assert.equal(0, result.code, result.output)
    assert.matches("minimize loss, minimize weights", result.output)
    assert.matches("Pareto front: %d+ trials, by loss", result.output)
  end)

  it("has a script that resumes from its checkpoint", function()
    assert.equal(0, (shell "accelhost resumable.lua --epochs 2").code)
    local result = shell "accelhost resumable.lua"
    assert.equal(0, result.code, result.output)
    assert.equal("checkpoint_3", folder.names("run/checkpoints")[1])
  end)
end)
