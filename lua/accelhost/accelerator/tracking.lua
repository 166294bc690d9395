--- Trackers: where the numbers of a run go. Only the main process has any.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local protect = require "accelhost.util.protect"
local registry = require "accelhost.track.registry"
local later = require "accelhost.util.later"
local gpu_sensors = later "accelhost.util.gpu_sensors"
local trial = later "accelhost.track.trial"

local fail = arguments.fail
local comm = C.comm

---@part Accelerator
---@field list GeneralTracker[] those that were started
---@field logged_step integer|false the highest step that was logged
---@field purge_from integer|"next"|false from which step on rows are removed before anything is logged
---@field kept_rows table<string, integer>|false rows of each tracker that are kept then instead
local Trackers = class.new "Trackers"

function Trackers:init(accelerator)
  self.accelerator, self.list = accelerator, {}
  self.logged_step, self.purge_from, self.kept_rows = false, false, false
end

-- The value of get_tracker on other processes: every method does nothing and returns nothing.
local blank = setmetatable({}, {
  __index = function() return function() end end,
  __newindex = function() end,
  __call = function() end,
  __tostring = function() return "GeneralTracker(of the main process only)" end,
})

local function name_of(tracker) return type(tracker) == "string" and tracker or tracker.name end

-- A table of options by tracker: each has to be for one that there is.
local function check_options(what, name, options, trackers)
  local known = {}
  for i, tracker in ipairs(trackers) do known[i] = name_of(tracker) end
  arguments.check_names(("%s: %s"):format(what, name), options or {}, known)
  for _, tracker in ipairs(arguments.sorted_keys(options or {})) do
    arguments.check(("%s: %s"):format(what, name), tracker, "table", options[tracker])
  end
end

-- The tracker of an item of log_with.
local function make(self, item, project, options)
  if type(item) ~= "string" then return item end
  local made = registry.class_of("init_trackers", item)
  return made(project, made.requires_logging_directory and self.accelerator.logging_dir or nil, options)
end

local function started(self, what)
  if not self.list[1] then
    fail("%s: there are no trackers: %s", what, self.accelerator.log_with[1] and "init_trackers starts them"
      or 'log_with = "tensorboard", "jsonl", "csv" or "all" names some')
  end
  return self.list
end

-- Before anything is logged again after load_state: drop the values that were logged beyond the checkpoint, except in
-- trackers that were configured with their own position. In the replacement of a killed process (`kept_rows`) trackers
-- that count their rows are truncated to the count of that time. "next": load_state has found no checkpoint; rows are
-- dropped from
-- the first step on that is logged now, since a killed run has logged the same steps.
local function purge(self, step)
  local from, rows = self.purge_from, self.kept_rows
  if from == "next" then
    if type(step) ~= "number" then return end
    from = step
  end
  self.purge_from, self.kept_rows = false, false
  for _, tracker in ipairs((from or rows) and self.list or {}) do
    if rows and rows[tracker.name] then
      tracker:keep_rows(rows[tracker.name])
    elseif from and tracker.purge and not (type(tracker.options) == "table" and tracker.options.purge_step) then
      tracker:purge(from)
    end
  end
end

local function note_step(self, step)
  if type(step) == "number" and step > (self.logged_step or -1) then self.logged_step = step end
end

--- Make the trackers that log_with names, and start them: on the main process; on others nothing happens.
--
--   local own = accelhost.Accelerator{log_with = "all", project_dir = os.tmpname() .. ".runs"}
--   own:init_trackers("mnist", {lr = 0.1, optimizer = "sgd"})
---@param project_name string the folder of the run in logging_dir
---@param config? table<string, any> the run's configuration: numbers, booleans, texts
---@param init_kwargs? table<string, table> options by tracker, such as {jsonl = {purge_step = 100}}: a resumed run
--- continues at that step, and values that were logged from it on are dropped; load_state does so by itself
Trackers.init_trackers = arguments.method("init_trackers", {
  "project_name: string", {"config: table"}, {"init_kwargs: table"},
}, function(self, project, config, init_kwargs)
  local what = "init_trackers"
  if project == "" or project:find "^%.%.?$" or project:find "%z" then
    fail("%s: project_name: expected the name of a folder, got '%s'", what, project)
  end
  check_options(what, "init_kwargs", init_kwargs, self.accelerator.log_with)
  if comm.rank() > 0 then return end
  self:finish()
  for _, item in ipairs(self.accelerator.log_with) do
    local tracker = make(self, item, project, init_kwargs and init_kwargs[name_of(item)])
    if tracker.start then tracker:start() end
    self.list[#self.list + 1] = tracker
  end
  for _, tracker in ipairs(config and self.list or {}) do
    if tracker.store_init_configuration then tracker:store_init_configuration(config) end
  end
end)

--- The tracker of a name; on other processes than the main one an object all of whose methods do nothing.
--
--   local own = accelhost.Accelerator{log_with = "tensorboard", project_dir = os.tmpname() .. ".runs"}
--   own:init_trackers "mnist"
--   own:get_tracker("tensorboard", {unwrap = true}):add_histogram("noise", accelhost.randn(100), 1)
---@param unwrap? boolean return the object with which it writes, such as the SummaryWriter
---@return any
Trackers.get_tracker = arguments.method("get_tracker", {
  "name: string", {"unwrap: flag", false},
}, function(self, name, unwrap)
  if comm.rank() > 0 then return blank end
  purge(self, 0)
  local known = {}
  for _, tracker in ipairs(started(self, "get_tracker")) do
    if tracker.name == name then return unwrap and tracker.tracker or tracker end
    known[#known + 1] = tracker.name
  end
  return fail("get_tracker: there is no tracker '%s' (there are: %s)%s", name, table.concat(known, ", "),
    arguments.did_you_mean(name, known))
end)

-- The values and, if asked for, the sensors of the CUDA device.
local function with_sensors(accelerator, values)
  local index = accelerator.log_gpu and values.gpu == nil and accelerator.device:match "^cuda:(%d+)"
  local readings = index and gpu_sensors.read(tonumber(index))
  if not readings then return values end
  local all = {gpu = readings}
  for name, value in pairs(values) do all[name] = value end
  return all
end

--- Log values with all trackers: numbers, booleans, texts, tensors of one element, and tables of them by name (curves
--- of one plot). On other processes than the main one nothing happens.
--
--   local own = accelhost.Accelerator{log_with = "jsonl", project_dir = os.tmpname() .. ".runs"}
--   own:init_trackers "mnist"
--   own:log({loss = 0.25, accuracy = {train = 0.9, valid = 0.8}}, {step = 1})
--
-- They are written before it returns; after load_state values that were logged beyond the checkpoint are dropped first.
-- It reads the elements of tensors, so log gathered values or this process's own. With log_gpu of the accelerator the
-- sensors of the CUDA device are logged too. In a trial of a sweep this is
-- accelhost.report too, by step or, without one, by count.
---@param values table<string, any>
---@param log_kwargs? table<string, table> options by tracker, such as {tensorboard = {walltime = 12}}
Trackers.log = arguments.method("log", {
  "values: table", {"step: integer"}, {"log_kwargs: table"},
}, function(self, values, step, log_kwargs)
  if comm.rank() == 0 then
    local trackers = started(self, "log")
    check_options("log", "log_kwargs", log_kwargs, trackers)
    purge(self, step or values.step)
    local all = with_sensors(self.accelerator, values)
    for _, tracker in ipairs(trackers) do tracker:log(all, step, log_kwargs and log_kwargs[tracker.name]) end
    note_step(self, step or values.step)
  end
  if os.getenv "ACCELHOST_TRIAL" then trial.log(values, step) end -- last, since it may end the process
end)

--- Log batches of images (NCHW) with the trackers that store images. On other processes than the main one nothing
--- happens.
--
--   local own = accelhost.Accelerator{log_with = "all", project_dir = os.tmpname() .. ".runs"}
--   own:init_trackers "mnist"
--   own:log_images({digits = accelhost.rand(4, 1, 28, 28)}, {step = 1})     -- in TensorBoard's files
---@param values table<string, userdata> uint8, or floats from 0 to 1
---@param log_kwargs? table<string, table> options by tracker, such as {tensorboard = {dataformats = "NHWC"}}
Trackers.log_images = arguments.method("log_images", {
  "values: table", {"step: integer"}, {"log_kwargs: table"},
}, function(self, values, step, log_kwargs)
  if comm.rank() > 0 then return end
  local trackers, kept = started(self, "log_images"), false
  check_options("log_images", "log_kwargs", log_kwargs, trackers)
  purge(self, step)
  for _, tracker in ipairs(trackers) do
    if tracker.log_images then
      tracker:log_images(values, step, log_kwargs and log_kwargs[tracker.name])
      kept = true
    end
  end
  if not kept then fail("log_images: none of the trackers keeps images; 'tensorboard' does") end
  note_step(self, step)
end)

--- Finish the trackers and remove them.
function Trackers:finish()
  local trackers = self.list
  self.list = {}
  for _, tracker in ipairs(trackers) do
    if tracker.finish then tracker:finish() end
  end
end

--- End the training: close the trackers. Processes and their group are not changed; they end with the script.
--
--   accelerator:end_training()
function Trackers:end_training()
  protect(function() self:finish() end, self.accelerator.wait_for_checkpoint, self.accelerator)
end

--- Begin the run again, without a checkpoint: values that this process has logged itself stay.
---@param purge_step? integer|false as of load_state
function Trackers:begin_again(purge_step)
  if not self.logged_step then self.purge_from = purge_step == nil and "next" or purge_step end
end

--- Continue a run from a state in which `logged_step` was the last one: later steps are logged again.
---@param logged_step integer?
---@param purge_step? integer|false as of load_state
function Trackers:resume(logged_step, purge_step)
  self.logged_step = logged_step or false
  if purge_step == nil then purge_step = logged_step and logged_step + 1 or false end
  self.purge_from = purge_step
end

return Trackers
