--- Profiles of a job: one on each process, with a trace file for each.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local handlers = later "accelhost.accelerator.options.handlers"

local names = {
  "activities", "schedule", "schedule_option", "on_trace_ready", "record_shapes", "profile_memory", "with_stack",
  "with_flops", "with_modules", "output_trace_dir", "max_events",
}

-- The options of a profile, without those that are the accelerator's.
local function read(options)
  local given = {}
  arguments.check_names("profile", options, names)
  for _, name in ipairs(names) do given[name] = rawget(options, name) end
  if given.schedule_option then
    if given.schedule then arguments.fail "profile: schedule and schedule_option are the same; pass one" end
    given.schedule = given.schedule_option
  end
  if type(given.schedule) == "table" then
    given.schedule = require "accelhost.profiler".schedule(given.schedule)
  end
  local folder = given.output_trace_dir
  if folder ~= nil then arguments.check("profile", "output_trace_dir", "string", folder) end
  given.schedule_option, given.output_trace_dir = nil, nil
  return given, folder
end

-- Methods of the Accelerator class.
local Accelerator = {}

--- Profile the run of fn, on every process: `fn(prof)` runs and the profile is returned. The options are those of
--- accelhost.profiler.profile; besides, `output_trace_dir` names a folder, made if it is missing, into which each
--- process writes its last trace as profile_RANK.json (times are of one clock, so that the files can be compared),
--- and `schedule` may be the table of a schedule's options. A collective with output_trace_dir.
--
--   local prof = accelerator:profile({record_shapes = true}, function(prof)
--     for step = 1, 3 do
--       accelerator:backward((w * step):sum())
--       prof:step()
--     end
--   end)
--   print(prof:key_averages():table{sort_by = "cpu_time_total", row_limit = 5})
---@param options? table|ProfileKwargs default: the ProfileKwargs of kwargs_handlers
---@param fn fun(prof: Profile)
---@return Profile
function Accelerator:profile(options, fn)
  if fn == nil and type(options) == "function" then options, fn = nil, options end
  options = options or self._profile_handler or {}
  if type(options) ~= "table" or getmetatable(options) and not class.is(options, handlers.ProfileKwargs) then
    arguments.fail("profile: expected options as a table and a function, got %s", arguments.describe(options))
  end
  arguments.check("profile", "fn", "callable", fn)
  local given, folder = read(options)
  local prof = require "accelhost.profiler".profile(given, fn)
  if folder and prof._recording then
    local made, reason = C.io.make_folder(folder)
    if not made then arguments.fail("profile: output_trace_dir: %s", reason) end
    prof:export_chrome_trace(("%s/profile_%d.json"):format(folder, self.process_index))
  end
  if folder then self:wait_for_everyone() end
  return prof
end

return Accelerator
