--- GeneralTracker: the interface of trackers.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail = arguments.fail

---@field name string by which log_with, get_tracker and the tables init_kwargs and log_kwargs know it
---@field requires_logging_directory boolean is the class made with a folder?
---@field tracker any the result of get_tracker with unwrap: the tracker itself, or the object that it writes with
local GeneralTracker = class.new "GeneralTracker"

GeneralTracker.requires_logging_directory = false

--- The base of trackers of a script's own: they have a `name`, declare whether a folder is needed, and log values.
--
--   local Memory = accelhost.track.GeneralTracker:extend "Memory"
--   Memory.name = "memory"
--   function Memory:start() self.losses = {} end
--   function Memory:log(values) table.insert(self.losses, values.loss) end
--   local own = accelhost.Accelerator{log_with = Memory()}
--   own:init_trackers "test"
--   own:log{loss = 0.25}
--   own:get_tracker("memory").losses[1]  --> 0.25
--
-- Only the main process starts trackers and calls them. A plain table with these fields serves too.
-- One whose class is known by its name (register_tracker_class) is made with the folder and the options.
---@param run_name? string the project
---@param logging_dir? string with requires_logging_directory
---@param options? table its part of init_kwargs
function GeneralTracker:init(run_name, logging_dir, options)
  self.run_name, self.logging_dir, self.options = run_name, logging_dir, options
end

--- Open files, connect, ...: called by init_trackers, before anything else.
function GeneralTracker:start() end -- luacheck: ignore self

--- Store the run's configuration.
---@param values table
function GeneralTracker:store_init_configuration(values) end -- luacheck: ignore self values

--- Log values. The one method that every tracker must define.
---@param values table<string, any>
---@param step? integer
---@param options? table its part of log_kwargs
function GeneralTracker:log(values, step, options) -- luacheck: ignore values step options
  fail("%s: a tracker has a method log(values, step, options)", self.name or self._name)
end

--- Drop the values that were logged from a step on: called when a run resumes from an older checkpoint, before anything
--- is logged again.
function GeneralTracker:purge(step) end -- luacheck: ignore self step

--- End the run: close the files that start opened.
function GeneralTracker:finish() end -- luacheck: ignore self

local methods = {"start", "store_init_configuration", "log", "log_images", "purge", "finish"}

--- Raise unless an object can be called as a tracker.
---@param tracker table
---@return table tracker
function GeneralTracker.check(what, tracker)
  if type(tracker.name) ~= "string" then
    fail("%s: a tracker has a `name`, got %s", what, arguments.describe(tracker.name))
  end
  for _, method in ipairs(methods) do
    local value = tracker[method]
    if type(value) ~= "function" and (value ~= nil or method == "log") then
      fail("%s: the tracker '%s': %s: expected a function, got %s", what, tracker.name, method,
        arguments.describe(value))
    end
  end
  return tracker
end

return GeneralTracker
