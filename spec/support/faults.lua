--- Functions that the programs of spec/faults share: background jobs, signals at moments they choose, a tally.
local ffi = require "ffi"
local run = require "spec.support.run"

ffi.cdef [[
int kill(int pid, int signal);
int usleep(unsigned int microseconds);
struct fault_time { long seconds, nanoseconds; };
int clock_gettime(int clock, struct fault_time *time);
]]

local faults = {signals = {HUP = 1, INT = 2, ABRT = 6, BUS = 7, KILL = 9, SEGV = 11, TERM = 15, CONT = 18, STOP = 19}}

--- Seconds of a clock that only goes forward.
function faults.now()
  local time = ffi.new("struct fault_time")
  ffi.C.clock_gettime(1, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

--- Do nothing for some seconds.
function faults.sleep(seconds) ffi.C.usleep(math.floor(seconds * 1e6)) end

--- Send a signal, by its name; false when there is no such process.
function faults.signal(pid, name) return ffi.C.kill(pid, faults.signals[name]) == 0 end

--- Report whether a process exists and has not ended.
function faults.is_alive(pid)
  local file = io.open("/proc/" .. pid .. "/stat")
  if not file then return false end
  local state = (file:read("*a") or ""):match("%) (%a)") -- it may end between opening and reading
  file:close()
  return state ~= nil and state ~= "Z" and state ~= "X"
end

--- The ranks that a launcher has started so far: a list of {pid, rank}; rank is nil before it has become one.
function faults.ranks_of(launcher)
  local list = {}
  local file = io.open(("/proc/%d/task/%d/children"):format(launcher, launcher))
  for pid in (file and file:read("*a") or ""):gmatch("%d+") do
    local comm, environ = io.open("/proc/" .. pid .. "/comm"), io.open("/proc/" .. pid .. "/environ")
    if comm and environ and not comm:read("*a"):find("^ah%-reaper") then
      local text = "\0" .. (environ:read("*a") or "")
      list[#list + 1] = {pid = tonumber(pid), rank = tonumber(text:match("%zACCELHOST_CONTROL_BLOCK=.*%zRANK=(%d+)")
        or text:match("%zRANK=(%d+).*%zACCELHOST_CONTROL_BLOCK="))}
    end
    if comm then comm:close() end
    if environ then environ:close() end
  end
  if file then file:close() end
  return list
end

--- Start a command of the shell that names the host "$0"; `job.pid` is the process that it becomes.
---@return table job with a pipe to read its output on both streams
function faults.start(command, ...)
  local words = {("sh -c %s %s"):format(run.quote("echo $$; exec " .. command), run.quote(run.path))}
  for _, word in ipairs {...} do words[#words + 1] = run.quote(word) end
  local job = {pipe = io.popen("{ " .. table.concat(words, " ") .. "; echo \"=$?\"; } 2>&1"), began = faults.now()}
  job.pid = job.pipe:read("*n")
  job.pipe:read("*l")
  return job
end

--- Read up to a line; false when the job ended before.
function faults.await(job, wanted)
  job.text = job.text or ""
  for line in job.pipe:lines() do
    job.text = job.text .. line .. "\n"
    if line:find(wanted, 1, true) then return true end
  end
  return false
end

--- Wait for the end; sets job.text, job.code (128 + n for a signal) and job.seconds.
function faults.finish(job)
  local text = (job.text or "") .. job.pipe:read("*a")
  job.pipe:close()
  job.seconds = faults.now() - job.began
  job.text, job.code = text:match("^(.*)=(%d+)\n$")
  job.code = tonumber(job.code)
  return job
end

--- Return the number of faults to make: $N, else `default`.
function faults.count(default) return tonumber(os.getenv("N") or "") or default end

--- A tally of trials by kind. `tally:add(kind, problem, job)` counts one, `problem` nil when all was well; the first
--- problems are printed. `tally:conclude()` prints a line for each kind and ends the program.
function faults.tally()
  local tally, kinds, bad, worst = {}, {}, 0, {}
  local counts = {}
  function tally:add(kind, problem, job)
    if not counts[kind] then
      kinds[#kinds + 1] = kind
      counts[kind] = {good = 0, bad = 0}
    end
    local count = counts[kind]
    count[problem and "bad" or "good"] = count[problem and "bad" or "good"] + 1
    worst[kind] = math.max(worst[kind] or 0, job.ending or job.seconds or 0)
    if problem then
      bad = bad + 1
      if bad <= 10 then print(("%s: %s\n  code %s, %s"):format(kind, problem, job.code, job.text)) end
    end
  end
  function tally:conclude()
    for _, kind in ipairs(kinds) do
      print(("%-28s %4d as it should, %d not; slowest end %.2f s"):format(kind, counts[kind].good, counts[kind].bad,
        worst[kind]))
    end
    os.exit(bad == 0)
  end
  return tally
end

return faults
