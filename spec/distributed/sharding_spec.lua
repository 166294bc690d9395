-- States that are shared out among processes.
local checks = require "spec.support.checks"
local hosts = require "spec.support.hosts"
local lfs = require "lfs"
local run = require "spec.support.run"

checks.describe("A job with sharded states", "spec/distributed/cases/sharding.lua", {1, 2, 3, 4},
  {allow = "got no gradient on any process"})

-- Is one of these files of memory mapped by any process?
local function is_mapped(files)
  for pid in lfs.dir "/proc" do
    local maps = pid:find "^%d+$" and io.open("/proc/" .. pid .. "/maps")
    local text = maps and maps:read "*a" or ""
    if maps then maps:close() end
    for file in text:gmatch " (%d+) +/memfd:accelhost" do
      if files[file] then return true end
    end
  end
  return false
end

-- The job that printed this has ended: its shared memory is removed soon.
local function check_memory_gone(printed, least)
  local files, count = {}, 0
  for file in printed:gmatch "memory (%d+)" do
    if not files[file] then files[file], count = true, count + 1 end
  end
  assert.is_true(count >= least, printed)
  for _ = 1, 100 do
    if not is_mapped(files) then return end
    run.program {"sleep", "0.05"}
  end
  assert.is_false(is_mapped(files), "memory of the job is still mapped")
end

describe("A job with sharded states that fails", function()
  local case = "spec/distributed/cases/sharding_fail.lua"

  local function fail(sharding, what)
    local result = run.host({"launch", "--num_processes", 3, case, sharding, what}, {timeout = 30})
    assert.equal(3, result.code, result.output)
    assert.is_nil(result.stdout:find("trained", 1, true))
    return result.stderr, result.stdout
  end

  for _, sharding in ipairs {"optimizer", "gradients", "full"} do
    it(("ends with the name of a rank that dies before a step, sharding = '%s'"):format(sharding), function()
      local told = fail(sharding, "kill")
      assert(told:find("rank 2 was killed by SIGKILL", 1, true), told)
    end)

    it(("ends with it, and leaves no memory, where the others wait for its share, sharding = '%s'"):format(sharding),
      function()
        local told, printed = fail(sharding, "within")
        assert(told:find("rank 2 was killed by SIGKILL", 1, true), told)
        check_memory_gone(printed, 3)
      end)

    it(("reports the line at which ranks diverge, sharding = '%s'"):format(sharding), function()
      local told = fail(sharding, "leave")
      assert(told:find("in optimizer:step", 1, true), told)
      assert(told:find("sharding_fail.lua:31", 1, true), told)
    end)
  end

  it("ends with it when it dies at any moment of an exchange", function()
    local told, printed = fail("gradients", "during")
    assert(told:find("rank 2 was killed by SIGKILL", 1, true), told)
    check_memory_gone(printed, 3)
  end)

  if hosts.missing() then
    it("runs on test hosts", function() pending(hosts.missing()) end)
    return
  end

  for sharding, what in pairs {full = "during", gradients = "within"} do
    it(("ends on both hosts, and leaves no memory, sharding = '%s', %s an exchange"):format(sharding, what), function()
      local result = hosts.run(2, ([[for k in 1 2; do on $k launch --num_machines 2 --main_process_ip node1 \
        --secret_file none --num_processes 4 %s %s %s & done; wait]]):format(case, sharding, what), {timeout = 30})
      for node = 1, 2 do
        local said, code = hosts.said(result, node)
        assert.equal(3, code, result.output)
        assert(said:find("on node2: rank 3 was killed by SIGKILL", 1, true), result.output)
        assert.is_nil(said:find("trained", 1, true))
      end
      check_memory_gone(result.stdout, 4)
    end)
  end
end)

describe("A job with sharded states on two hosts", function()
  if hosts.missing() then
    it("runs on test hosts", function() pending(hosts.missing()) end)
    return
  end

  it("has the losses of whole states on one host, of two ranks each as of four", function()
    local case = "spec/distributed/cases/sharding_losses.lua"
    -- dtype -> losses
    local function losses(text, kind)
      local list = {}
      for dtype, line in text:gmatch(kind .. " (%S+): ([^\n]+)") do
        list[dtype] = {}
        for number in line:gmatch "%S+" do table.insert(list[dtype], tonumber(number)) end
      end
      return list
    end
    local one = run.host({"launch", "--num_processes", 4, case, "none", "full"}, {timeout = 60})
    assert.equal(0, one.code, one.output)
    local expected = losses(one.stdout, "none")
    assert.equal(6, #expected.float64)
    assert.same(expected.float64, losses(one.stdout, "full").float64)
    local both = hosts.run(2, ([[for k in 1 2; do on $k launch --num_machines 2 --main_process_ip node1 \
      --secret_file none --num_processes 4 %s optimizer gradients full & done; wait]]):format(case))
    for _, kind in ipairs {"optimizer", "gradients", "full"} do
      local got = losses(both.stdout, kind)
      for dtype, tolerance in pairs {float64 = 1e-12, float32 = 1e-6} do
        assert.equal(6, #(got[dtype] or {}), both.output)
        for i, loss in ipairs(expected[dtype]) do
          assert(math.abs(loss - got[dtype][i]) <= tolerance, ("%s %s, step %d: expected %.17g, got %.17g"):format(kind,
            dtype, i, loss, got[dtype][i]))
        end
      end
    end
  end)

  for _, kind in ipairs {"optimizer", "gradients", "full"} do
    it(("keeps equal parameters on both, and saves a state that one loads, sharding = '%s'"):format(kind), function()
      local folder = os.tmpname() .. ".state"
      local case = "spec/distributed/cases/sharding_resume.lua"
      local result = hosts.run(2, ([[for k in 1 2; do on $k launch --num_machines 2 --main_process_ip node1 \
        --secret_file none --num_processes 4 %s save %s %s parts & done; wait]]):format(case, folder, kind))
      local sums, count = {}, 0
      for sum in result.stdout:gmatch "digests ([%x ]+)" do
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
    return assert(result.stdout:match "digests ([%x ]+)", result.output)
  end

  -- By the number of processes that saved; each is loaded into fewer and more, and into as many.
  local others = {
    {{2, "gradients"}, {4, "full"}},
    {{1, "full"}, {2, "full"}, {4, "gradients"}},
    {{1, "none"}, {2, "gradients"}, {3, "optimizer"}, {4, "full"}},
    {{1, "full"}, {2, "optimizer"}, {3, "none"}, {4, "gradients"}},
  }
  for _, saved in ipairs {{1, "full", "parts"}, {2, "gradients"}, {2, "none"}, {3, "full", "parts"},
    {4, "optimizer", "parts"}} do
    local ranks, sharding, parts = unpack(saved)
    it(("of %d processes with sharding = '%s'%s loads into any number and any sharding"):format(ranks, sharding,
      parts and ", in parts," or ""), function()
      local folder = os.tmpname() .. ".state"
      local expected = came_to(job(ranks, "save", folder, sharding, parts))
      for _, other in ipairs(others[ranks]) do
        assert.equal(expected, came_to(job(other[1], "load", folder, other[2])))
      end
      os.execute("rm -r '" .. folder .. "'")
    end)
  end

  it("with gradients in shares that wait for a step resumes with the same shares only", function()
    local folder = os.tmpname() .. ".state"
    local expected = came_to(job(2, "save", folder, "full", "whole", "pending"))
    assert.equal(expected, came_to(job(2, "load", folder, "full")))
    for _, other in ipairs {{3, "full"}, {2, "optimizer"}, {1, "none"}} do
      local result = job(other[1], "load", folder, other[2])
      assert.is_true(result.code ~= 0)
      assert(result.stderr:find("the saved gradients that wait for a step are in shards of other processes", 1, true),
        result.output)
    end
    os.execute("rm -r '" .. folder .. "'")
  end)
end)
