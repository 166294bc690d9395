--- Trackers by name: the values of log_with.
local GeneralTracker = require "accelhost.track.tracker"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail = arguments.fail
local registry = {}

local files = {
  tensorboard = "accelhost.track.tensorboard", jsonl = "accelhost.track.jsonl", csv = "accelhost.track.csv",
}
local order, classes = {"tensorboard", "jsonl", "csv"}, {}

--- Let log_with know a class of one's own by its `name`: init_trackers makes it with the project, the folder (nil
--- unless it requires one) and its part of init_kwargs.
--
--   local Quiet = accelhost.track.GeneralTracker:extend "Quiet"
--   Quiet.name = "quiet"
--   function Quiet:log() end
--   accelhost.track.register_tracker_class(Quiet)
--   accelhost.Accelerator{log_with = "quiet"}:init_trackers "test"
---@param tracker_class table a subclass of GeneralTracker
function registry.register_tracker_class(tracker_class)
  local what = "register_tracker_class"
  if type(tracker_class) ~= "table" or rawget(tracker_class, "_class") ~= tracker_class
    or not (rawget(tracker_class, "_parent")) then
    fail("%s: expected a subclass of GeneralTracker, got %s", what, arguments.describe(tracker_class))
  end
  GeneralTracker.check(what, tracker_class)
  local name = tracker_class.name
  if files[name] or name == "all" or classes[name] and classes[name] ~= tracker_class then
    fail("%s: there is a tracker '%s' already", what, name)
  end
  if not classes[name] then order[#order + 1] = name end
  classes[name] = tracker_class
end

--- The names that are known, in order.
---@return string[]
function registry.names() return {unpack(order)} end

--- The class of a name.
---@return table
function registry.class_of(what, name)
  local found = classes[name] or files[name] and require(files[name])
  if not found then
    fail("%s: there is no tracker '%s' (known: all, %s)%s", what, name, table.concat(order, ", "),
      arguments.did_you_mean(name, order))
  end
  return found
end

--- Is a value a tracker: an object of a subclass of GeneralTracker, or a plain table with a name?
function registry.is_tracker(value)
  if type(value) ~= "table" then return false end
  return class.is(value, GeneralTracker) or getmetatable(value) == nil and value.name ~= nil
end

return registry
