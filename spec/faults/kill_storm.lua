-- Ranks are killed at random moments of every phase of a job; each time the launcher ends soon, with code 3, names the
-- rank, and leaves nothing behind. $N: how many kills.
local faults = require "spec.support.faults"

local phases = {"start", "prepare", "training", "barrier", "evaluation", "exit"}
local signals = {"KILL", "KILL", "KILL", "SEGV", "ABRT", "BUS"}
local tally = faults.tally()
math.randomseed(tonumber(os.getenv("SEED") or "1"))

-- Return the error in a job's end, or nil.
local function judge(job, victim, signal, all)
  if job.ending > 5 then return "exceeded 5 s to end" end
  if job.code == 0 then
    -- It had ended before the signal arrived.
    return not job.text:find("phase exit", 1, true) and "ended with 0" or nil
  end
  if job.code ~= 3 then return "ended with another code" end
  local named = job.text:match("rank (%d+) was killed by SIG" .. signal)
  if not named then return "the kill was not reported" end
  if victim.rank and tonumber(named) ~= victim.rank then return "rank " .. victim.rank .. " was killed" end
  for _, rank in ipairs(all) do
    if faults.is_alive(rank.pid) then return "a rank was left" end
  end
end

local function trial(phase)
  local ranks, signal = math.random(2, 8), signals[math.random(#signals)]
  local job = faults.start('"$0" launch --num_processes ' .. ranks .. " --timeout 20 spec/faults/cases/train.lua")
  if phase == "start" then
    faults.sleep(math.random() * 0.06)
  elseif faults.await(job, "phase " .. phase) then
    faults.sleep(math.random() * 0.03)
  end
  local all = {}
  for _, rank in ipairs(faults.ranks_of(job.pid)) do
    if faults.is_alive(rank.pid) then all[#all + 1] = rank end
  end
  local victim = all[math.random(math.max(1, #all))]
  local killed = victim and faults.signal(victim.pid, signal)
  local then_ns = faults.now()
  faults.finish(job)
  job.ending = faults.now() - then_ns
  if not killed then return false end -- nothing was there to be killed
  tally:add(phase, judge(job, victim, signal, all), job)
  return true
end

local wanted, done, tried = faults.count(1000), 0, 0
while done < wanted and tried < 3 * wanted do
  tried = tried + 1
  if trial(phases[tried % #phases + 1]) then done = done + 1 end
end
tally:conclude()
