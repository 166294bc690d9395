-- Sweeps that are interrupted, killed and resumed, and trials that are paused and promoted.
local C = require "accelhost._C"
local faults = require "spec.support.faults"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local read, write = files.read, files.write

if not pcall(C.sqlite.open, ":memory:") then
  return describe("An interrupted sweep", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

local function exists(name)
  local handle = io.open(name)
  if handle then handle:close() end
  return handle ~= nil
end

local function rows(sql)
  local db = C.sqlite.open("s.study/study.db", "read")
  local result = db:execute(sql)
  db:close()
  return result
end

local function await(what, seconds)
  local until_ = faults.now() + (seconds or 120)
  while not what() do
    assert(faults.now() < until_, "the time limit has passed")
    faults.sleep(0.02)
  end
end

local function count(sql) return rows("SELECT count(*) AS n FROM " .. sql)[1].n end

-- Reports a step each 20 ms until the file "go" is there; with its own checkpoint in the trial's folder.
local train = [[
  local accelhost = require "accelhost"
  local args = accelhost.args{lr = 0.1, ranks = 1}
  local accelerator = accelhost.Accelerator{project_config = {project_dir = ".", automatic_checkpoint_naming = true,
    total_limit = 2}}
  local progress = {step = 0}
  function progress:state_dict() return {step = self.step} end
  function progress:load_state_dict(state) self.step = state.step end
  accelerator:register_for_checkpointing(progress)
  accelerator:load_state()
  accelerator:print("begins at", progress.step)
  repeat
    progress.step = progress.step + 1
    local ends = accelerator:reduce(accelhost.tensor(io.open "go" and 1 or 0)):item() == args.ranks
    os.execute "sleep 0.02"
    accelerator:save_state()
    accelhost.report(progress.step, {loss = args.lr})
  until ends]]

describe("An interrupted sweep", function()
  local leave
  before_each(function()
    leave = folder.enter()
    write("train.lua", train)
  end)
  after_each(function() leave() end)

  local function define(fields)
    write("s.lua", [[local sweep = require "accelhost".sweep
      return {sampler = "random", script = "train.lua", space = {lr = sweep.uniform(0, 1)}, ]] .. fields .. "}")
  end

  for _, case in ipairs {
    {"of single processes", "trials = 2, parallel = 2", " -j 2 -n 2"},
    {"with a pruner", 'trials = 2, parallel = 2, pruner = "median"'},
    {"of gangs", "trials = 1, parallel = 1, num_processes = 2, arguments = {'--ranks', 2}"},
  } do
    it("ends trials " .. case[1] .. " at a report, and resumes them from their checkpoints", function()
      define(case[2])
      local trials = tonumber(case[2]:match "trials = (%d)")
      local words = case[3] or ""
      local job = faults.start('"$0" sweep s.lua' .. words)
      await(function() return exists "s.study/trials/0000/params.yaml" and count "report WHERE step = 3" == trials end)
      faults.signal(job.pid, "INT")
      faults.finish(job)
      assert.equal(130, job.code, job.text)
      assert.matches("interrupted: %d trials? will end at the next report", job.text)
      assert.matches("\naccelhost sweep: to continue: accelhost sweep s.lua --study s.study" .. words .. "\n",
        job.text, 1, true)
      assert.equal(trials, count "trial WHERE state = 'waiting'")
      local before = rows "SELECT number, params FROM trial"
      local last = rows "SELECT max(step) AS step FROM report WHERE trial = 0"[1].step
      write("go", "")
      local result = run.host({"sweep", "s.lua"}, {timeout = 60})
      assert.equal(0, result.code, result.output)
      assert.equal(trials, count "trial WHERE state = 'complete'")
      assert.same(before, rows "SELECT number, params FROM trial")
      local log = read "s.study/trials/0000/log.txt"
      assert.matches("^%S*%s*begins at\t0\n%S*%s*begins at\t" .. last .. "\n", log)
      assert.equal(count "report", count "(SELECT DISTINCT trial, step FROM report)")
    end)
  end

  it("ends at once when it is interrupted twice", function()
    write("s.lua", [[local sweep = require "accelhost".sweep
      return {sampler = "random", trials = 1, space = {lr = sweep.uniform(0, 1)}, objective = function(trial)
        io.open("begun", "w"):close()
        while not io.open "go" do os.execute "sleep 0.05" end
        return trial.params.lr
      end}]])
    local job = faults.start '"$0" sweep s.lua'
    await(function() return exists "begun" end)
    faults.signal(job.pid, "INT")
    assert.is_true(faults.await(job, "will end at the next report"))
    assert.is_true(faults.is_alive(job.pid))
    local ranks = faults.ranks_of(job.pid)
    faults.signal(job.pid, "INT")
    faults.finish(job)
    assert.equal(130, job.code, job.text)
    for _, rank in ipairs(ranks) do assert.is_false(faults.is_alive(rank.pid)) end
    assert.equal(1, count "trial WHERE state = 'waiting'")
    write("go", "")
    assert.equal(0, run.host({"sweep", "s.lua"}, {timeout = 60}).code)
  end)

  it("ends its trials when it is killed, and loses no report", function()
    define "trials = 2, parallel = 2"
    local job = faults.start '"$0" sweep s.lua'
    await(function() return exists "s.study/trials/0000/params.yaml" and count "report WHERE step = 2" == 2 end)
    local ranks = faults.ranks_of(job.pid)
    assert.equal(2, #ranks)
    faults.signal(job.pid, "KILL")
    faults.finish(job)
    for _, rank in ipairs(ranks) do await(function() return not faults.is_alive(rank.pid) end) end
    local status = run.host {"sweep", "status", "s.study"}
    assert.matches("2 waiting", status.stdout)
    local told = rows "SELECT trial, step, value FROM report ORDER BY trial, step"
    write("go", "")
    assert.equal(0, run.host({"sweep", "s.lua"}, {timeout = 60}).code)
    local now = rows "SELECT trial, step, value FROM report ORDER BY trial, step"
    local seen = {}
    for _, row in ipairs(now) do seen[row.trial .. ":" .. row.step] = row.value end
    for _, row in ipairs(told) do assert.equal(row.value, seen[row.trial .. ":" .. row.step]) end
    assert.equal(2, count "trial WHERE state = 'complete'")
  end)
end)

describe("A trial that is paused", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  local function script(loads)
    write("train.lua", ([[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator{project_config = {project_dir = "run",
        automatic_checkpoint_naming = true}}
      local progress = {epoch = 0}
      function progress:state_dict() return {epoch = self.epoch} end
      function progress:load_state_dict(state) self.epoch = state.epoch end
      accelerator:register_for_checkpointing(progress)
      %s
      print("begins at", progress.epoch)
      while progress.epoch < 9 do
        progress.epoch = progress.epoch + 1
        %s
        accelhost.report(progress.epoch, {loss = args.lr / progress.epoch})
      end]]):format(loads and "accelerator:load_state()" or "", loads and "accelerator:save_state()" or ""))
    write("s.lua", [[local sweep = require "accelhost".sweep
      return {script = "train.lua", sampler = "random", trials = 9, parallel = 1,
        pruner = {"asha", min_resource = 1, max_resource = 9, reduction_factor = 3},
        space = {lr = sweep.uniform(0, 1)}}]])
  end

  it("resumes from its checkpoint when it is promoted", function()
    script(true)
    local result = run.host({"sweep", "s.lua"}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    assert.is_true(count "event WHERE kind = 'pause'" > 3)
    assert.is_true(count "event WHERE kind = 'promote'" > 0)
    assert.equal(0, count "trial WHERE state IN ('running', 'waiting')")
    local promoted = rows "SELECT trial FROM event WHERE kind = 'promote'"[1].trial
    assert.matches("^begins at\t0\nbegins at\t1\n", read(("s.study/trials/%04d/log.txt"):format(promoted)))
    assert.equal(count "report", count "(SELECT DISTINCT trial, step FROM report)")
  end)

  it("is neither lost nor run twice when the sweep is interrupted again and again", function()
    script(true)
    assert.equal(0, run.host({"sweep", "s.lua", "--study", "calm.study"}, {timeout = 60}).code)
    local runs, job = 0
    repeat
      job, runs = faults.start '"$0" sweep s.lua --quiet', runs + 1
      await(function()
        return not faults.is_alive(job.pid)
          or exists "s.study/trials/0000/params.yaml" and count "report" >= 3 * runs
      end)
      if faults.is_alive(job.pid) then faults.signal(job.pid, "INT") end
      faults.finish(job)
      assert.is_true(job.code == 130 or job.code == 0, job.text)
    until job.code == 0
    assert.is_true(runs > 2)
    local sql = "SELECT trial, step, value, answer FROM event WHERE kind = 'report' ORDER BY id"
    local found = rows(sql)
    local db = C.sqlite.open("calm.study/study.db", "read")
    assert.same(db:execute(sql), found)
    db:close()
  end)

  it("restarts when its script saves nothing, which is reported once", function()
    script(false)
    local result = run.host({"sweep", "s.lua"}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    local _, said = result.stdout:gsub("has saved no checkpoint, so it starts from the beginning", "")
    assert.equal(1, said)
  end)

  it("runs to its end when all have begun and it is the best, so that a sweep has a result", function()
    script(true)
    local result = run.host({"sweep", "s.lua", "-n", "6"}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    assert.equal(1, count "trial WHERE state = 'complete'")
    assert.equal(5, count "trial WHERE state = 'paused'")
    local released = rows "SELECT trial FROM event WHERE kind = 'release'"
    assert.equal(1, #released)
    local best = rows "SELECT number, value FROM trial WHERE state = 'complete'"[1]
    assert.equal(released[1].trial, best.number)
    local furthest = rows "SELECT trial FROM report WHERE step > 1 AND step <= 3 GROUP BY trial HAVING max(step) = 3"
    assert.equal(best.number, furthest[1].trial)
    assert.equal(9, count(("report WHERE trial = %d"):format(best.number)))
  end)

  it("is replayed from the study's file to the same decisions", function()
    script(true)
    assert.equal(0, run.host({"sweep", "s.lua", "-n", "6"}, {timeout = 60}).code)
    assert.equal(0, run.host({"sweep", "s.lua", "-n", "9"}, {timeout = 60}).code)
    local params = rows "SELECT params FROM trial ORDER BY number"
    assert.equal(9, #params)
    assert.equal(1, count "event WHERE kind = 'release'")
    assert.equal(0, count "trial WHERE state IN ('running', 'waiting')")
    leave()
    leave = folder.enter()
    script(true)
    assert.equal(0, run.host({"sweep", "s.lua", "-n", "9"}, {timeout = 60}).code)
    assert.same(params, rows "SELECT params FROM trial ORDER BY number")
  end)
end)
