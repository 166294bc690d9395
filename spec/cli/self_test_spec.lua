local folder = require "spec.support.folder"
local run = require "spec.support.run"

-- The self-test with the library broken by a piece of Lua, in two processes.
local function broken(code)
  local script = "local accelhost = require 'accelhost' " .. code ..
    " require 'accelhost.test'(accelhost, '.', require('accelhost._C').system.now)"
  return run.host({"launch", "--num_processes", 2, "-e", script}, {timeout = 60})
end

describe("accelhost test", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("finds nothing wrong in one process, in two and in five, and leaves nothing", function()
    for _, count in ipairs {1, 2, 5} do
      local result = run.host({"test", "--num_processes", count}, {timeout = 60, env = {TMPDIR = "."}})
      assert.same({0, ""}, {result.code, result.stderr})
      local first = count == 1 and "accelhost test: 1 process of " or ("accelhost test: %d processes of "):format(count)
      assert.equal(first, result.stdout:sub(1, #first))
      assert.matches("\n  ok  gradients +[%d.]+ s  those of all ranks' samples together equal one\n +process's\n",
        result.stdout)
      for line in result.stdout:gmatch "[^\n]+" do assert.truthy(#line <= 80, line) end
      assert.matches("\naccelhost test: 7 checks passed in [%d.]+ s\n$", result.stdout)
    end
    assert.same({}, folder.names ".")
  end)

  it("uses two processes by default, and the number of the settings", function()
    assert.matches("^accelhost test: 2 processes", run.host({"test"}, {timeout = 60}).stdout)
    local result = run.host({"test"}, {timeout = 60, env = {ACCELHOST_NUM_PROCESSES = "3"}})
    assert.matches("^accelhost test: 3 processes", result.stdout)
    result = run.host {"test", "--num_processes=3", "--show_config"}
    assert.matches("\nnum_processes +3 +%-%-num_processes\n", result.stdout)
  end)

  it("names the check that fails, its rank, and the expected value", function()
    local result = broken [[local Accelerator = accelhost.Accelerator
      local reduce = Accelerator.reduce
      function Accelerator:reduce(value, how) return reduce(self, value, how) + 1 end]]
    assert.equal(3, result.code)
    assert.truthy(result.stderr:find("accelhost test: collectives: FAILED on rank ", 1, true), result.stderr)
    assert.truthy(result.stderr:find("it should hold that gather (uneven too), reduce, ", 1, true))
    assert.truthy(result.stderr:find("sum: item 1: expected 1, got 2", 1, true))
  end)

  it("sees gradients that are not averaged, orders that differ and files that changed", function()
    for code, line in pairs {
      ["function accelhost.Accelerator:backward(loss) self:no_sync(nil, function() loss:backward() end) end"] =
        "gradients: FAILED",
      ["local seed = accelhost.manual_seed function accelhost.manual_seed(n) return seed(n + os.getenv 'RANK') end"]
        = "random numbers: FAILED",
      ["local load = accelhost.load function accelhost.load(p) local s = load(p) s.step = 4 return s end"]
        = "saving: FAILED",
    } do
      local result = broken(code)
      assert.equal(3, result.code)
      assert.truthy(result.stderr:find(line, 1, true), result.output)
    end
  end)

  it("accepts no arguments and refuses unknown options", function()
    assert.equal("accelhost test: unexpected argument 'x.lua'\nTry 'accelhost test --help'.\n",
      run.host({"test", "x.lua"}).stderr)
    assert.equal(2, run.host({"test", "--num_proceses", "2"}).code)
    local result = run.host({"test"}, {env = {TMPDIR = "/proc/none"}})
    assert.equal(3, result.code)
    assert.matches("cannot make the folder '/proc/none/accelhost%-test%-", result.stderr)
  end)
end)
