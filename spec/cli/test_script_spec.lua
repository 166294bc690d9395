-- What a run of all tests does with those that fail (scripts/test.sh).
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local build = run.path:match "^(.*)/"

-- Run one spec of this text, in a folder of its own.
local function try(text, env)
  local place = folder.make()
  files.write(place .. "/try_spec.lua", ("local place = %q\n%s"):format(place, text))
  env.SPECS, env.SKIP_SELFTEST = place, "1"
  local result = run.program({"scripts/test.sh", build}, {env = env})
  folder.remove(place)
  return result
end

local at_first = [[
  it("fails at first", function()
    local before = io.open(place .. "/before")
    io.open(place .. "/before", "w"):close()
    assert.truthy(before)
  end)
  it("passes", function() end)]]

describe("scripts/test.sh", function()
  it("runs again what failed where it is asked to, and names what passes then", function()
    local result = try(at_first, {RERUN_FAILED = "1"})
    assert.equal(0, result.code, result.output)
    assert.matches("\nFLAKY: failed, and passed when run again by itself: [^\n]*/try_spec.lua\n2 passed, 0 failed, ",
      result.stdout)
  end)

  it("fails where a test fails again, or is not to run again", function()
    for _, trial in ipairs {{at_first, ""}, {'it("fails", function() error "no" end)', "1"}} do
      local result = try(trial[1], {RERUN_FAILED = trial[2]})
      assert.equal(1, result.code, result.output)
      assert.matches("\n%d passed, 1 failed, 0 skipped\n$", result.stdout)
    end
  end)
end)
