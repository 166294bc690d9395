--- The schedule of a profile: PyTorch's rounds of waiting, warming up and recording.
local arguments = require "accelhost.util.arguments"
local warn = require "accelhost.util.warn"

local read = arguments.signature("schedule", {
  "wait: size", "warmup: size", "active: count", {"repeat: size"}, {"skip_first: size", 0},
  {"skip_first_wait: size", 0}, {"repeats: size"},
})

--- A schedule for `profile`: skip the first `skip_first` steps, then go round of `wait` steps without recording,
--- `warmup` steps whose recording is dropped, and `active` steps that are recorded, `repeat` times (0: without end).
--- `repeat` is a word of Lua: write repeats = 2, or ["repeat"] = 2.
--
--   local at = accelhost.profiler.schedule{wait = 1, warmup = 1, active = 2, repeats = 1}
--   at(0), at(1), at(2), at(3), at(4)  --> none, warmup, record, record_and_save, none
---@param skip_first_wait? integer not 0: the first round has no `wait`
---@return fun(step: integer): string # "none", "warmup", "record" or "record_and_save", by the step's number from 0
return function(...)
  local wait, warmup, active, times, skip_first, skip_first_wait, repeats = read(...)
  if times and repeats then arguments.fail 'schedule: "repeat" and "repeats" are the same; pass one' end
  times = times or repeats or 0
  if warmup == 0 then warn "schedule: without warmup the first recorded step may be unlike the others" end
  local round = wait + warmup + active
  return function(step)
    if type(step) ~= "number" or step < 0 then
      arguments.fail("schedule: expected the number of a step, got %s", arguments.describe(step))
    end
    if step < skip_first then return "none" end
    step = step - skip_first
    if skip_first_wait ~= 0 then step = step + wait end
    if times > 0 and step / round >= times then return "none" end
    local place = step % round
    if place < wait then return "none" end
    if place < wait + warmup then return "warmup" end
    return place < round - 1 and "record" or "record_and_save"
  end
end
