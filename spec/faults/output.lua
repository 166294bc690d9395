-- Readers that stall, readers that leave, disks that are full: signals and failures are noticed all the same, and text
-- that could not be written is an error. $N: how many times each.
local faults = require "spec.support.faults"

local tally = faults.tally()
math.randomseed(1)
local flood = "while true do print(os.getenv('RANK') .. ('x'):rep(60)) end"

-- The job's output is not read: a fifo that a sleeping process holds open.
local function stalled(kind, act, expected)
  local fifo = os.tmpname()
  os.remove(fifo)
  os.execute("mkfifo " .. fifo)
  local holder = io.popen("sleep 1000 < " .. fifo .. " > /dev/null & echo $!")
  local holder_pid = holder:read("*n")
  holder:close()
  local job = faults.start('"$0" launch --num_processes ' .. math.random(2, 4) .. ' -e "$1" > ' .. fifo, flood)
  faults.sleep(0.2 + math.random() * 0.2)
  local began = faults.now()
  act(job)
  if expected == "report" then
    local told = faults.await(job, "was killed by SIGKILL")
    faults.signal(job.pid, "TERM")
    faults.finish(job)
    job.ending = faults.now() - began
    tally:add(kind, (not told or job.ending > 3) and "not reported" or nil, job)
  else
    faults.finish(job)
    job.ending = faults.now() - began
    tally:add(kind, (job.code ~= expected or job.ending > 3) and "did not end as it should" or nil, job)
  end
  faults.signal(holder_pid, "KILL")
  os.remove(fifo)
end

local count = faults.count(10)
for _ = 1, count do
  for _, name in ipairs {"INT", "TERM", "HUP"} do
    stalled("stalled reader, SIG" .. name, function(job) faults.signal(job.pid, name) end, 128 + faults.signals[name])
  end
  stalled("stalled reader, a rank dies", function(job)
    local ranks = faults.ranks_of(job.pid)
    faults.signal(ranks[math.random(#ranks)].pid, "KILL")
  end, "report")

  local lines, ranks = 10 ^ math.random(0, 5), math.random(2, 4)
  local some = ("for i = 1, %d do print(os.getenv('RANK'), i) end"):format(lines)
  local job = faults.finish(faults.start('"$0" launch --num_processes ' .. ranks .. ' -e "$1" > /dev/full', some))
  local told = job.text == "accelhost launch: cannot write the ranks' output: No space left on device\n"
  tally:add("full disk", (job.code ~= 3 or not told) and "not reported" or nil, job)

  job = faults.finish(faults.start('"$0" launch --num_processes ' .. ranks .. ' -e "$1" | head -1 > /dev/null', flood))
  tally:add("a reader that leaves", job.seconds > 5 and "exceeded 5 s" or nil, job)

  job = faults.finish(faults.start('"$0" launch --num_processes ' .. ranks .. ' -e "$1" | (sleep 0.3; wc -l)', some))
  tally:add("a slow reader", tonumber(job.text) ~= lines * ranks and "lost lines" or nil, job)
end
tally:conclude()
