-- A Trainer's job is killed by SIGKILL at random moments, 20 times in a row, and resumes each time from the newest
-- checkpoint: in the end its files, weights, losses of every log and predictions have to equal those of an undisturbed
-- run. In one process and in two, where a rank or the launcher is killed. $N: how many kills in a row.
local faults = require "spec.support.faults"
local folder = require "spec.support.folder"
local lfs = require "lfs"

local seed = tonumber(os.getenv "SEED") or 1
math.randomseed(seed)
local wanted = faults.count(20)
local tally = faults.tally()

local function has_checkpoint(dir)
  if not lfs.attributes(dir .. "/run") then return false end
  for name in lfs.dir(dir .. "/run") do
    if name:find "^checkpoint%-" then return true end
  end
  return false
end

local function start(ranks, dir)
  local launch = ranks > 1 and ("launch --num_processes %d"):format(ranks) or "run"
  return faults.start(('"$0" %s spec/trainer/cases/regression.lua --out %s/out.json --output_dir %s/run %s%s'):format(
    launch, dir, dir, "--rows 200 --save_steps 7 --eval_strategy steps --eval_steps 10 --save_total_limit 2 "
    .. "--gradient_accumulation_steps 2 --num_train_epochs 6", has_checkpoint(dir) and " --resume_newest" or ""))
end

local function result(dir)
  local file = io.open(dir .. "/out.json")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

local function kill(job, ranks)
  local all = ranks > 1 and faults.ranks_of(job.pid) or {}
  local victim = #all > 0 and math.random() < 0.7 and all[math.random(#all)].pid or job.pid
  local killed = faults.signal(victim, "KILL")
  faults.finish(job)
  for _, rank in ipairs(all) do
    for _ = 1, 200 do
      if not faults.is_alive(rank.pid) then break end
      faults.sleep(0.01)
    end
  end
  return killed and job.code ~= 0
end

for _, ranks in ipairs {1, 2} do
  local calm, dir = folder.make(), folder.make()
  local undisturbed = faults.finish(start(ranks, calm))
  local expected, kills, job = result(calm), 0
  if not expected then
    print("the undisturbed run failed:\n" .. undisturbed.text)
    os.exit(1)
  end
  -- A run that ends before all kills are made restarts.
  local problem
  while kills < wanted do
    job = start(ranks, dir)
    local until_ = faults.now() + math.random() * undisturbed.seconds * 0.6
    while faults.now() < until_ and faults.is_alive(job.pid) do faults.sleep(0.0005) end
    if kill(job, ranks) then
      kills = kills + 1
    elseif job.code == 0 then
      problem = problem or result(dir) ~= expected and "other results in between" or nil
      folder.remove(dir)
      dir = folder.make()
    end
  end
  job = faults.finish(start(ranks, dir))
  problem = problem or result(dir) ~= expected and "other results than the undisturbed run" or nil
  tally:add(("%d process%s, %d kills"):format(ranks, ranks == 1 and "" or "es", kills), problem, job)
  folder.remove(calm)
  folder.remove(dir)
end
tally:conclude()
