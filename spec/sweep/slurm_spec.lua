-- Sweeps whose trials are Slurm's jobs, on a cluster of this machine alone.
local C = require "accelhost._C"
local faults = require "spec.support.faults"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local slurm = require "spec.support.slurm"

local function rows(sql, study)
  local db = C.sqlite.open((study or "s.study") .. "/study.db", "read")
  local result = db:execute(sql)
  db:close()
  return result
end

local function await(what)
  local until_ = faults.now() + 60
  while not what() do
    assert(faults.now() < until_, "the time limit has passed")
    faults.sleep(0.05)
  end
end

local train = [[
  local accelhost = require "accelhost"
  local args = accelhost.args{lr = 0.1, steps = 4, pause = 0}
  local accelerator = accelhost.Accelerator{project_config = {project_dir = ".", automatic_checkpoint_naming = true,
    total_limit = 2}}
  local progress = {step = 0}
  function progress:state_dict() return {step = self.step} end
  function progress:load_state_dict(state) self.step = state.step end
  accelerator:register_for_checkpointing(progress)
  accelerator:load_state()
  accelerator:print("begins at", progress.step)
  while progress.step < args.steps and not io.open "go" do
    progress.step = progress.step + 1
    os.execute("sleep " .. args.pause)
    local sum = accelerator:reduce(accelhost.tensor(args.lr)):item()
    accelerator:save_state()
    accelhost.report(progress.step, {loss = sum / progress.step})
  end]]

describe("A sweep on Slurm", function()
  local cluster, reason, leave
  setup(function()
    if pcall(C.sqlite.open, ":memory:") then
      cluster, reason = slurm.start()
    else
      reason = "needs accelhost-sqlite.so"
    end
  end)
  teardown(function() if cluster then cluster.stop() end end)
  before_each(function()
    leave = folder.enter()
    write("train.lua", train)
  end)
  after_each(function() leave() end)

  -- A sentence that needs the cluster.
  local function on_slurm(sentence, test)
    it(sentence, function()
      if not cluster then return pending(reason) end
      test()
    end)
  end

  local function define(fields)
    write("s.lua", [[local sweep = require "accelhost".sweep
      return {sampler = "random", space = {lr = sweep.uniform(0, 1)}, ]] .. fields .. "}")
  end

  local function sweep(...)
    return run.host({"sweep", "s.lua", ...}, {timeout = 120, env = cluster.env})
  end

  local function start()
    return faults.start(("env SLURM_CONF=%s \"$0\" sweep s.lua --launcher slurm"):format(cluster.env.SLURM_CONF))
  end

  on_slurm("has the results of a sweep without Slurm, with gangs and a pruner", function()
    define [[script = "train.lua", trials = 4, num_processes = 2, parallel = 1,
      pruner = {"median", n_startup_trials = 1}]]
    local result = sweep("--launcher", "slurm")
    assert.equal(0, result.code, result.output)
    assert.equal(0, sweep("--study", "here.study").code)
    for _, sql in ipairs {"SELECT number, state, params, value FROM trial", "SELECT trial, step, value FROM report"} do
      assert.same(rows(sql, "here.study"), rows(sql))
    end
    assert.is_true(#rows "SELECT * FROM trial WHERE state = 'pruned'" > 0)
  end)

  on_slurm("keeps the output and the traceback of a trial that fails", function()
    define [[trials = 1, parallel = 1, slurm = {partition = "main"}, objective = function()
      print "printed this"
      error "broken"
    end]]
    assert.equal(1, sweep("--launcher", "slurm").code)
    assert.matches("s.lua:4: broken", rows "SELECT error FROM trial"[1].error)
    assert.matches("printed this", io.open("s.study/trials/0000/log.txt"):read "*a")
  end)

  on_slurm("reports sbatch's refusal", function()
    define [[trials = 1, parallel = 1, slurm = {partition = "none"}, objective = function() return 1 end]]
    local result = sweep("--launcher", "slurm")
    assert.equal(2, result.code)
    assert.matches("sbatch: .*invalid partition", result.stderr)
  end)

  on_slurm("counts a cancelled job as a failed trial", function()
    define [[trials = 1, parallel = 1, arguments = {"--steps", 1000, "--pause", 0.1}, script = "train.lua"]]
    local job = start()
    await(function() return io.open "s.study/trials/0000/slurm-0.job" and #rows "SELECT * FROM report" > 1 end)
    local number = io.open("s.study/trials/0000/slurm-0.job"):read "*a"
    os.execute(("SLURM_CONF=%s scancel %s"):format(cluster.env.SLURM_CONF, number))
    faults.finish(job)
    assert.equal(1, job.code, job.text)
    assert.equal(("Slurm's job %s was cancelled (scancel)"):format(number), rows "SELECT error FROM trial"[1].error)
  end)

  on_slurm("ends trials at a report when it is interrupted, and resumes them", function()
    define [[trials = 1, parallel = 1, arguments = {"--steps", 1000, "--pause", 0.1}, script = "train.lua"]]
    local job = start()
    await(function() return io.open "s.study/trials/0000/slurm-0.job" and #rows "SELECT * FROM report" > 1 end)
    faults.signal(job.pid, "INT")
    faults.finish(job)
    assert.equal(130, job.code, job.text)
    local last = rows "SELECT max(step) AS step FROM report"[1].step
    write("go", "")
    assert.equal(0, sweep("--launcher", "slurm").code)
    assert.matches("begins at\t0\n.*begins at\t" .. last .. "\n$", io.open("s.study/trials/0000/log.txt"):read "*a")
  end)

  on_slurm("reads, after it was killed, its trials' reports since, and resumes", function()
    define [[trials = 1, parallel = 1, arguments = {"--steps", 1000, "--pause", 0.1}, script = "train.lua"]]
    local job = start()
    await(function() return io.open "s.study/trials/0000/slurm-0.job" and #rows "SELECT * FROM report" > 1 end)
    faults.signal(job.pid, "KILL")
    faults.finish(job)
    local told = rows "SELECT max(step) AS step FROM report"[1].step
    await(function()
      local _, lines = io.open("s.study/trials/0000/slurm-0.messages"):read "*a":gsub("report", "")
      return lines > told + 3
    end)
    write("go", "")
    local result = sweep("--launcher", "slurm")
    assert.equal(0, result.code, result.output)
    local steps = rows "SELECT step FROM report ORDER BY step"
    assert.is_true(#steps > told + 2)
    for i, row in ipairs(steps) do assert.equal(i, row.step) end
    -- It may have been ended between a checkpoint and its report.
    local began = tonumber(io.open("s.study/trials/0000/log.txt"):read "*a":match "begins at\t(%d+)\n$")
    assert.is_true(began == #steps or began == #steps + 1)
  end)
end)
