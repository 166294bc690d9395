-- States that are shared out among processes.
local checks = require "spec.support.checks"
local run = require "spec.support.run"

checks.describe("A job with sharded states", "spec/distributed/cases/sharding.lua", {1, 2, 3, 4},
  {allow = "got no gradient on any process"})

describe("A job with sharded states that fails", function()
  local function fail(sharding, what)
    local case = "spec/distributed/cases/sharding_fail.lua"
    local result = run.host({"launch", "--num_processes", 3, case, sharding, what}, {timeout = 30})
    assert.equal(3, result.code, result.output)
    assert.is_nil(result.stdout:find("trained", 1, true))
    return result.stderr
  end

  for _, sharding in ipairs {"optimizer", "gradients", "full"} do
    it(("ends with the name of a rank that dies before a step, sharding = '%s'"):format(sharding), function()
      local told = fail(sharding, "kill")
      assert(told:find("rank 2 was killed by SIGKILL", 1, true), told)
    end)

    it(("says on which line ranks part, sharding = '%s'"):format(sharding), function()
      local told = fail(sharding, "leave")
      assert(told:find("in optimizer:step", 1, true), told)
      assert(told:find("sharding_fail.lua:12", 1, true), told)
    end)
  end
end)
