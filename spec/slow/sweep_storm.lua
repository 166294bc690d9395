-- A sweep is killed by SIGKILL over and over, at random moments: its own process, and its trials. Each time
-- the same command resumes it. In the end the study has to equal one of an undisturbed sweep: the same trials with
-- the same parameters, reports and values, none twice, none left over. $N: how many kills of the first study; $SEED.
local C = require "accelhost._C"
local faults = require "spec.support.faults"
local folder = require "spec.support.folder"

local seed = tonumber(os.getenv "SEED") or 1
math.randomseed(seed)
local wanted = faults.count(30)
local tally = faults.tally()

local definition = [[
  local sweep = require "accelhost".sweep
  return {script = "%s/spec/slow/cases/sweep_train.lua", sampler = "random", seed = 3, trials = %d, retries = 1000,
    threads = 1, %s,
    space = {lr = sweep.log_uniform(1e-3, 1e-1), width = sweep.choice{4, 8, 16}, epochs = 5}}]]

-- As many trials as keep a sweep busy while it is killed so often.
local function write_definition(path, case)
  local handle = assert(io.open(path, "w"))
  handle:write(definition:format(C.system.working_folder(), math.max(12, 3 * case.kills), case.fields))
  handle:close()
end

local function command(path) return ('"$0" sweep %s/storm.lua --study %s/study --quiet'):format(path, path) end

local function ask(path, sql)
  local db = C.sqlite.open(path .. "/study/study.db", "read")
  local rows = db:execute(sql)
  db:close()
  return rows
end

-- Return the outcome of a sweep, which may not depend on the number of disturbances.
local function outcome(path)
  local lines = {}
  for _, row in ipairs(ask(path, "SELECT number, state, params, value FROM trial ORDER BY number")) do
    lines[#lines + 1] = ("trial %d %s %s %.17g"):format(row.number, row.state, row.params, row.value or 0 / 0)
  end
  for _, row in ipairs(ask(path, "SELECT trial, step, value FROM report ORDER BY trial, step")) do
    lines[#lines + 1] = ("report %d %d %.17g"):format(row.trial, row.step, row.value)
  end
  return table.concat(lines, "\n")
end

local function is_study(path)
  local handle = io.open(path .. "/study/trials/0000/params.yaml")
  if handle then handle:close() end
  return handle ~= nil
end

-- Kill the sweep or one of its trials' ranks; return which.
local function kill(job)
  local ranks = faults.ranks_of(job.pid)
  local victim, what = job.pid, "sweep"
  if #ranks > 0 and math.random() < 0.6 then victim, what = ranks[math.random(#ranks)].pid, "trial" end
  if not faults.signal(victim, "KILL") then return nil end
  if what == "trial" then return what end
  faults.finish(job)
  for _, rank in ipairs(ranks) do
    for _ = 1, 300 do
      if not faults.is_alive(rank.pid) then break end
      faults.sleep(0.01)
    end
  end
  return what
end

local function storm(path, case)
  local died, runs, job = {sweep = 0, trial = 0}, 0, nil
  write_definition(path .. "/storm.lua", case)
  for _ = 1, 20 * case.kills + 300 do
    if not job then
      job, runs = faults.start(command(path)), runs + 1
      while faults.is_alive(job.pid) and not is_study(path) do faults.sleep(0.01) end
    end
    faults.sleep(math.random() * 0.5)
    if died.sweep + died.trial >= case.kills or not faults.is_alive(job.pid) then
      faults.finish(job)
      if job.code == 0 then break end
      job = nil
    else
      local what = kill(job)
      if what then died[what] = died[what] + 1 end
      if what == "sweep" then job = nil end
    end
  end
  print(("%s: %d kills of the sweep, %d of trials, %d runs, seed %d"):format(case.name, died.sweep, died.trial, runs,
    seed))
  return job, died.sweep + died.trial
end

-- With one trial at a time the pruner's reports have one order, so its pauses and promotions are the same, too.
for _, case in ipairs {
  {name = "two at a time", kills = wanted, fields = "parallel = 2"},
  {name = "gangs of two", kills = math.ceil(wanted / 3), fields = "parallel = 2, num_processes = 2"},
  {name = "ASHA", kills = math.ceil(wanted / 3), fields = [[parallel = 1,
    pruner = {"asha", min_resource = 1, max_resource = 5, reduction_factor = 2}]]},
} do
  local calm, rough = folder.make(), folder.make()
  write_definition(calm .. "/storm.lua", case)
  local job = faults.finish(faults.start(command(calm)))
  local expected = outcome(calm)
  if job.code ~= 0 then
    print("the undisturbed sweep failed:\n" .. job.text)
    os.exit(1)
  end
  local kills
  job, kills = storm(rough, case)
  local found, problem = outcome(rough), nil
  if not job or job.code ~= 0 then
    problem = "did not end well"
  elseif kills < case.kills then
    problem = ("was through after %d kills of %d"):format(kills, case.kills)
  elseif found ~= expected then
    problem = ("holds\n%s\ninstead of\n%s"):format(found, expected)
  end
  tally:add(case.name, problem, job or {text = ""})
  folder.remove(calm)
  folder.remove(rough)
end
tally:conclude()
