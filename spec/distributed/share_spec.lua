-- launch --share: processes with unequal shares of a global batch.
local run = require "spec.support.run"
local proportions = require "accelhost.data.partition.proportions"

local CASE = "spec/distributed/cases/share.lua"

describe("launch --share", function()
  for share, ranks in pairs {["2:1"] = 2, ["1:3:2"] = 3, ["7:1:1:2"] = 4} do
    it(("has %d processes share %s as one would process all"):format(ranks, share), function()
      local folder = os.tmpname()
      os.remove(folder)
      local result = run.host({"launch", "--num_processes", ranks, "--share", share, CASE, folder}, {timeout = 120})
      assert.equal(0, result.code, result.output)
      local _, sentences = io.open(CASE):read "*a":gsub("checks%.it%(", "")
      for rank = 0, ranks - 1 do
        local _, said = run.by_rank(result.stdout)[rank]:gsub("ok [^\n]+\n", "")
        assert.equal(sentences, said, result.output)
      end
      assert.equal(("accelhost launch: the ranks share each global batch %s\n"):format(share),
        run.without_delays(result.stderr))
      -- A job with other proportions resumes, and reports it.
      local other = run.host({"launch", "--num_processes", ranks, "-e", [[
        local accelhost = require "accelhost"
        local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data
        local accelerator = accelhost.Accelerator()
        local model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)):double()
        accelerator:prepare(model, optim.AdamW(model:parameters()),
          data.DataLoader(data.TensorDataset(accelhost.ones(9, 4)), {batch_size = 1}))
        accelerator:load_state(arg[1])
      ]], folder})
      assert.equal(0, other.code, other.output)
      local told = ("was saved where processes shared batches %s, here evenly"):format(share)
      assert.matches(told, other.stderr, nil, true)
      os.execute("rm -r " .. run.quote(folder))
    end)
  end

  it("refuses shares of nothing, for other numbers of ranks, and malformed shares", function()
    for share, text in pairs {
      ["2:0"] = "--share expects a whole number above 0 for each rank, with colons between them as in 2:1, got '2:0'",
      ["2:1:1"] = "--share: 2:1:1 is for 3 ranks, but num_processes is 2",
      ["2"] = "--share: 2 is for 1 ranks, but num_processes is 2",
      ["2:x"] = "got '2:x'", ["2:"] = "got '2:'", [":1"] = "got ':1'", ["1.5:1"] = "got '1.5:1'",
      ["-1:1"] = "got '-1:1'",
    } do
      local result = run.host {"launch", "--num_processes", 2, "--share=" .. share, "-e", "print(1)"}
      assert.equal(2, result.code, result.output)
      assert.matches(text, result.stderr, nil, true)
    end
  end)

  it("reads it from the environment and a file, and reports a job without launcher", function()
    local show = "print(table.concat(require 'accelhost'.Accelerator().share or {'none'}, ':'))"
    local result = run.host({"launch", "--num_processes", 2, "--quiet", "-e", show}, {env = {ACCELHOST_SHARE = "3:1"}})
    assert.same(run.everyone(2, "3:1\n"), run.by_rank(result.stdout), result.output)
    local file = os.tmpname() .. ".yaml"
    local out = assert(io.open(file, "w"))
    out:write "num_processes: 2\nshare: 1:4\n"
    out:close()
    result = run.host {"launch", "--config_file", file, "-e", show}
    os.remove(file)
    assert.same(run.everyone(2, "1:4\n"), run.by_rank(result.stdout), result.output)
    assert.equal("none\n", run.host({"-e", show}).stdout)
    result = run.host({"-e", show}, {env = {ACCELHOST_SHARE = "3:1"}})
    assert.equal(1, result.code)
    assert.matches("share (from ACCELHOST_SHARE): 3:1 is for 2 processes, this job has 1", result.stderr, nil, true)
    result = run.host({"-e", show}, {env = {ACCELHOST_SHARE = "0:1"}})
    assert.matches("expected whole numbers above 0 with colons between them, got '0:1'", result.stderr, nil, true)
  end)
end)

describe("launch --share on several machines", function()
  local hosts = require "spec.support.hosts"
  if hosts.missing() then
    it("runs on test hosts", function() pending(hosts.missing()) end)
    return
  end
  local show = [[-e 'print("share", table.concat(require "accelhost".Accelerator().share, ":"))']]
  local function launch(first, second)
    return hosts.run(2, ([[
      launch() { k=$1; shift; on $k launch --num_machines 2 --main_process_ip node1 --secret_file none "$@"; }
      launch 1 %s & launch 2 %s & wait]]):format(first .. " " .. show, second .. " " .. show), {timeout = 40})
  end

  it("assigns each machine its share, and its ranks equal parts of it", function()
    local result = launch("--machine_rank 0 --nproc_per_node 1 --share 2:1",
      "--machine_rank 1 --nproc_per_node 2 --share 2:1")
    for node = 1, 2 do
      local said, code = hosts.said(result, node)
      assert.equal(0, code, result.output)
      assert.matches("share\t4:1:1\n", said)
      assert.matches("accelhost launch: the machines share each global batch 2:1\n", said)
    end
  end)

  it("refuses settings that differ between machines, and a wrong number", function()
    local result = launch("--num_processes 2 --share 2:1", "--num_processes 2 --share 1:2")
    assert.matches("share: rank 1 has 1:2, rank 0 has 2:1", result.stdout, nil, true)
    result = launch("--num_processes 2 --share 2:1:1", "--num_processes 2 --share 2:1:1")
    assert.matches("2:1:1 is for 3 ranks or machines, but the job has 2 ranks on 2 machines", result.stdout, nil, true)
  end)
end)

describe("Proportions", function()
  it("sum up, and assign the remainder to the ranks that lost most, of equal ones to the lower rank", function()
    assert.same({7, 3}, proportions.split(10, {2, 1}))
    assert.same({4, 3, 3}, proportions.split(10, {1, 1, 1}))
    assert.same({3, 4, 3}, proportions.split(10, {3, 4, 3}))
    assert.same({2, 5, 4}, proportions.split(11, {1, 3, 2}))
    assert.same({0, 0}, proportions.split(0, {5, 1}))
    for total = 0, 40 do
      local sum = 0
      for _, count in ipairs(proportions.split(total, {3, 1, 5, 2})) do sum = sum + count end
      assert.equal(total, sum)
    end
  end)
end)
