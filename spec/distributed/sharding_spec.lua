-- States that are shared out among processes.
local checks = require "spec.support.checks"
local hosts = require "spec.support.hosts"
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

describe("A job with sharded states on two hosts", function()
  if hosts.missing() then
    it("is tried on hosts of its own", function() pending(hosts.missing()) end)
    return
  end

  for _, kind in ipairs {"optimizer", "gradients", "full"} do
    it(("keeps the parameters alike on both, and saves what one host loads, sharding = '%s'"):format(kind), function()
      local folder = os.tmpname() .. ".state"
      local case = "spec/distributed/cases/sharding_resume.lua"
      local result = hosts.run(2, ([[for k in 1 2; do on $k launch --num_machines 2 --main_process_ip node1 \
        --secret_file none --num_processes 4 %s save %s %s parts & done; wait]]):format(case, folder, kind))
      local sums, count = {}, 0
      for sum in result.stdout:gmatch "came to ([%x ]+)" do
        sums[sum], count = true, count + 1
      end
      local sum = next(sums)
      assert(sum and next(sums, sum) == nil and count >= 2, result.stdout .. result.stderr)
      local loaded = run.host({"launch", "--num_processes", 3, case, "load", folder, "gradients"}, {timeout = 60})
      assert(loaded.stdout:find(sum, 1, true), loaded.output)
      os.execute("rm -r '" .. folder .. "'")
    end)
  end
end)

describe("A checkpoint of sharded states", function()
  local function job(ranks, ...)
    local words = {"launch", "--num_processes", ranks, "spec/distributed/cases/sharding_resume.lua", ...}
    return run.host(words, {timeout = 60})
  end
  local function came_to(result)
    assert.equal(0, result.code, result.output)
    return assert(result.stdout:match "came to ([%x ]+)", result.output)
  end

  for _, saved in ipairs {{3, "full", "parts"}, {2, "gradients"}, {4, "optimizer", "parts"}, {2, "none"}} do
    local ranks, sharding, parts = unpack(saved)
    it(("of %d processes with sharding = '%s'%s loads into any number and any sharding"):format(ranks, sharding,
      parts and ", in parts," or ""), function()
      local folder = os.tmpname() .. ".state"
      local expected = came_to(job(ranks, "save", folder, sharding, parts))
      for _, other in ipairs {{1, "full"}, {2, "gradients"}, {3, "optimizer"}, {4, "full"}, {3, "none"}} do
        assert.equal(expected, came_to(job(other[1], "load", folder, other[2])))
      end
      os.execute("rm -r '" .. folder .. "'")
    end)
  end

  it("with gradients in shares that wait for a step goes on with the same shares only", function()
    local folder = os.tmpname() .. ".state"
    local expected = came_to(job(2, "save", folder, "full", "whole", "pending"))
    assert.equal(expected, came_to(job(2, "load", folder, "full")))
    for _, other in ipairs {{3, "full"}, {2, "optimizer"}, {1, "none"}} do
      local result = job(other[1], "load", folder, other[2])
      assert.is_true(result.code ~= 0)
      assert(result.stderr:find("the saved gradients that wait for a step are in shares of other processes", 1, true),
        result.output)
    end
    os.execute("rm -r '" .. folder .. "'")
  end)
end)
