--- Training steps that are timed.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now

local timing = {}

--- Return the median of a list, which is sorted by this.
function timing.median(times)
  table.sort(times)
  return times[math.floor(#times / 2) + 1]
end

--- Print the medians of a step's processor time and elapsed time in ms, of `count` steps after one that does not count,
--- and the peak of the resident memory in MiB.
function timing.steps(count, step)
  local busy, elapsed = {}, {}
  for i = 0, count do
    local begin, start = os.clock(), now()
    step()
    if i > 0 then busy[i], elapsed[i] = os.clock() - begin, now() - start end
  end
  print("step_ms", 1e3 * timing.median(busy))
  print("step_elapsed_ms", 1e3 * timing.median(elapsed))
  print("peak_mb", accelhost.memory_stats().max_rss / 2 ^ 20)
end

return timing
