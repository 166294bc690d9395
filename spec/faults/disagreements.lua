-- Ranks that disagree: after some calls that all make alike, one rank does something else than the others. Every job
-- must end at once with 3, name the difference and the ranks, and leave no rank waiting. $N: number of jobs.
local binary = assert(os.getenv("ACCELHOST_BINARY"), "ACCELHOST_BINARY: make test-faults sets it")
local count = tonumber(os.getenv("N") or "") or 200

-- Calls that no other in the list agrees with, then other disagreements. `text`: a part of the report.
local acts = {
  {"comm.all_reduce(accelhost.ones(10))"},
  {"comm.all_reduce(accelhost.ones(2, 5))"},
  {"comm.all_reduce(accelhost.ones(10), 'mean')"},
  {"comm.all_reduce(accelhost.ones(10):double())"},
  {"comm.all_reduce(accelhost.ones(9))"},
  {"comm.all_reduce(accelhost.ones(50000))"},
  {"comm.all_reduce_async(accelhost.ones(10)):wait()"},
  {"comm.all_gather_async(accelhost.ones(10)):wait()"},
  {"comm.broadcast(accelhost.ones(10), 0)"},
  {"comm.broadcast(accelhost.ones(10), 1)"},
  {"comm.all_gather(accelhost.ones(10))"},
  {"comm.all_gather_ragged(accelhost.ones(rank + 1, 3))"},
  {"comm.gather(accelhost.ones(10), 0)"},
  {"comm.reduce_scatter(accelhost.ones(60))"},
  {"comm.all_to_all(accelhost.ones(60))"},
  {"comm.collective('reduce', accelhost.ones(10), accelhost.ones(10), {root = 0})"},
  {"comm.collective('broadcast', accelhost.ones(10), accelhost.ones(10), {root = 0, async = true}):wait()"},
  {"comm.collective('all_reduce', accelhost.ones(10):int(), accelhost.ones(10):int(), {op = 'or'})"},
  {"comm.collective('monitored_barrier', nil, nil, {all = true})"},
  {"comm.barrier()"},
  {"comm.split(0)"},
  {"comm.new_reducer({accelhost.ones(3)}, {})"},
  {"error('on purpose')", text = "on purpose"},
  {"os.exit(0)", text = "ended without it"},
  {"os.exit(7)", text = "exited with code 7"},
  {"os.execute('kill -9 $PPID') while true do end", text = "was killed by SIGKILL"},
  {"os.execute('kill -SEGV $PPID') while true do end", text = "was killed by SIGSEGV"},
  {"pcall(comm.all_reduce, accelhost.ones(77)) pcall(comm.barrier)"},
}
local calls = 22

local state = 20240607
local function draw(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return 1 + math.floor(state / 65536) % n
end

local function run(ranks, odd, common, other, before)
  local script = ([[
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local rank = comm.rank()
for i = 1, %d do comm.all_reduce(accelhost.ones(i * 700)) end
if rank == %d then %s else %s end
comm.barrier()]]):format(before, odd, other, common)
  local pipe = assert(io.popen(("timeout -s KILL 30 '%s' launch --num_processes %d --timeout 20 -e '%s' 2>&1; echo =$?")
    :format(binary, ranks, script:gsub("'", "'\\''"))))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.*)=(%d+)\n$")
  return tonumber(code), output
end

local failures = 0
for i = 1, count do
  local ranks, common, other = ({2, 3, 4, 5})[draw(4)], draw(calls), draw(#acts)
  if common == other then other = other % #acts + 1 end
  local odd = draw(ranks) - 1
  local code, output = run(ranks, odd, acts[common][1], acts[other][1], draw(6) - 1)
  local text = acts[other].text or " differs: "
  if code ~= 3 or not output:find(text, 1, true) or output:find("timed out", 1, true) then
    failures = failures + 1
    print(("FAILED job %d, %d ranks: rank %d does %s, the others %s: status %d: %s"):format(i, ranks, odd,
      acts[other][1], acts[common][1], code, output:sub(1, 600)))
  end
end
print(("%d of %d disagreements were named"):format(count - failures, count))
os.exit(failures == 0 and 0 or 1)
