-- Jobs are suspended, as a whole for longer than a collective may last, or in one rank for less, and continue: time in
-- which a process did not run does not count. $N: how many times.
local faults = require "spec.support.faults"

local tally = faults.tally()
math.randomseed(1)

local function signal_all(list, name)
  for _, rank in ipairs(list) do faults.signal(rank.pid, name) end
end

for n = 1, faults.count(20) do
  local whole = n % 2 == 0
  local job = faults.start('"$0" launch --num_processes ' .. math.random(2, 4) ..
    " --timeout 1 spec/faults/cases/train.lua 0.2")
  faults.await(job, ({"phase prepare", "phase training", "phase barrier", "phase evaluation"})[n % 4 + 1])
  faults.sleep(math.random() * 0.1)
  local ranks = faults.ranks_of(job.pid)
  if whole then
    -- As a batch system does it.
    table.insert(ranks, 1, {pid = job.pid})
    signal_all(ranks, "STOP")
    faults.sleep(1.5)
    signal_all(ranks, "CONT")
  else
    faults.signal(job.pid, "CONT")
    signal_all({ranks[math.random(#ranks)]}, "STOP")
    faults.sleep(0.4)
    signal_all(ranks, "CONT")
  end
  faults.finish(job)
  local well = job.code == 0 and job.text:find("phase exit", 1, true)
  tally:add(whole and "the whole job, 1.5 s" or "one rank, 0.4 s", not well and "did not continue" or nil, job)
end
tally:conclude()
