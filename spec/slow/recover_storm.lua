-- The ranks of the checkpointing example, run under --recover live, are killed by SIGKILL one after the other at random
-- moments, 50 times in one run: each is replaced in less than a second, and the weights are those of a run that was not
-- disturbed. In two processes and in four. $N: how many kills.
local faults = require "spec.support.faults"
local folder = require "spec.support.folder"

local seed = tonumber(os.getenv "SEED") or 1
math.randomseed(seed)
local wanted = faults.count(50)
local tally = faults.tally()

-- A run is as long as its passes, of which there are to be enough for all kills.
local function start(ranks, dir, passes, options)
  return faults.start(("\"$0\" launch --num_processes %d %s examples/by_feature/checkpointing.lua --resume "
    .. "--project_dir %s/run --save_every 1000000 --train_size 256 --epochs %d"):format(ranks, options, dir, passes))
end

local function storm(ranks, dir, passes)
  local job, kills = start(ranks, dir, passes, ("--recover live --max_restarts %d"):format(wanted)), 0
  while kills < wanted and faults.is_alive(job.pid) do
    faults.sleep(0.02 + 0.3 * math.random())
    local all = faults.ranks_of(job.pid)
    if #all > 0 and faults.signal(all[math.random(#all)].pid, "KILL") then kills = kills + 1 end
  end
  return faults.finish(job), kills
end

for _, ranks in ipairs {2, 4} do
  local dir, passes = folder.make(), 2 * wanted
  local job, kills, slowest = nil, 0, 0
  while kills < wanted do
    job, kills = storm(ranks, dir, passes)
    if kills < wanted and job.code ~= 0 then break end
    if kills < wanted then passes = 2 * passes end
  end
  for seconds in job.text:gmatch "replaced in ([%d.]+) s" do slowest = math.max(slowest, tonumber(seconds)) end
  local calm = faults.finish(start(ranks, dir, passes, ""))
  local weights = job.text:match "weights: (%x+)"
  local problem = job.code ~= 0 and "it failed" or slowest >= 1 and ("replaced in %.2f s"):format(slowest)
    or (not weights or weights ~= calm.text:match "weights: (%x+)") and "other weights than the undisturbed run" or nil
  tally:add(("%d ranks, %d kills, replaced in at most %.2f s"):format(ranks, kills, slowest), problem, job)
  folder.remove(dir)
end
tally:conclude()
