--- Event: a position in a device's queue of work, for measuring and for waiting.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local place = require "accelhost.cuda.place"

local fail = arguments.fail

local Event = class.strict(class.new "Event")
Event.__newindex = class.assign

local read = arguments.signature("cuda.Event", {
  {"enable_timing: flag", false}, {"blocking: flag", false}, {"interprocess: flag", false},
})

--- An event of a CUDA device: it completes after the work submitted before it was recorded.
--
--   local from, to = accelhost.cuda.Event{enable_timing = true}, accelhost.cuda.Event{enable_timing = true}
--   if accelhost.cuda.is_available() then
--     from:record()
--     to:record()
--     to:synchronize()
--     print(from:elapsed_time(to))
--   end
---@param enable_timing? boolean for elapsed_time
---@param blocking? boolean no difference here
---@param interprocess? boolean not supported
function Event:init(...)
  local timed, _, shared = read(...)
  if shared then fail "cuda.Event: interprocess: processes share no events here" end
  rawset(self, "_timed", timed)
  rawset(self, "_events", {}) -- by device
  rawset(self, "_event", false)
end

--- Record it after all work submitted to the current device so far.
--
--   if accelhost.cuda.is_available() then accelhost.cuda.Event():record() end
function Event:record()
  local device = place.name "Event"
  local event = self._events[device] or C.prefetch.event(device, self._timed)
  self._events[device] = event
  rawset(self, "_event", event)
  event:set()
end

--- Has the device completed all work before it? True of one that was never recorded.
--
--   accelhost.cuda.Event():query()  --> true
function Event:query() return not self._event or self._event:reached() end

--- Wait until it has.
--
--   accelhost.cuda.Event():synchronize()
function Event:synchronize()
  if self._event then self._event:wait() end
end

--- Milliseconds of the device between this event and a later one; both made with enable_timing, and reached.
---@return number
function Event:elapsed_time(end_event)
  if not class.is(end_event, Event) then
    fail("elapsed_time: end_event: expected an Event, got %s", arguments.describe(end_event))
  end
  if not self._event or not end_event._event then fail "elapsed_time: both events have to be recorded before" end
  return self._event:elapsed(end_event._event)
end

return Event
