--- A job that this session has started and waits for: its output is shown as `launch` shows it, and the signals that
--- reach this process are the job's until it has ended.
local C = require "accelhost._C"
local protect = require "accelhost.util.protect"

local function handle_signal(job, name, seen)
  if name == "TSTP" then
    job:suspend()
    C.job.raise "STOP"
    job:resume()
  else
    job:signal(name)
    if name ~= "USR1" and name ~= "USR2" then seen.signal = seen.signal or name end
  end
end

local function run(job, seen, on_message)
  repeat
    for _, event in ipairs(C.job.wait({job})) do
      if event.kind == "signal" then handle_signal(job, event.name, seen)
      elseif event.kind == "message" then on_message(event.rank, event.text)
      elseif event.kind == "notice" then io.stderr:write(event.text)
      end
    end
  until job:exit_code()
  -- After the end only events that have been gathered remain.
  for _, event in ipairs(C.job.wait({job}, 0)) do
    if event.kind == "message" then on_message(event.rank, event.text) end
  end
  return job:exit_code()
end

--- Wait for the end of a job and close it. A signal that ended it reaches this process then.
---@param job userdata
---@param on_message fun(rank: integer, text: string)
---@return integer code as `launch` ends with
---@return string report lines that describe the failure
return function(job, on_message)
  local seen, report = {}, ""
  C.job.watch_signals("INT", "TERM", "HUP", "TSTP", "USR1", "USR2")
  local code = protect(function()
    C.job.watch_signals()
    if job:exit_code() then report = job:report() end
    job:close()
    if seen.signal then C.job.raise(seen.signal) end
  end, run, job, seen, on_message)
  return code, report
end
